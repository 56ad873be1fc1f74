"""The chance of a right guess with equal odds, against closed forms in 40 digits and against dp-accounting."""

from __future__ import annotations

import math
import random
from typing import Any

import mpmath as mp
import pytest
from dp_accounting.pld import privacy_loss_distribution

from accounting.mechanisms.conversion import attack_success
from accounting.mechanisms.guessing import guess_chance, rounded_steps, rounding_error
from accounting.mechanisms.unsampled import Steps, unsampled_epsilon

# Nobody needs more digits of a chance.
CLOSE = 1e-6


def stated(noise: float, rate: float, count: int) -> float:
    return guess_chance([rounded_steps(noise, rate, count)], releases=count, lattice=rounding_error(count))


def right_at_rate_one(noise: float, count: int) -> Any:
    with mp.workdps(40):
        return mp.ncdf(mp.sqrt(count) / mp.mpf(noise) / 2)


def test_the_demonstration_states_60_4_percent() -> None:
    found = stated(10.43, 1.0, 30)
    assert math.ceil(1000 * found) / 10 == 60.4
    assert 0 <= found - right_at_rate_one(10.43, 30) < CLOSE
    # What stood there before.
    assert attack_success(2.0, 1e-4) > 0.88


@pytest.mark.parametrize("seed", range(100))
def test_at_rate_one_it_is_the_closed_form(seed: int) -> None:
    draw = random.Random(seed)
    noise, count = 10 ** draw.uniform(-1, 2.5), int(10 ** draw.uniform(0, 4))
    assert 0 <= stated(noise, 1.0, count) - right_at_rate_one(noise, count) < CLOSE


@pytest.mark.parametrize("seed", range(20))
def test_one_sampled_step_is_the_rate_times_the_unsampled_advantage(seed: int) -> None:
    draw = random.Random(seed)
    noise, rate = 10 ** draw.uniform(-0.3, 1.3), 10 ** draw.uniform(-4, -0.01)
    with mp.workdps(40):
        exact = (1 + mp.mpf(rate) * (2 * mp.ncdf(1 / mp.mpf(noise) / 2) - 1)) / 2
    assert 0 <= stated(noise, rate, 1) - exact < CLOSE


def by_dp_accounting(noise: float, rate: float, count: int) -> tuple[float, float]:
    """(never above the truth, close to it); the second from two grids, as its bound errs by the interval's square."""
    spread = rate * math.sqrt(math.expm1(noise**-2))
    interval = min(1e-3, spread / 25)

    def delta(width: float, *, pessimistic: bool) -> float:
        steps = privacy_loss_distribution.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            value_discretization_interval=width,
            use_connect_dots=pessimistic,
            pessimistic_estimate=pessimistic,
        )
        return float(steps.self_compose(count).get_delta_for_epsilon(0.0))

    coarse, fine = (delta(width, pessimistic=True) for width in (interval, interval / 2))
    return 0.5 + delta(interval / 2, pessimistic=False) / 2, 0.5 + (4 * fine - coarse) / 6


@pytest.mark.quick("0", "2", "3", "5", "6", "9")
@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 100))])
def test_sampled_plans_have_the_chance_that_dp_accounting_finds(seed: int) -> None:
    """What lies close may lie above the truth: tails that it cuts at each step count as infinite losses."""
    draw = random.Random(seed)
    noise, rate, count = 10 ** draw.uniform(-0.3, 1.3), 10 ** draw.uniform(-3, -0.05), int(10 ** draw.uniform(0, 3))
    found, (least, near) = stated(noise, rate, count), by_dp_accounting(noise, rate, count)
    assert least <= found
    assert abs(found - near) < CLOSE


def test_it_never_exceeds_what_one_point_of_the_curve_allows() -> None:
    for noise, count in ((10.43, 30), (1.0, 1), (3.0, 500)):
        steps = [Steps(noise, 1.0, count)]
        epsilon = unsampled_epsilon(steps, 1e-5, 1e6)
        assert stated(noise, 1.0, count) <= attack_success(epsilon, 1e-5)


def test_nothing_released_is_a_coin_and_errors_only_add() -> None:
    assert 0.5 <= guess_chance([], releases=0) < 0.5 + 1e-15
    assert guess_chance([], releases=0, lattice=0.01) == pytest.approx(0.51)
    assert guess_chance([Steps(0.06, 1.0, 100)], releases=1) == 1.0
