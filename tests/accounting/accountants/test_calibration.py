"""Planning: what was searched for is kept, and a little less would not be."""

from __future__ import annotations

import math
import re
from typing import Any

import dp_accounting
import mpmath
import pytest

from accounting import (
    ClassicalAccountant,
    InvalidArgument,
    Unreachable,
    calibrate_noise,
    most_steps,
    prospect,
    smallest_population,
)
from accounting.accountants.calibration import LEAST_NOISE, rdp_epsilon

WORKLOADS = [
    (1.1, 256 / 60000, 14062, 1e-5),
    (0.7, 512 / 50000, 10000, 1e-5),
    (1.0, 0.1, 300, 1e-3),
    (2.0, 0.01, 300, 1e-5),
    (4.0, 1.0, 100, 1e-6),
]


@pytest.mark.parametrize(("noise", "rate", "steps", "delta"), WORKLOADS)
def test_noise_is_enough_and_hardly_more(noise: float, rate: float, steps: int, delta: float) -> None:
    target = rdp_epsilon(noise, sampling_rate=rate, steps=steps, delta=delta)
    found = calibrate_noise(epsilon=target, delta=delta, sampling_rate=rate, steps=steps, method="rdp")
    assert noise * (1 - 1e-9) <= found <= noise * 1.002
    assert rdp_epsilon(found, sampling_rate=rate, steps=steps, delta=delta) <= target


@pytest.mark.slow
def test_noise_by_loss_distributions_and_at_a_fixed_order() -> None:
    plan = {"epsilon": 3.0, "delta": 1e-5, "sampling_rate": 0.02, "steps": 200}
    tight = calibrate_noise(**plan)  # type: ignore[arg-type]
    free, fixed = calibrate_noise(**plan, method="rdp"), calibrate_noise(**plan, order=20.0)  # type: ignore[arg-type]
    assert tight < free < fixed
    assert tight == calibrate_noise(**plan, method="pld")  # type: ignore[arg-type]
    assert rdp_epsilon(fixed, sampling_rate=0.02, steps=200, delta=1e-5, orders=[20.0]) <= 3.0


# ε, δ, an order that is too small for them
TOO_SMALL = [(1.0, 1e-5, 4.0), (0.1, 1e-6, 64.0), (3.0, 1e-9, 1.0), (8.0, 1e-5, 0.05), (2.0, 0.3, 0.01)]


@pytest.mark.parametrize(("epsilon", "delta", "order"), TOO_SMALL)
def test_an_order_that_is_too_small_comes_with_the_least_that_is_not(
    epsilon: float, delta: float, order: float
) -> None:
    def noise(at: float) -> float:
        return calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=0.5, steps=3, order=at)

    with pytest.raises(Unreachable, match=re.escape(f"order λ = {order!r}: the order must be at least")) as told:
        noise(order)
    named = float(re.findall(r"at least ([\d.e+-]+) ", str(told.value))[0])
    # What no noise can bring down, from its formula with 50 digits, is within ε from the least order on.
    with mpmath.workdps(50):

        def floor(at: float) -> mpmath.mpf:
            lam = mpmath.mpf(at)
            constant = lam * mpmath.log(lam) - (lam + 1) * mpmath.log(lam + 1)
            return (constant - mpmath.log(mpmath.mpf(delta))) / lam

        least = mpmath.findroot(lambda at: floor(at) - epsilon, (order, 1000 * order), solver="anderson", tol=1e-30)
        # Three digits, rounded up, and the tolerance of the search.
        assert least <= named <= least * 1.0102
        assert floor(named) < epsilon
    assert noise(named) > 0
    with pytest.raises(Unreachable):
        noise(float(least) * (1 - 1e-6))


def test_where_no_order_is_large_enough_nothing_is_named() -> None:
    with pytest.raises(Unreachable, match="nor at a larger order: raise epsilon or delta"):
        calibrate_noise(epsilon=1e-6, delta=1e-12, sampling_rate=1.0, steps=10, order=4.0)


def analytic(epsilon: float, delta: float) -> float:
    """The least noise of one unsampled step, from Balle and Wang 2018, Theorem 8, with 60 digits."""
    with mpmath.workdps(60):
        loss, bound = mpmath.mpf(epsilon), mpmath.mpf(delta)

        def too_much(noise: mpmath.mpf) -> bool:
            first, second = mpmath.ncdf(1 / (2 * noise) - loss * noise), mpmath.ncdf(-1 / (2 * noise) - loss * noise)
            return first - mpmath.exp(loss) * second > bound

        low, high = mpmath.mpf("1e-6"), mpmath.mpf("1e16")
        for _ in range(120):
            middle = mpmath.sqrt(low * high)
            low, high = (middle, high) if too_much(middle) else (low, middle)
        return float(high)


