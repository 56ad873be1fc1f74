"""What is solved for is kept in every round, and a little less would not be, at any order."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import HistogramRelease, Unreachable, best_orders, forecast, least_epsilon, least_noise, most_rounds
from accounting.budget.solve import ORDERS
from accounting.units import Definition
from tests.accounting.budget.plans import client_plan, plan
from tests.accounting.budget.test_forecast import PLANS


def reached(chosen) -> int:
    return forecast(chosen, tight=False).rounds


@pytest.mark.quick("parallel, classical")
@pytest.mark.parametrize("name", PLANS)
def test_the_least_noise_lets_all_rounds_begin_and_half_a_percent_less_does_not(name: str) -> None:
    found = least_noise(PLANS[name])
    assert reached(found) == found.rounds == PLANS[name].rounds
    assert float(f"{found.noise_multiplier:.4g}") == found.noise_multiplier
    less = dataclasses.replace(found, noise_multiplier=found.noise_multiplier * 0.995)
    assert reached(best_orders(less)) < found.rounds


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(0.5, 10.0),
    rate=st.floats(0.01, 1.0),
    steps=st.integers(1, 3000),
    log_delta=st.floats(-8.0, -3.0),
)
def test_so_it_is_for_any_study(epsilon: float, rate: float, steps: int, log_delta: float) -> None:
    chosen = plan(definitions=("classical",), steps_per_round=1, max_steps=steps, sampling_rate=rate)
    limit = dataclasses.replace(chosen.limits[0], epsilon=epsilon, delta=10**log_delta)
    found = least_noise(dataclasses.replace(chosen, limits=(limit,)))
    assert reached(found) == steps
    less = dataclasses.replace(found, noise_multiplier=found.noise_multiplier * 0.995)
    for order in ORDERS[::7]:
        assert reached(dataclasses.replace(less, classical_order=order)) < steps


@pytest.mark.quick("client, noised")
@pytest.mark.parametrize("name", ["parallel, plain", "client, noised", "joint"])
def test_the_most_rounds_fit_and_one_more_does_not(name: str) -> None:
    found = most_rounds(PLANS[name])
    assert reached(found) == found.rounds
    longer = dataclasses.replace(found, max_steps=found.max_steps + found.steps_per_round)
    assert reached(best_orders(longer)) == found.rounds


@pytest.mark.parametrize("name", ["parallel, classical", "parallel, adaptive", "client, plain", "joint"])
def test_the_least_epsilon_is_enough_and_a_little_less_is_not(name: str) -> None:
    found = least_epsilon(PLANS[name])
    assert reached(found) == found.rounds == PLANS[name].rounds
    for place, limit in enumerate(found.limits):
        less = [*found.limits]
        less[place] = dataclasses.replace(limit, epsilon=limit.epsilon * 0.998)
        assert reached(dataclasses.replace(found, limits=tuple(less))) < found.rounds


@pytest.mark.quick("changes2")
@pytest.mark.parametrize("changes", [{}, {"noise_multiplier": 0.9, "sampling_rate": 0.01}, {"sampling_rate": 1.0}])
def test_no_order_lets_more_rounds_begin_than_the_best(changes) -> None:
    chosen = plan(definitions=("classical",), max_steps=100_000, **changes)
    most = reached(best_orders(chosen))
    others = [reached(dataclasses.replace(chosen, classical_order=order)) for order in ORDERS if order < 1000]
    assert most == max(others)


def test_the_orders_of_the_statement_stay_and_only_what_was_asked_for_changes() -> None:
    chosen = plan()
    found = least_noise(chosen)
    assert found.bayesian.orders == chosen.bayesian.orders
    changed = {
        field.name for field in dataclasses.fields(found) if getattr(found, field.name) != getattr(chosen, field.name)
    }
    assert changed == {"noise_multiplier", "classical_order", "bayesian"}


@pytest.mark.slow
def test_a_limit_that_is_left_out_must_bear_one_round_only() -> None:
    chosen = plan(epsilon={"bayesian": 1.0, "classical": 6.0})
    both, classical = least_noise(chosen), least_noise(chosen, {Definition.CLASSICAL})
    assert classical.noise_multiplier < both.noise_multiplier
    found = forecast(classical, tight=False)
    assert 1 <= found.rounds < found.at_most_rounds == chosen.rounds


def test_what_no_noise_reaches_is_named_with_what_to_change() -> None:
    told = client_plan(disclosure="noised", release=HistogramRelease(2.0, 1))
    with pytest.raises(Unreachable, match=r"limit at level client, ε = .*raise their noise") as refused:
        least_noise(told)
    assert "300 rounds with any noise multiplier" in str(refused.value)


def test_what_this_noise_does_not_reach_is_named_with_the_order_and_what_to_change() -> None:
    little = plan(definitions=("classical",), noise_multiplier=0.05, sampling_rate=1.0)
    for search in (most_rounds, best_orders):
        with pytest.raises(
            Unreachable, match=r"one round with noise multiplier 0.05, not even at order .*--solve noise"
        ):
            search(little)
