"""What is forecast is what the budget then does, and an independent library agrees."""

from __future__ import annotations

import dataclasses
import json

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accounting import HistogramRelease, Plan, forecast, tightest
from accounting.budget.budget import Budget
from accounting.plan.report import CumulativeMoments, DistanceHistogram, JointReport
from tests.accounting.budget.plans import DELTA, client_plan, plan
from tests.accounting.budget.test_feasibility import CLIENTS_AVERAGE, CLIENTS_BOUND

POOLED = {"steps_per_round": 1, "honest_survivors": 3}
JOINT = {**POOLED, "scheme": "joint", "client_clip_norm": 1.0, "noise_multiplier": 6.0, "max_steps": 60}
NOISED = {"disclosure": "noised", "release": HistogramRelease(40.0, 7)}
ADAPTIVE = dataclasses.replace(plan().bayesian, adversary="adaptive")
PLANS = {
    "parallel, classical": plan(definitions=("classical",)),
    "parallel, few steps": plan(definitions=("classical",), max_steps=9),
    "parallel, plain": plan(),
    "parallel, at-end": plan(disclosure="at-end"),
    "parallel, adaptive": plan(bayesian=ADAPTIVE),
    "parallel, noised": plan(**NOISED),
    "sequential": plan(**POOLED, scheme="sequential", noise_multiplier=1.0),
    "client, plain": client_plan(noise_multiplier=4.0),
    "client, at-end": client_plan(noise_multiplier=4.0, disclosure="at-end"),
    "client, noised": client_plan(
        noise_multiplier=4.0, **NOISED, bayesian=dataclasses.replace(client_plan().bayesian, estimator="betting")
    ),
    "joint": plan(**JOINT, limits=(*plan().limits, CLIENTS_BOUND, CLIENTS_AVERAGE)),
}
PLANS |= {
    "classical, fixed plan": tightest(plan(definitions=("classical",), max_steps=30)),
    "classical, all records": tightest(plan(definitions=("classical",), sampling_rate=1.0, noise_multiplier=8.0)),
    "parallel, fixed plan": tightest(plan(max_steps=30)),
    "client, sum of squares": tightest(client_plan(noise_multiplier=4.0)),
    "joint, both rules": tightest(PLANS["joint"]),
}


def ended(budget: Budget, report: object = None) -> Budget:
    """After every round that it lets begin."""
    while budget.authorise().is_allowed:
        budget.reserve(budget.last_round + 1)
        budget.settle(budget.last_round, report)  # type: ignore[arg-type]
    return budget


@pytest.mark.slow_cases("client, at-end", "client, noised", "client, sum of squares")
@pytest.mark.parametrize("name", PLANS)
def test_at_the_worst_a_study_goes_as_forecast(name: str) -> None:
    found, budget = forecast(PLANS[name], tight=False), ended(Budget(PLANS[name]))
    assert found.rounds == budget.charged_rounds > 0
    stopped = budget.authorise()
    assert found.reason == stopped.reason
    if stopped.limit is not None:
        assert stopped.limit in [(one.level, one.definition) for one in found.stopped_by]
    shown = [one for one in budget.statements(whole=False) if one["epsilon"] is not None]
    for one, account, stated in zip(found.limits, budget.accounts, shown, strict=True):
        if one.limit.definition == "classical":
            assert one.enforced == account.stated(account.epsilon()) == stated["spent"] == one.epsilon
        else:
            assert account.epsilon() <= one.enforced <= account.limit.epsilon
            assert one.enforced == pytest.approx(account.epsilon(), rel=1e-6)
            assert stated["spent"] <= one.epsilon