SMALL_AND_LARGE = [(epsilon, delta) for epsilon in (1e-4, 1e-3, 0.01, 0.1, 1.0, 50.0) for delta in (1e-12, 1e-5, 0.01)]


@pytest.mark.parametrize(("epsilon", "delta"), SMALL_AND_LARGE)
@pytest.mark.parametrize("steps", [1, 1000])
def test_the_noise_of_unsampled_steps_is_the_least_in_closed_form(epsilon: float, delta: float, steps: int) -> None:
    plan: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "sampling_rate": 1.0, "steps": steps}
    found, least = calibrate_noise(**plan, method="pld"), math.sqrt(steps) * analytic(epsilon, delta)
    # The tolerance of the search is 1e-3. What the discrete Gaussian may add is far below it.
    assert least <= found <= least * 1.0011


@pytest.mark.quick("1-0.1-1e-12", "1000-0.001-1e-05", "1000-0.01-1e-12", "1000-0.1-1e-05")
@pytest.mark.parametrize(("epsilon", "delta"), SMALL_AND_LARGE)
@pytest.mark.parametrize("steps", [1, 1000])
def test_by_moments_it_is_the_least_over_all_orders(epsilon: float, delta: float, steps: int) -> None:
    found = calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=steps, method="rdp")
    # λε − ln c_λ + ln δ ≥ T λ(λ+1)/2σ², at the λ that allows the least σ: from its formula with 50 digits.
    with mpmath.workdps(50):

        def needed(log_order: float) -> float:
            lam = mpmath.exp(log_order)
            room = lam * epsilon + (lam + 1) * mpmath.log(lam + 1) - lam * mpmath.log(lam) + mpmath.log(delta)
            return math.inf if room <= 0 else float(mpmath.sqrt(steps * lam * (lam + 1) / 2 / room))

        least = min(needed(place / 200) for place in range(-1000, 3000))
    # Orders of the accountant lie up to 4 % apart, around a flat minimum, beside the tolerance of 1e-3.
    assert least * (1 - 1e-6) <= found <= least * 1.003


@pytest.mark.quick("0.3-1.0-1e-06")
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-4, 1e-12), (0.01, 1e-5), (1.0, 1e-6)])
@pytest.mark.parametrize("rate", [1e-4, 0.3])
def test_one_sampled_step_has_a_closed_form_too(epsilon: float, delta: float, rate: float) -> None:
    found = calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=1, method="pld")
    # Li, Qardaji and Su 2012: (ε′, δ′) sampled at rate q is (ln(1 + q(e^ε′ − 1)), qδ′), exactly when one is removed.
    least = analytic(math.log1p(math.expm1(epsilon) / rate), delta / rate) if delta < rate else 0.0
    assert least * (1 - 1e-9) <= found
    assert found <= least * 1.0021 or delta > 0.1 * rate


# ε, δ, rate, steps
SAMPLED = [(1e-3, 1e-5, 0.01, 100), (0.01, 1e-6, 0.1, 100), (0.01, 1e-9, 0.001, 10_000), (0.0195, 1e-5, 0.5, 10)]


@pytest.mark.quick("pld-0.0195-1e-05-0.5-10")
@pytest.mark.parametrize(("epsilon", "delta", "rate", "steps"), SAMPLED)
@pytest.mark.parametrize("method", ["rdp", "pld"])
def test_small_epsilon_is_kept_by_an_independent_account(
    epsilon: float, delta: float, rate: float, steps: int, method: Any
) -> None:
    found = calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=steps, method=method)
    own = ClassicalAccountant(delta=delta, method=method)
    own.step(noise_multiplier=found, sampling_rate=rate, count=steps)
    assert own.epsilon() <= epsilon
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(found))
    # Fine against ε, and pessimistic: its ε is never below the true one.
    theirs = dp_accounting.pld.PLDAccountant(value_discretization_interval=epsilon / 2000)
    theirs.compose(event, steps)
    # Its grid of ε/2000 adds to each of the steps: what it says is an upper bound itself.
    assert theirs.get_epsilon(delta) <= epsilon * 1.01
    if method == "pld":
        less = dp_accounting.pld.PLDAccountant(value_discretization_interval=epsilon / 2000)
        less.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(0.99 * found)), steps)
        assert less.get_epsilon(delta) > epsilon


