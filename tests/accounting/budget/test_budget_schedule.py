"""A noise schedule in the budget: no place of it is ever used twice, and ε is that of the stages that were charged.

The independent accountant is dp-accounting.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounting.budget.accounts import FixedPlanLimit
from accounting.budget.budget import Budget, BudgetExceeded
from accounting.budget.forecast import forecast
from accounting.errors import InvalidArgument
from accounting.plan.limits import Enforcement, LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryPlan
from accounting.plan.schedule import NoiseStage
from accounting.units import Definition, Level
from tests.accounting.budget.plans import plan

ORDER, DELTA = 8.0, 1e-5
FALLING = (NoiseStage(3, 2.0), NoiseStage(2, 1.25), NoiseStage(4, 1.0))
EVENTS = st.lists(st.sampled_from(("settle", "cancel", "full", "restart")), max_size=16)


def scheduled(
    rule: Enforcement | None, *, epsilon: float = 8.0, stages: tuple[NoiseStage, ...] = FALLING, **changes: object
) -> Plan:
    limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, DELTA, None, rule)
    rounds = sum(stage.rounds for stage in stages)
    defaults: dict[str, object] = {"limits": (limit,), "definitions": ("classical",), "noise_schedule": stages}
    return plan(**defaults | {"steps_per_round": 1, "max_steps": rounds, "disclosure": "at-end"} | changes)


def steps(noises: Iterable[float], rate: float) -> dp_accounting.DpEvent:
    counts = Counter(noises)
    events = {noise: dp_accounting.GaussianDpEvent(noise) for noise in counts}
    if rate < 1:
        events = {noise: dp_accounting.PoissonSampledDpEvent(rate, event) for noise, event in events.items()}
    return dp_accounting.ComposedDpEvent(
        [dp_accounting.SelfComposedDpEvent(events[noise], count) for noise, count in counts.items()]
    )


def renyi(noises: Iterable[float], rate: float) -> float:
    account = rdp_privacy_accountant.RdpAccountant(orders=[ORDER + 1])
    return account.compose(steps(noises, rate)).get_epsilon(DELTA)


def losses(noises: Iterable[float], rate: float) -> float:
    account = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-4)
    return account.compose(steps(noises, rate)).get_epsilon(DELTA)


def played(chosen: Plan, events: Iterable[str]) -> tuple[Budget, list[int], list[int]]:
    """The budget after these events, the stage of every round that began, and those that were charged."""
    budget = Budget(chosen)
    begun, charged = list[int](), list[int]()
    for event in events:
        if event == "restart":
            budget = Budget.restore(chosen, json.loads(json.dumps(budget.state())))
            continue
        number = budget.last_round + 1
        if budget.attempts == chosen.rounds:
            with pytest.raises(BudgetExceeded, match="max-steps-reached"):
                budget.reserve(number)
            continue
        budget.reserve(number)
        # Killed between reservation and end: it is the same place afterwards.
        budget = Budget.restore(chosen, json.loads(json.dumps(budget.state())))
        begun.append(budget.next_stage)
        assert chosen.stage_of(budget.attempts) == budget.next_stage
        if event == "cancel":
            budget.cancel(number, "too-few-clients")
        else:
            charged.append(budget.next_stage)
            budget.settle(number, None) if event == "settle" else budget.charge_in_full(number, "updates-lost")
    return budget, begun, charged


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS)
def test_no_place_is_used_twice_and_the_charged_stages_are_what_is_spent(events: list[str]) -> None:
    chosen = scheduled(None)
    budget, begun, charged = played(chosen, events)
    listed = [place for place, stage in enumerate(FALLING) for _ in range(stage.rounds)]
    assert begun == listed[: len(begun)]
    assert budget.attempts == len(begun)
    noises = [chosen.noise_of(stage) for stage in charged]
    exact = max(0.0, renyi(noises, chosen.sampling_rate)) if noises else 0.0
    assert exact * (1 - 1e-9) <= budget.accounts[0].epsilon() <= exact * (1 + 1e-6) + 1e-9


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(EVENTS)
def test_a_filter_of_squares_counts_the_charged_stages(events: list[str]) -> None:
    chosen = scheduled("gaussian-filter", sampling_rate=1.0, noise_multiplier=8.0)
    budget, _, charged = played(chosen, events)
    exact = math.fsum(1 / chosen.noise_of(stage) ** 2 for stage in charged)
    (account,) = budget.accounts
    # A twelfth of a grid step is taken off the variance.
    assert exact <= account.certificate(finished=False).used <= exact * (1 + 1e-9)
    shown = losses([chosen.noise_of(stage) for stage in charged], 1.0) if charged else 0.0
    ((_, running),) = account.reports(finished=False)
    assert shown - 2e-3 <= running.epsilon <= shown + 2e-3


def test_a_state_that_forgot_which_entries_are_used_up_is_refused() -> None:
    budget, _, _ = played(scheduled(None), ["cancel", "settle"])
    state = budget.state()
    del state["attempts"]
    with pytest.raises(InvalidArgument, match="used up"):
        Budget.restore(budget.plan, state)


@pytest.mark.parametrize("events", [["cancel"] * 9, ["settle"] * 9, ["full", "cancel", "settle"] * 3])
def test_a_study_ends_with_the_last_place(events: list[str]) -> None:
    budget, begun, _ = played(scheduled(None), [*events, "settle"])
    assert len(begun) == 9
    assert budget.authorise().reason == "max-steps-reached"
    assert budget.statements(whole=False)[0]["rounds_left_estimate"] == 0


def test_places_that_were_cancelled_are_no_rounds_that_are_left() -> None:
    budget, _, _ = played(scheduled(None), ["cancel", "cancel", "settle"])
    assert budget.statements(whole=False)[0]["rounds_left_estimate"] == 6


def test_steps_of_abandoned_rounds_are_stated_with_the_plan() -> None:
    budget, _, _ = played(scheduled("fixed-plan"), ["settle", "cancel", "full", "cancel"])
    steps = {"used": 2, "reserved": 0, "allowed": 9, "abandoned": 2}
    assert budget.statements(whole=False)[0]["progress"]["steps"] == steps
    budget.reserve(budget.last_round + 1)
    assert budget.statements(whole=False)[0]["progress"]["steps"] == steps | {"reserved": 1}


@pytest.mark.parametrize(("share", "state"), [(0.2, "within"), (None, "exhausted")])
def test_abandoned_places_end_the_training_and_leave_the_share_of_questions(share: float | None, state: str) -> None:
    queries = None if share is None else QueryPlan(50, 100, None, None, share)
    budget, _, _ = played(scheduled("fixed-plan", queries=queries), ["settle", "cancel", "full", *["settle"] * 6])
    stated = budget.statements(whole=False)[0]
    assert (stated["progress"]["steps"]["abandoned"], stated["state"]) == (1, state)
    assert not budget.authorise().is_allowed


@pytest.mark.slow
def test_the_number_of_a_scheduled_plan_is_never_below_the_exact_one() -> None:
    rng = np.random.default_rng(7)
    for _ in range(12):
        counts = rng.integers(1, 40, rng.integers(1, 5))
        stages = tuple(NoiseStage(int(count), float(rng.uniform(0.7, 2.0))) for count in counts)
        rate, noise = float(rng.choice([0.02, 0.1, 0.4])), float(rng.uniform(1.0, 4.0))
        chosen = scheduled("fixed-plan", stages=stages, sampling_rate=rate, noise_multiplier=noise)
        account = FixedPlanLimit(chosen, chosen.limits[0])
        noises = [chosen.noise_of(place) for place, stage in enumerate(stages) for _ in range(stage.rounds)]
        exact = losses(noises, rate)
        # dp-accounting rounds its own losses up by at most half an interval a step.
        error = 5e-5 * math.sqrt(len(noises)) + 1e-4
        assert exact - error <= account.trained <= exact * (1 + 1e-3) + 1e-3


def test_a_whole_scheduled_plan_is_stated_and_counted() -> None:
    chosen = scheduled("fixed-plan")
    noises = [chosen.noise_of(place) for place, stage in enumerate(FALLING) for _ in range(stage.rounds)]
    exact = losses(noises, chosen.sampling_rate)
    budget, _, _ = played(chosen, ["settle", "cancel", "restart", "full"])
    assert exact - 1e-3 <= budget.accounts[0].epsilon() <= exact + 2e-3
    # A round of the first stage more than there are: no plan has it.
    (account,) = budget.accounts
    for _ in range(2):
        account.charge(None, publishes=False, stage=0)
    assert math.isinf(account.epsilon())


def test_more_noise_first_costs_the_same_as_more_noise_last() -> None:
    forward, backward = (
        FixedPlanLimit(chosen, chosen.limits[0]).trained
        for chosen in (scheduled("fixed-plan"), scheduled("fixed-plan", stages=FALLING[::-1]))
    )
    assert forward == pytest.approx(backward, rel=1e-8)
    equal = replace(scheduled("fixed-plan"), noise_schedule=None)
    assert forward < FixedPlanLimit(equal, equal.limits[0]).trained


@pytest.mark.parametrize("rule", ["fixed-plan", "renyi-order"])
def test_only_at_one_order_the_stages_add_different_amounts(rule: Enforcement) -> None:
    (found,) = forecast(scheduled(rule), tight=False).limits
    assert found.further_round == 0.0 if rule == "fixed-plan" else math.isnan(found.further_round)
