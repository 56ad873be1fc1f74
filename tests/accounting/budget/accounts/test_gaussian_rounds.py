"""Rounds of all records under one sum of squares: against the closed form in 50 digits, and dp-accounting's count."""

from __future__ import annotations

import math
import random

import mpmath as mp
import pytest

from accounting.budget.accounts.gaussian_rounds import GaussianRoundsLimit
from accounting.budget.budget import Budget
from accounting.budget.forecast import forecast
from accounting.plan.limits import FirstRoundOverspends, HistogramRelease, LimitPlan
from accounting.plan.queries import QueryPlan
from accounting.units import Definition, Level
from tests.accounting.budget.accounts.test_gaussian import gaussian_delta
from tests.accounting.budget.plans import cost, full


def account(plan) -> GaussianRoundsLimit:
    return GaussianRoundsLimit(plan, plan.limits[-1])


@pytest.mark.parametrize(
    ("sigma", "epsilon", "delta", "rounds"),
    [(20.0, 1.0, 1e-5, 28), (20.0, 2.0, 1e-5, 100), (20.0, 8.0, 1e-5, 1110), (10.43, 2.0, 1e-4, 36)],
)
def test_as_many_rounds_begin_as_the_closed_form_allows(sigma, epsilon, delta, rounds):
    budget = Budget.open(full(rounds + 5, epsilon=epsilon, delta=delta, noise_multiplier=sigma))
    while budget.authorise().is_allowed:
        number = budget.last_round + 1
        budget.reserve(number)
        budget.settle(number, None)
    assert budget.charged_rounds == rounds
    assert (
        gaussian_delta(mp.sqrt(rounds) / sigma, epsilon) <= delta < gaussian_delta(mp.sqrt(rounds + 1) / sigma, epsilon)
    )
    assert budget.authorise().reason == "budget-exhausted"


def test_the_limit_is_stated_and_what_was_used_beside_it():
    budget = Budget.open(full(30, epsilon=2.0, noise_multiplier=12.0))
    for number in range(1, 6):
        budget.reserve(number)
        budget.settle(number, None)
    stated = budget.statements()[0]
    certificate, running = stated["certificate"], stated["reports"][0]
    assert (stated["spent"], certificate["epsilon"], certificate["composition"]) == (2.0, 2.0, "gaussian-filter")
    # From above, by the rounding of the noise and of sums alone.
    assert 5 / 12**2 <= certificate["used"] <= 5 / 12**2 * (1 + 1e-9)
    exact = gaussian_delta(mp.sqrt(5) / 12, running["epsilon"])
    assert exact <= 1e-5
    assert gaussian_delta(mp.sqrt(5) / 12, running["epsilon"] * 0.999) > 1e-5


def test_rounds_and_questions_share_one_sum_in_any_order():
    study = full(200, epsilon=2.0, noise_multiplier=15.0, queries=QueryPlan(200, 10))
    source, budget, used = random.Random(7), Budget.open(study), 0.0
    while True:
        number, query = budget.last_round + 1, cost(source.uniform(5.0, 60.0))
        trains = source.random() < 0.5
        if not (budget.authorise() if trains else budget.authorise_query(query)).is_allowed:
            break
        if trains:
            budget.reserve(number)
        else:
            budget.reserve_query(number, query)
        budget.settle(number, None)
        used += 1 / (15.0**2 if trains else query.noise_multiplier**2)
        budget = Budget.restore(study, budget.state())
    assert gaussian_delta(mp.sqrt(used), 2.0) <= 1e-5
    refused = used + 1 / (15.0**2 if trains else query.noise_multiplier**2)
    assert gaussian_delta(mp.sqrt(refused), 2.0) > 1e-5 * (1 - 1e-4)


def test_histograms_are_taken_out_beforehand():
    limits = (
        LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 2.0, 1e-5, 1e-6),
        LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 2.0, 1e-5, None, "gaussian-filter"),
    )
    study = full(
        40,
        limits=limits,
        definitions=("bayesian", "classical"),
        disclosure="noised",
        release=HistogramRelease(40.0, 10),
    )
    kept, alone = account(study), account(full(40, epsilon=2.0))
    taken = alone.max_squares - kept.max_squares
    # Four histograms, each moved by √2 under noise 40, and the lattice of their whole numbers on top.
    assert 4 * 2 / 40.0**2 <= taken <= 4 * 2 / 40.0**2 * 1.05
    for _ in range(4):
        kept.charge(None, publishes=True)
    assert math.isinf(kept.epsilon_after_worst_round(publishes=True))


def test_the_first_round_that_does_not_fit_is_refused():
    with pytest.raises(FirstRoundOverspends) as refused:
        Budget.open(full(10, epsilon=0.5, noise_multiplier=2.0))
    Budget.open(full(1, epsilon=0.5, noise_multiplier=refused.value.noise_one_round))
    assert refused.value.noise_max_steps is not None
    budget = Budget.open(full(10, epsilon=0.5, noise_multiplier=refused.value.noise_max_steps))
    for number in range(1, 11):
        budget.reserve(number)
        budget.settle(number, None)


def test_the_limit_is_stated_where_the_running_epsilon_is_still_zero():
    """One quiet round moves the release by less than δ in total variation. What comes next may depend on it."""
    study = full(40, delta=1e-2, noise_multiplier=60.0)
    assert gaussian_delta(mp.mpf(1) / 60, 0) < 1e-2
    budget = Budget.open(study)
    assert budget.statements()[0]["certificate"]["epsilon"] == 0.0
    budget.reserve(1)
    assert budget.statements()[0]["reserved"] == 2.0
    budget.settle(1, None)
    stated = budget.statements()[0]
    assert (stated["spent"], stated["certificate"]["epsilon"], stated["reports"][0]["epsilon"]) == (2.0, 2.0, 0.0)
    assert forecast(study, tight=False).limits[0].first_round == 2.0
