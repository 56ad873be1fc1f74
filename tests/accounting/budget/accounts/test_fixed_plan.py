"""A plan that is kept as a whole: its number against dp-accounting, its steps and questions counted."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import NormalDist

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.accounts.fixed_plan import FixedPlanLimit
from accounting.budget.accounts.worst_case import Charged
from accounting.budget.budget import Budget, BudgetExceeded
from accounting.budget.forecast import forecast
from accounting.plan.limits import HistogramRelease, LimitPlan, PlanError, WholePlanOverspends
from accounting.plan.queries import EvaluationPlan, QueryPlan
from accounting.plan.schedule import NoiseStage
from accounting.units import Definition, Level
from tests.accounting.budget.plans import cost, fixed

# A grid of theirs this fine is above the exact ε by far less than 1e-3.
GRID = 5e-4


def exact(steps, delta, squares=0.0):
    """ε by dp-accounting of [(σ, q, count)] and one Gaussian of these squares, with continuous noise."""
    whole = None
    parts = [(sigma, q, count) for sigma, q, count in steps if count]
    parts += [(1 / math.sqrt(squares), 1.0, 1)] if squares else []
    for sigma, q, count in parts:
        one = pld.from_gaussian_mechanism(sigma, sampling_prob=q, value_discretization_interval=GRID)
        composed = one.self_compose(count)
        whole = composed if whole is None else whole.compose(composed)
    assert whole is not None
    return whole.get_epsilon_for_delta(delta)


def account(plan) -> FixedPlanLimit:
    return FixedPlanLimit(plan, plan.limits[0])


@pytest.mark.quick("2.0-0.1-2.0-73")
@pytest.mark.parametrize(
    ("sigma", "q", "epsilon", "rounds"), [(2.0, 0.1, 1.0, 16), (2.0, 0.1, 2.0, 73), (1.0, 0.01, 1.0, 254)]
)
def test_as_many_steps_fit_as_dp_accounting_says(sigma, q, epsilon, rounds):
    study = fixed(rounds, epsilon=epsilon, noise_multiplier=sigma, sampling_rate=q)
    theirs = exact([(sigma, q, rounds)], 1e-5)
    # Never below the exact law but for their grid, and at most a thousandth above.
    assert theirs * (1 - 1e-3) <= account(study).whole <= theirs * (1 + 1e-3)
    Budget.open(study)
    with pytest.raises(WholePlanOverspends) as refused:
        Budget.open(replace(study, max_steps=rounds + 1))
    assert (refused.value.field, refused.value.steps) == ("max_steps", rounds)
    Budget.open(replace(study, max_steps=rounds + 1, noise_multiplier=refused.value.noise))


def test_one_number_holds_from_the_first_round_to_the_last():
    budget = Budget.open(fixed(12, noise_multiplier=2.0, epsilon=1.0))
    whole = account(budget.plan).whole
    assert budget.statements()[0]["spent"] == 0.0
    for number in range(1, 13):
        budget.reserve(number)
        assert budget.statements()[0]["reserved"] == (whole if number == 1 else 0.0)
        budget.settle(number, None)
        stated = budget.statements()[0]
        certificate, running = stated["certificate"], stated["reports"][0]
        assert (stated["spent"], certificate["epsilon"]) == (whole, whole)
        assert (certificate["steps"], certificate["max_steps"]) == (number, 12)
        if number in (1, 5, 12):
            theirs = exact([(2.0, 0.1, number)], 1e-5)
            assert theirs * (1 - 2e-3) <= running["epsilon"] <= min(whole, theirs * (1 + 2e-3))
        assert "does not depend" not in certificate["assumption"]
        assert "do not depend on its results" in running["certificate"]["assumption"]
    assert budget.authorise().reason == "max-steps-reached"
    with pytest.raises(BudgetExceeded):
        budget.reserve(13)


def test_a_plan_is_forecast_whole_where_its_first_step_is_hardly_anything():
    study = fixed(400, delta=1e-2, noise_multiplier=20.0)
    expected = forecast(study, tight=False).limits[0]
    assert expected.first_round == expected.enforced == account(study).whole > 0


def test_the_account_itself_says_no_past_its_plan():
    kept = account(fixed(3, epsilon=1.0))
    for _ in range(3):
        assert kept.fits_worst_round(publishes=False)
        kept.charge(None, publishes=False)
    assert not kept.fits_worst_round(publishes=False)
    assert math.isinf(kept.epsilon_after_worst_round(publishes=False))


def test_no_step_past_the_plan_is_stated_as_if_it_were_in_it():
    kept = account(fixed(3, epsilon=1.0))
    (_, running), *_ = kept.reports_of(Charged((30,)))
    assert exact([(2.0, 0.1, 30)], 1e-5) * (1 - 1e-3) <= running.epsilon
    assert running.epsilon > kept.whole


@settings(max_examples=6, deadline=None)
@given(
    sigma=st.floats(0.8, 6.0),
    q=st.sampled_from([0.01, 0.1, 0.5]),
    rounds=st.integers(1, 80),
    share=st.floats(0.02, 0.8),
    delta=st.sampled_from([1e-4, 1e-6]),
)
def test_steps_and_questions_are_never_below_the_exact_law(sigma, q, rounds, share, delta):
    kept = account(fixed(rounds, epsilon=2.0, delta=delta, share=share, noise_multiplier=sigma, sampling_rate=q))
    theirs = exact([(sigma, q, rounds)], delta, kept.question_squares)
    # Their grid and ours: 1e-3 of slack is theirs alone.
    assert kept.whole >= theirs * (1 - 1e-3)
    if theirs < 10:
        assert kept.whole <= theirs * (1 + 2e-3) + 1e-3


def test_questions_adapt_within_their_share_in_any_order():
    budget = Budget.open(fixed(40, share=0.2, noise_multiplier=2.5))
    kept = budget.accounts[0]
    assert isinstance(kept, FixedPlanLimit)
    source, used = random.Random(1), 0.0
    while True:
        number, query = budget.last_round + 1, cost(source.uniform(8.0, 40.0))
        if source.random() < 0.3 and budget.authorise().is_allowed:
            budget.reserve(number)
        elif budget.authorise_query(query).is_allowed:
            budget.reserve_query(number, query)
            used += 1 / query.noise_multiplier**2
        else:
            break
        budget.settle(number, None)
        assert kept.epsilon() == kept.whole <= 2.0
    # What was refused would have passed the share, and the rest of the steps may still be taken.
    assert used <= kept.question_squares < used + 1 / query.noise_multiplier**2 * (1 + 1e-9)
    assert budget.authorise().is_allowed


@pytest.mark.parametrize(("share", "state"), [(0.2, "within"), (None, "exhausted")])
def test_after_the_last_step_only_questions_keep_a_limit_open(share, state):
    budget = Budget.open(fixed(2, share=share, noise_multiplier=2.5))
    for number in (1, 2):
        assert budget.statements()[0]["state"] == "within"
        budget.reserve(number)
        budget.settle(number, None)
    assert budget.statements()[0]["state"] == state
    assert share is None or budget.authorise_query(cost(30.0)).is_allowed
    assert not budget.authorise().is_allowed


def test_what_is_set_aside_may_lose_the_limit_and_no_more():
    evaluates = fixed(40, queries=QueryPlan(50, 100, None, EvaluationPlan(), None), noise_multiplier=2.5)
    budget = Budget.open(evaluates)
    assert not budget.authorise_query(cost(100.0)).is_allowed
    assert budget.authorise_query(cost(4.0, bears="evaluated")).is_allowed
    assert not budget.authorise_query(cost(1.0, bears="evaluated")).is_allowed
    budget.reserve(1)
    budget.settle(1, None)
    assert budget.statements()[0]["spent"] == 2.0


def test_a_guess_is_about_those_who_are_set_aside_too():
    """Their questions may take all of the limit, where the few steps of training take next to nothing of it."""
    evaluates = fixed(10, queries=QueryPlan(10, 10, None, EvaluationPlan(), None), noise_multiplier=10.0)
    budget, query = Budget.open(evaluates), cost(4.3, bears="evaluated")
    budget.reserve_query(1, query)
    budget.settle(1, None)
    # The total variation of Gaussians a distance r apart is 2Φ(r/2) − 1.
    guessed = NormalDist().cdf(1 / 4.3 / 2)
    stated = budget.statements()[0]
    assert (stated["attack_success"] >= guessed, stated["certificate"]["guess_from"]) == (True, "loss-distribution")
    trained = account(replace(evaluates, queries=None)).guess_chance()
    assert trained is not None
    assert trained < guessed


def test_published_histograms_are_planned():
    release = HistogramRelease(30.0, 5)
    limits = (
        LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 2.0, 1e-5, 1e-6),
        LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 3.0, 1e-5, None, "fixed-plan"),
    )
    study = fixed(20, limits=limits, definitions=("bayesian", "classical"), disclosure="noised", release=release)
    kept = FixedPlanLimit(study, limits[1])
    theirs = exact([(2.0, 0.1, 20)], 1e-5, 4 * 2 / 30.0**2)
    assert theirs * (1 - 1e-3) <= kept.trained <= theirs * 1.01
    for _ in range(4):
        kept.charge(None, publishes=True)
    assert not kept.fits_worst_round(publishes=True)
    assert kept.fits_worst_round(publishes=False)


def test_a_schedule_is_one_plan_and_no_entry_is_used_twice():
    stages = (NoiseStage(10, 1.5), NoiseStage(20, 1.0))
    study = fixed(30, noise_schedule=stages, noise_multiplier=2.0)
    theirs = exact([(3.0, 0.1, 10), (2.0, 0.1, 20)], 1e-5)
    assert theirs * (1 - 1e-3) <= account(study).whole <= theirs * (1 + 1e-3)
    budget = Budget.open(study)
    for number in range(1, 31):
        assert budget.next_stage == (0 if number <= 10 else 1)
        budget.reserve(number)
        if number in (3, 12):
            budget.cancel(number, "nothing left any building")
        else:
            budget.settle(number, None)
        budget = Budget.restore(study, budget.state())
    assert budget.accounts[0].charged.rounds == (9, 19)
    assert budget.authorise().reason == "max-steps-reached"


def test_state_and_json_come_back_and_old_plans_stay_as_they_were():
    study = fixed(30, share=0.1, noise_multiplier=3.0)
    assert type(study).from_dict(study.to_dict()) == study
    assert study.to_dict()["limits"][0]["enforcement"] == "fixed-plan"
    old = replace(study, limits=(replace(study.limits[0], enforcement=None),), queries=QueryPlan(50, 100))
    written = old.to_dict()
    assert "enforcement" not in written["limits"][0]
    assert "share" not in written["queries"]
    assert "noise_schedule" not in written


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("share", {"queries": QueryPlan(50, 100)}),
        ("share", {"share": 0.2, "enforcement": "renyi-order"}),
        ("enforcement", {"enforcement": "gaussian-filter"}),
        ("noise_schedule", {"noise_schedule": (NoiseStage(69, 1.0),)}),
        ("noise_schedule", {"noise_schedule": ()}),
    ],
)
def test_what_does_not_fit_together_is_named(field, changes):
    with pytest.raises(PlanError) as refused:
        fixed(**changes)
    assert refused.value.field == field


def test_dp_accounting_checks_the_demonstration_of_a_sampled_study():
    """By its own accountant over events, once more: 73 steps of σ 2 at rate 0.1 stay within ε 2."""
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=GRID)
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    accountant.compose(step, 73)
    assert accountant.get_epsilon(1e-5) <= 2.0
