"""What a study plans is what it charges in the end, and its whole number is that of an independent library."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from accounting.budget.budget import Budget
from accounting.plan.schedule import NoiseStage
from accounting.units import Level
from client_sdk.guard.charges import Charge
from client_sdk.guard.planned import PlannedStudy
from study_protocol.study.plan_of import plan_of
from tests.client_sdk.guard.test_charges import STUDIES
from tests.factories.settings import limit, settings


def planned(**options: Any) -> PlannedStudy:
    fixed = [limit("instance", epsilon=6.0, delta=1e-5, enforcement="fixed-plan")]
    values = {"limits": fixed, "max_steps": 40, "sampling_rate": 0.1, "noise_multiplier": 2.0}
    return PlannedStudy.of(settings(**(values | options)))


def exact(*parts: tuple[float, float, int], delta: float = 1e-6) -> float:
    peer = PLDAccountant()
    for noise, rate, count in parts:
        peer.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)
    return peer.get_epsilon(delta)


def whole(study: PlannedStudy, most: float = 6.0) -> float:
    account = study.fixed_limit(Level.INSTANCE)
    assert account is not None
    return study.whole_epsilon(account, 1e-6, most)


@pytest.mark.parametrize("scheme", ["parallel", "client", "noised parallel", "noised sequential"])
def test_the_rounds_are_those_that_the_budget_lets_begin_at_their_worst(scheme: str) -> None:
    study, budget = STUDIES[scheme], Budget(plan_of(STUDIES[scheme]))
    while budget.authorise().is_allowed:
        budget.reserve(budget.last_round + 1)
        budget.settle(budget.last_round, None)
    # Histograms that are published on the way end it earlier, and are compared beside the rounds.
    rounds = PlannedStudy.of(study).rounds
    assert rounds >= budget.charged_rounds
    assert rounds == budget.charged_rounds or study.privacy.histogram_noise is not None


def test_the_charges_of_all_rounds_are_those_of_each_round_together() -> None:
    study = settings(
        bayesian=True, max_steps=7, disclosure="noised", histogram_noise={"std": 12.0, "every": 2},
        accounting_sample={"records": 50, "source": "members"},
    )  # fmt: skip
    one_by_one = [Charge.of(study, [number]) for number in range(1, 8)]
    together = PlannedStudy.of(study).charges(7)
    assert sum(charge.steps for charge in together) == sum(charge.steps for charge in one_by_one)
    # One more than rounds 2, 4 and 6: a cancelled round may move them.
    histograms = sum(charge.histograms for charge in together)
    assert histograms >= sum(charge.histograms for charge in one_by_one) == 3
    assert {charge.histogram_noise for charge in together if charge.histograms} == {one_by_one[1].histogram_noise}


@pytest.mark.slow
def test_a_schedule_charges_each_stage_at_its_own_noise() -> None:
    study = planned()
    stages = (NoiseStage(10, 1.5), NoiseStage(30, 0.75))
    study = replace(study, plan=replace(study.plan, noise_schedule=stages))
    assert [(c.noise_multiplier, c.steps) for c in study.charges(40)] == [(3.0, 10), (1.5, 30)]
    assert [(c.noise_multiplier, c.steps) for c in study.charges(12)] == [(3.0, 10), (1.5, 2)]
    expected = exact((3.0, 0.1, 10), (1.5, 0.1, 30))
    assert expected - 1e-4 <= whole(study) <= expected * 1.002


def test_questions_with_a_share_are_part_of_the_whole() -> None:
    """40 steps and one Gaussian release of μ² (theorem B)."""
    study = planned(statistics={"max_queries": 20, "max_cells": 100, "share": 0.2})
    squares = study.question_squares
    assert squares > 0
    expected = exact((2.0, 0.1, 40), (1 / math.sqrt(squares), 1.0, 1))
    assert expected - 1e-4 <= whole(study) <= expected * 1.002
    (question,) = [charge for charge in study.charges(40) if charge.asks]
    assert question.noise_multiplier == pytest.approx(1 / math.sqrt(squares))
    assert not study.has_open_questions
    open_study = settings(statistics={"max_queries": 20, "max_cells": 100})
    assert PlannedStudy.of(open_study).has_open_questions


def test_it_relies_on_nobody_else_s_noise() -> None:
    """In a secure sum the others add noise too. The hospital's own reservation counts its own alone."""
    shared = PlannedStudy.of(
        settings(
            "sequential", masked=True, max_steps=40, sampling_rate=0.1, noise_multiplier=2.0,
            limits=[limit("instance", epsilon=6.0, delta=1e-5, enforcement="fixed-plan")],
        )
    )  # fmt: skip
    account = shared.fixed_limit(Level.INSTANCE)
    assert account is not None
    expected = exact((2.0, 0.1, 40))
    assert account.trained < 0.8 * expected
    assert expected - 1e-4 <= whole(shared) <= expected * 1.002


def test_more_than_what_is_of_use_is_no_number() -> None:
    assert whole(planned(), most=0.5) == math.inf
    assert whole(planned(noise_multiplier=8.0), most=1e-3) == math.inf


def test_a_share_in_place_of_an_allowance_is_compared_with_the_rounds() -> None:
    """It is a part of the μ² of the classical limit (ε 8, δ 1e-4), by Theorem 8 of Balle & Wang 2018."""
    limits = [limit("instance", epsilon=8.0, delta=1e-4), limit("instance", "bayesian")]
    questions = {"max_queries": 5, "max_cells": 10, "share": 0.2}
    study = PlannedStudy.of(settings(bayesian={"adversary": "path"}, statistics=questions, limits=limits))
    mu = math.sqrt(study.question_squares / 0.2)
    normal = NormalDist()
    delta = normal.cdf(mu / 2 - 8 / mu) - math.exp(8) * normal.cdf(-mu / 2 - 8 / mu)
    assert delta == pytest.approx(1e-4, rel=1e-4)
    (asked,) = [charge for charge in study.charges(3) if charge.asks]
    assert 1 / asked.noise_multiplier**2 == pytest.approx(study.question_squares)