@pytest.mark.slow_cases("client, at-end", "client, plain", "client, sum of squares")
@pytest.mark.parametrize("name", [name for name in PLANS if "classical" not in name and "few" not in name])
def test_where_the_data_cost_little_a_study_goes_on_and_never_passes_what_was_said(name: str) -> None:
    chosen = PLANS[name]
    found = forecast(chosen, tight=False)
    records = CumulativeMoments(0.01, (0.01,) * len(chosen.bayesian.orders), complete=True)
    counts = (40, *[0] * 63)
    clients = DistanceHistogram(counts) if chosen.release is None else DistanceHistogram(counts, 40, 40.0)
    report = {"client": clients, "joint": JointReport(clients, records)}.get(chosen.scheme, records)
    budget = ended(Budget(chosen), report)
    assert found.rounds <= budget.charged_rounds <= found.at_most_rounds
    shown = [one["spent"] for one in budget.statements(whole=False) if one["epsilon"] is not None]
    assert all(spent <= one.at_most for spent, one in zip(shown, found.limits, strict=True))


def test_a_limit_of_patients_may_end_a_study_later_than_at_the_worst() -> None:
    chosen = plan()
    found = forecast(chosen, tight=False)
    assert found.rounds < found.at_most_rounds
    quiet = CumulativeMoments(0.01, (0.01, 0.01, 0.01), complete=True)
    assert ended(Budget(chosen), quiet).charged_rounds == found.at_most_rounds


def event_of(chosen: Plan, steps: int) -> dp_accounting.DpEvent:
    step = chosen.mechanism(chosen.limits[0].level)
    noise = dp_accounting.GaussianDpEvent(step.noise_multiplier)
    return dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(step.sampling_rate, noise), steps)


@pytest.mark.quick("30.0")
@pytest.mark.parametrize("order", [2.0, 8.0, 30.0])
def test_epsilon_is_that_of_dp_accounting(order: float) -> None:
    chosen = plan(definitions=("classical",), classical_order=order, max_steps=200, epsilon={"classical": 400.0})
    found = forecast(chosen)
    renyi = RdpAccountant(orders=[order + 1])
    renyi.compose(event_of(chosen, 200))
    theirs = renyi.get_epsilon(DELTA)
    assert theirs <= found.limits[0].enforced <= theirs * (1 + 3e-9)
    losses = PLDAccountant(value_discretization_interval=1e-4)
    losses.compose(event_of(chosen, 200))
    ((name, stated),) = found.limits[0].reports
    assert name == "privacy-loss distribution"
    # Theirs is an upper bound, too: the discretisation of both is the difference.
    assert losses.get_epsilon(DELTA) * (1 - 2e-3) <= stated.epsilon <= found.limits[0].enforced


def test_the_first_round_is_the_fixed_term_and_a_little() -> None:
    (one,) = forecast(plan(definitions=("classical",)), tight=False).limits
    # (ln(1/δ) − ln(λ+1))/λ − ln(1 + 1/λ), at λ = 8.
    assert one.fixed_term == pytest.approx((11.512925465 - 2.197224577) / 8 - 0.117783036, rel=1e-8)
    assert 0 < one.first_round - one.fixed_term == pytest.approx(one.further_round, rel=1e-6)


def test_a_plan_whose_first_round_overspends_has_no_round() -> None:
    found = forecast(plan(noise_multiplier=0.2), tight=True)
    assert (found.rounds, found.reason) == (0, "budget-exhausted")
    assert all((one.enforced, one.reports) == (0.0, ()) for one in found.limits)


def test_a_sample_cannot_show_less_than_its_size_allows() -> None:
    """What is forecast as the least is below every estimate, here of records that cost nothing."""
    chosen = plan(max_steps=100, classical_order=12.0, epsilon={"bayesian": 6.0, "classical": 8.0})
    few, many = (forecast(chosen, records=n, tight=False).limits for n in (100, 100_000))
    bayesian = next(i for i, one in enumerate(few) if one.limit.definition == "bayesian")
    assert few[bayesian].epsilon >= few[bayesian].least > many[bayesian].least > 0
    assert all(one.least is None for i, one in enumerate(few) if i != bayesian)
    assert forecast(chosen, tight=False).limits[bayesian].least is None


@pytest.mark.parametrize("name", PLANS)
def test_a_forecast_is_json(name: str) -> None:
    said = json.loads(json.dumps(forecast(PLANS[name], tight=False).to_dict(), allow_nan=False))
    assert len(said["limits"]) == len(PLANS[name].limits)
