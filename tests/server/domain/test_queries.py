"""Queries between question and answer: who has consented, how much noise is sure, and what still fits a budget."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from mpmath import erfc, exp, mp, mpf, sqrt

from accounting.budget.budget import Budget
from accounting.plan.queries import QueryCost
from server.domain.queries import (
    ConsentTally,
    answer_of,
    consents_of,
    effects,
    min_noise_multiplier,
    noise_of,
    shares_of,
)
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from tests.factories.settings import MASKING, statistics_settings

ACTIVE = ("a", "b", "c", "d")


def document(**question: Any) -> QueryDocument:
    return QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 5.0} | question})


def tally(said: dict[str, bool], needed: int, active: tuple[str, ...] = ACTIVE) -> ConsentTally:
    return consents_of(active, list(said.items()), needed)


def test_a_round_begins_at_once_when_all_have_spoken_and_later_when_some_are_silent() -> None:
    assert tally({"a": True}, 2).due_at(100.0, 60.0) is None
    assert tally({"a": True, "b": True}, 2).due_at(100.0, 60.0) == 160.0
    assert tally({"a": True, "b": True, "c": False}, 2).due_at(100.0, 60.0) == 160.0
    assert tally({"a": True, "b": True, "c": False, "d": False}, 2).due_at(100.0, 60.0) == 100.0


def test_who_has_left_neither_consents_nor_is_waited_for() -> None:
    assert tally({"a": True, "gone": True}, 2).due_at(0.0, 60.0) is None
    assert tally({"a": True, "b": True}, 2, active=("a", "b")).due_at(7.0, 60.0) == 7.0


def test_a_query_is_hopeless_once_too_few_are_left_that_may_consent() -> None:
    """Against every way in which four hospitals can say yes, no or nothing."""
    for needed, words in product(range(1, 6), product((True, False, None), repeat=4)):
        said = {name: word for name, word in zip(ACTIVE, words, strict=True) if word is not None}
        still_possible = sum(word is not False for word in words)
        # Where there are fewer hospitals than are needed, others may still enrol.
        assert tally(said, needed).hopeless == (len(ACTIVE) >= needed > still_possible)


def test_noise_is_sure_of_the_fewest_honest_hospitals_and_grows_with_those_that_are_there() -> None:
    clear, masked = statistics_settings(masked=False), statistics_settings(masked=True)
    asked = document()
    # Of at least four survivors one may collude.
    assert (shares_of(clear), shares_of(masked)) == (1, MASKING["min_survivors"] - MASKING["colluders"])
    alone, many = noise_of(asked, clear, 1), noise_of(asked, clear, 9)
    assert alone.present == pytest.approx(alone.guaranteed)
    assert many.present == pytest.approx(3 * alone.guaranteed)
    shared = noise_of(asked, masked, 6)
    assert shared.present == pytest.approx(shared.guaranteed * math.sqrt(6 / 3))
    # A patient changes a count by one, of which the question wants five times that as noise.
    assert alone.guaranteed == pytest.approx(5.0, rel=1e-6)


def test_an_answer_is_the_sum_in_steps_of_the_grid_and_the_same_for_every_reader() -> None:
    asked = document()
    noise = noise_of(asked, statistics_settings(masked=False), 3)
    total = np.array([300.0 / noise.spacing])
    first, again = (answer_of(asked, noise, total, suppress_below=0) for _ in range(2))
    assert first == again
    assert first.tables[0].rows[0][0] == pytest.approx(300.0)
    assert answer_of(asked, noise, total, suppress_below=301) != first


def delta_of(epsilon: float, multiplier: float) -> Any:
    """Of one Gaussian query, in 50 digits (Balle & Wang 2018, Theorem 8)."""
    with mp.workdps(50):
        mu, eps = 1 / mpf(multiplier), mpf(epsilon)

        def phi(value: Any) -> Any:
            return erfc(-value / sqrt(2)) / 2

        return phi(mu / 2 - eps / mu) - exp(eps) * phi(-mu / 2 - eps / mu)


STEPS = 2.0**20
COST = QueryCost(noise_std=5.0 * STEPS, sensitivity=STEPS, cells=1)


def test_the_least_noise_that_fits_is_that_of_the_analytic_gaussian() -> None:
    budget = Budget(plan_of(statistics_settings(masked=False, epsilon=2.0)))
    limit = budget.accounts[0].limit
    least = min_noise_multiplier(budget, COST)
    assert least is not None
    assert delta_of(limit.epsilon, least) <= limit.delta
    # Three digits, rounded up: a hundredth less is too little.
    assert delta_of(limit.epsilon, least * 0.99) > limit.delta
    assert budget.accounts[0].fits_query(replace(COST, noise_std=least * STEPS))
    assert not budget.accounts[0].fits_query(replace(COST, noise_std=least * 0.99 * STEPS))


def test_what_a_query_costs_is_said_of_every_limit_beforehand() -> None:
    budget = Budget(plan_of(statistics_settings(masked=False, epsilon=2.0)))
    (limit,) = effects(budget, COST)
    assert (limit.level, limit.definition, limit.epsilon, limit.before) == ("instance", "classical", 2.0, 0.0)
    assert limit.after is not None
    assert delta_of(limit.after, 5.0) <= budget.accounts[0].limit.delta
    assert delta_of(limit.after * 0.999, 5.0) > budget.accounts[0].limit.delta