def test_a_rate_below_delta_needs_no_noise_and_an_impossible_one_names_what_is_reached() -> None:
    assert calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.0, steps=1) == LEAST_NOISE
    with pytest.raises(
        Unreachable, match=r"up to 2\^40 reaches epsilon = 1e-09: so much noise gives \d.*e-\d+\. Raise"
    ):
        calibrate_noise(epsilon=1e-9, delta=1e-12, sampling_rate=1.0, steps=10, method="rdp")


def test_noise_by_any_account() -> None:
    assert calibrate_noise(
        epsilon=1.0, delta=1e-5, sampling_rate=1.0, steps=1, account=lambda noise: 3 / noise
    ) == pytest.approx(3.0, rel=1e-3)
    with pytest.raises(Unreachable):
        calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=1.0, steps=1, account=lambda _: 2.0)


def test_most_steps_fit_and_one_more_does_not() -> None:
    def account(steps: int) -> float:
        return rdp_epsilon(2.0, sampling_rate=0.05, steps=steps, delta=1e-5)

    found = most_steps(epsilon=1.0, delta=1e-5, account=account)
    assert account(found) <= 1.0 < account(found + 1)
    assert most_steps(epsilon=1e-6, delta=1e-5, account=account) == 0
    assert most_steps(epsilon=1.0, delta=1e-5, account=lambda _: 0.5, at_most=1234) == 1234


def test_the_smallest_population_suffices_and_one_fewer_does_not() -> None:
    def spent(people: int) -> float:
        return rdp_epsilon(1.0, sampling_rate=30 / people, steps=500, delta=1e-6)

    found = smallest_population(epsilon=1.5, delta=1e-6, noise_multiplier=1.0, expected_batch=30, steps=500)
    assert spent(found) <= 1.5 < spent(found - 1)


def test_a_batch_that_needs_no_sampling_needs_only_itself() -> None:
    assert smallest_population(epsilon=50, delta=1e-6, noise_multiplier=5.0, expected_batch=9.5, steps=1) == 10


def test_no_population_may_be_enough() -> None:
    with pytest.raises(Unreachable):
        smallest_population(epsilon=0.1, delta=1e-6, noise_multiplier=0.5, expected_batch=100, steps=10, at_most=10_000)


@pytest.mark.parametrize(("noise", "rate", "steps", "delta"), WORKLOADS)
@pytest.mark.parametrize("samples", [100, 10_000, 100_000])
def test_certified_beats_renyi_on_none_of_the_workloads(
    noise: float, rate: float, steps: int, delta: float, samples: int
) -> None:
    reported = prospect(
        samples=samples,
        estimator_failure_probability=delta / 10,
        delta=delta,
        noise_multiplier=noise,
        sampling_rate=rate,
        steps=steps,
        adaptive=True,
    )
    assert not reported.worthwhile
    assert reported.log_moment_gain == pytest.approx(math.log(samples / math.log(10 / delta)), abs=0.1)


def test_certified_can_gain_with_enough_people() -> None:
    reported = prospect(
        samples=10**13,
        estimator_failure_probability=1e-4,
        delta=1e-3,
        noise_multiplier=1.0,
        sampling_rate=0.1,
        steps=300,
        adaptive=True,
    )
    assert reported.worthwhile


def test_the_bayesian_gain_is_real_at_a_thousand_samples() -> None:
    reported = prospect(
        samples=1000,
        estimator_failure_probability=1e-6,
        delta=1e-5,
        noise_multiplier=2.0,
        sampling_rate=0.1,
        steps=300,
        adaptive=False,
    )
    assert reported.best < reported.classical - 1
    assert reported.log_moment_gain == pytest.approx(4.3, abs=0.05)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("epsilon", lambda: calibrate_noise(epsilon=0.0, delta=1e-5, sampling_rate=0.1, steps=1)),
        ("delta", lambda: calibrate_noise(epsilon=1.0, delta=0.0, sampling_rate=0.1, steps=1)),
        ("sampling_rate", lambda: calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=1.1, steps=1)),
        ("steps", lambda: calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.1, steps=0)),
        ("method", lambda: calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.1, steps=1, method="gdp")),
        (
            "order",
            lambda: calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.1, steps=1, method="pld", order=2.0),
        ),
        ("at_most", lambda: most_steps(epsilon=1.0, delta=1e-5, account=float, at_most=0)),
        (
            "expected_batch",
            lambda: smallest_population(epsilon=1, delta=1e-5, noise_multiplier=1, expected_batch=0.0, steps=1),
        ),
        (
            "estimator_failure_probability",
            lambda: prospect(
                samples=9,
                estimator_failure_probability=1e-5,
                delta=1e-5,
                noise_multiplier=1,
                sampling_rate=0.1,
                steps=1,
                adaptive=False,
            ),
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(name: str, call: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        call()  # type: ignore[operator]
