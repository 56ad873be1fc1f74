"""φ against 30-digit sums and integrals, closed forms, quadrature of the reverse direction, and by the table."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from accounting import (
    BayesianSpec,
    ClassicalAccountant,
    FilterSpec,
    InvalidArgument,
    Odometer,
    calibrate_noise,
    epsilon_from_moments,
    largest_moment,
    log_moment,
    replace_one_moment,
)
from accounting.mechanisms.divergence import exact_moments, log_binomial, log_expm1, log_sum, tabulated

mp.mp.dps = 30


def exact(order: float, distance: float, std: float, rate: float) -> mp.mpf:
    """log E_Q (P/Q)^{λ+1}: the binomial sum at integer orders, else the integral over the Gaussian."""
    lam, d, s, q = (mp.mpf(float(v)) for v in (order, distance, std, rate))
    c, alpha = d / s, lam + 1
    if order == int(order):
        n = int(alpha)
        return mp.log(
            mp.fsum(
                mp.binomial(n, k) * q**k * (1 - q) ** (n - k) * mp.exp((k * k - k) * c * c / 2) for k in range(n + 1)
            )
        )

    def integrand(z: mp.mpf) -> mp.mpf:
        return ((1 - q + q * mp.exp(c * z - c * c / 2)) ** alpha) * mp.npdf(z)

    points = sorted([mp.mpf(-14), mp.mpf(-7), mp.mpf(0), alpha * c / 2, alpha * c + 7, alpha * c + 14])
    return mp.log(mp.quad(integrand, points, maxdegree=8))


def random_grid(seed: int, count: int) -> list[tuple[float, float, float, float]]:
    rng = np.random.default_rng(seed)
    orders = [float(rng.integers(1, 65)) if i % 2 else float(np.exp(rng.uniform(-3, 3.5))) for i in range(count)]
    return [
        (order, *(float(np.exp(rng.uniform(*span))) for span in ((-6, 1), (-1, 2), (-7, -0.01)))) for order in orders
    ]


@pytest.mark.quick("2")
@pytest.mark.parametrize("seed", range(4))
def test_never_below_the_exact_value_and_never_a_millionth_above(seed: int) -> None:
    for order, distance, std, rate in random_grid(seed, 20):
        truth = exact(order, distance, std, rate)
        ours = mp.mpf(float(log_moment(order, distance, noise_std=std, sampling_rate=rate)))
        assert truth <= ours <= truth * (1 + mp.mpf("1e-6")), (order, distance, std, rate)


@pytest.mark.slow_cases(
    "0.0001-12.0-1.0-0.001",
    "0.5-40.0-1.0-1e-17",
    "1.3e-06-8.0-1.0-0.3",
    "150.5-2.0-1.0-0.9",
    "2.5-9.0-1.0-1e-14",
    "40.5-6.0-1.0-1e-10",
)
@pytest.mark.parametrize(
    ("order", "distance", "std", "rate"),
    [
        (0.0717, 7.717, 1.668, 0.02715),
        (0.0226, 18.07, 4.029, 0.1746),
        (0.00745, 6.27e-5, 19.6, 1.2e-7),
        (2.5, 9.0, 1.0, 1e-14),
        (0.5, 40.0, 1.0, 1e-17),
        (150.5, 2.0, 1.0, 0.9),
        (40.5, 6.0, 1.0, 1e-10),
        # The smallest orders that are accepted: in α − 1 they have lost up to ten digits.
        (1e-6, 1.0, 1.1, 0.01),
        (1e-6, 3.0, 1.0, 0.5),
        (1.3e-6, 8.0, 1.0, 0.3),
        (1e-5, 0.01, 1.0, 0.99),
        (1e-4, 12.0, 1.0, 1e-3),
    ],
)
def test_extreme_real_orders(order: float, distance: float, std: float, rate: float) -> None:
    """Against the trapezoidal sum of the excess (1+x)^α − 1 − αx in 50 digits, step a third of the nearest pole."""
    with mp.workdps(50):
        alpha, c, q = mp.mpf(order) + 1, mp.mpf(distance) / mp.mpf(std), mp.mpf(rate)
        step = mp.mpf(min(0.2, 0.3 / float(c)))

        def excess(z: mp.mpf) -> mp.mpf:
            x = q * mp.expm1(c * z - c * c / 2)
            return ((1 + x) ** alpha - 1 - alpha * x) * mp.npdf(z)

        nodes = range(int((float(alpha * c) + 32) / float(step)))
        truth = mp.log1p(step * mp.fsum(excess(step * k - 16) for k in nodes))
        ours = mp.mpf(float(log_moment(order, distance, noise_std=std, sampling_rate=rate)))
        assert truth <= ours <= truth * (1 + mp.mpf("1e-6"))


@pytest.mark.parametrize("order", [3, 2.5, 0.01])
def test_tiny_costs_keep_their_digits(order: float) -> None:
    # To first order in d²: φ = (λ+1)λ/2 · q² d²/s².
    ours = float(log_moment(order, 1e-9, noise_std=1.0, sampling_rate=1e-3))
    assert ours == pytest.approx((order + 1) * order / 2 * 1e-24, rel=1e-6)


@pytest.mark.parametrize("order", [1, 7, 0.3, 12.5])
def test_without_sampling_it_is_the_gaussian_closed_form(order: float) -> None:
    ours = float(log_moment(order, 1.5, noise_std=2.0, sampling_rate=1.0))
    truth = order * (order + 1) * 1.5**2 / (2 * 2.0**2)
    assert truth <= ours <= truth * (1 + 1e-8)


def test_the_index_is_lambda_plus_one() -> None:
    # At λ = 1 the moment is log(1 + q²(e^{d²/s²} − 1)); one trial fewer would give 0.
    q, ratio = 0.2, 0.8
    truth = np.log1p(q * q * np.expm1(ratio**2))
    assert float(log_moment(1, 0.8, noise_std=1.0, sampling_rate=q)) == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize(("order", "std", "rate"), [(2, 0.7, 0.1), (8, 1.0, 0.01), (32, 2.0, 0.3), (3.5, 1.0, 0.2)])
def test_forward_bounds_the_reverse_direction(order: float, std: float, rate: float) -> None:
    def integrand(z: mp.mpf) -> mp.mpf:
        ratio = 1 - rate + rate * mp.exp(z / std - mp.mpf(1) / (2 * std**2))
        return ratio ** (-order) * mp.npdf(z)

    reverse = mp.log(mp.quad(integrand, [-40, -20, -10, 0, 10, 20, 40]))
    assert float(log_moment(order, 1.0, noise_std=std, sampling_rate=rate)) >= float(reverse)


def test_the_printed_reverse_bound_is_first_order_in_the_rate() -> None:
    small, smaller = (
        float(log_moment(4, 1.0, noise_std=1.0, sampling_rate=q, direction="printed")) for q in (1e-4, 1e-5)
    )
    assert small / smaller == pytest.approx(10, rel=0.01)
    forward = [float(log_moment(4, 1.0, noise_std=1.0, sampling_rate=q)) for q in (1e-4, 1e-5)]
    assert forward[0] / forward[1] == pytest.approx(100, rel=0.01)


def test_replace_one_is_joint_convexity() -> None:
    q, lam, ratio = 0.1, 6, 0.5
    truth = np.log(1 - q + q * np.exp(lam * (lam + 1) * ratio**2 / 2))
    ours = float(replace_one_moment(lam, 1.0, noise_std=2.0, sampling_rate=q))
    assert truth <= ours <= truth * (1 + 1e-6)


@pytest.mark.parametrize("order", [9.9e-7, 7e-9, 1e-16, 5e-324])
def test_orders_too_small_to_be_bounded_are_refused_everywhere(order: float) -> None:
    """At 7e-9 the cost came out 1.8e-8 too low, at 1e-16 as NaN, which is above no limit."""
    plan = {"delta": 1e-5, "estimator_failure_probability": 1e-6}
    calls: list[tuple[str, Callable[[], object]]] = [
        ("order", lambda: log_moment(order, 1.0, noise_std=1.0, sampling_rate=0.01)),
        ("order", lambda: log_moment([order, 2.0], 1.0, noise_std=1.0, sampling_rate=0.01)),
        ("order", lambda: replace_one_moment(order, 1.0, noise_std=1.0, sampling_rate=0.01)),
        ("orders", lambda: epsilon_from_moments([order, 1.0], [0.1, 0.2], 1e-5)),
        ("order", lambda: largest_moment(order, 1.0, 1e-5)),
        ("order", lambda: ClassicalAccountant(delta=1e-5, method="rdp", order=order)),
        ("order", lambda: Odometer(delta=1e-5, order=order)),
        ("order", lambda: FilterSpec(order=order, delta=1e-5, limit_epsilon=1e30)),
        ("order", lambda: calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.01, steps=1, order=order)),
        ("orders", lambda: BayesianSpec(orders=[order], max_steps=1, **plan)),
        ("filter_order", lambda: BayesianSpec(orders=[1.0], filter_order=order, max_steps=1, **plan)),
    ]
    for name, call in calls:
        with pytest.raises(InvalidArgument) as refused:
            call()
        assert refused.value.argument == name


def test_zero_distance_and_zero_rate_cost_exactly_nothing() -> None:
    assert log_moment([1, 2.5], [0.0, 1.0], noise_std=1.0, sampling_rate=0.0).tolist() == [[0, 0], [0, 0]]
    assert float(log_moment(2, 0.0, noise_std=1.0, sampling_rate=0.5)) == 0.0


def test_an_overflowing_cost_is_infinite_not_an_error() -> None:
    assert float(log_moment(4, 1e200, noise_std=1e-200, sampling_rate=0.1)) == np.inf
    assert float(log_moment(4.5, 1e200, noise_std=1e-200, sampling_rate=0.1)) == np.inf


def test_shapes_are_orders_then_distances() -> None:
    assert log_moment([1, 2], [[0.1, 0.2, 0.3]], noise_std=1.0, sampling_rate=0.1).shape == (2, 1, 3)
    assert log_moment(1, [0.1, 0.2], noise_std=1.0, sampling_rate=0.1).shape == (2,)
    assert log_moment(1, 0.1, noise_std=1.0, sampling_rate=0.1).shape == ()


@settings(max_examples=50, deadline=None)
@given(
    order=st.one_of(st.integers(1, 40), st.floats(0.1, 20)),
    distance=st.floats(1e-3, 3),
    std=st.floats(0.5, 10),
    rate=st.floats(1e-3, 0.9),
)
def test_monotone_in_distance_noise_rate_and_order(order: float, distance: float, std: float, rate: float) -> None:
    def cost(o: float = order, d: float = distance, s: float = std, q: float = rate) -> float:
        return float(log_moment(o, d, noise_std=s, sampling_rate=q))

    base = cost()
    assert cost(d=distance * 1.1) > base
    assert cost(s=std * 1.1) < base
    assert cost(q=rate * 1.1) > base
    assert cost(o=order + 1) > base


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), -1.0, -0.0, "1", True, None])
@pytest.mark.parametrize("name", ["order", "distance", "noise_std", "sampling_rate"])
def test_bad_numbers_are_refused_by_name(name: str, bad: object) -> None:
    arguments: dict[str, object] = {"order": 2, "distance": 1.0, "noise_std": 1.0, "sampling_rate": 0.1} | {name: bad}
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        log_moment(arguments.pop("order"), arguments.pop("distance"), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("order", {"order": 0}),
        ("order", {"order": [2, 1]}),
        ("order", {"order": []}),
        ("order", {"order": 1.5, "direction": "printed"}),
        ("distance", {"distance": []}),
        ("noise_std", {"noise_std": 0.0}),
        ("sampling_rate", {"sampling_rate": 1.0000001}),
        ("direction", {"direction": "reverse"}),
    ],
)
def test_bad_arguments_are_refused_by_name(name: str, arguments: dict[str, object]) -> None:
    values: dict[str, object] = {"order": 2, "distance": 1.0, "noise_std": 1.0, "sampling_rate": 0.1} | arguments
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        log_moment(values.pop("order"), values.pop("distance"), **values)  # type: ignore[arg-type]


def integral(order: float, ratio: float, rate: float) -> float:
    """log E_Q (1 − q + q e^{rz − r²/2})^{λ+1} by adaptive quadrature."""

    def integrand(z: float) -> float:
        return math.exp((order + 1) * math.log1p(rate * math.expm1(ratio * z - ratio**2 / 2)) - z * z / 2)

    value = quad(integrand, -15, 40, limit=500, epsabs=0, epsrel=1e-11, points=[0, ratio, (order + 1) * ratio])[0]
    return math.log(value / math.sqrt(2 * math.pi))


@pytest.mark.parametrize("order", [0.3, 1.0, 2.5, 7.0])
@pytest.mark.parametrize(("ratio", "rate"), [(0.3, 0.1), (1.0, 0.01), (1.5, 0.5)])
def test_sum_and_integral_agree_with_another_quadrature_from_above(order: float, ratio: float, rate: float) -> None:
    exact = integral(order, ratio, rate)
    found = float(exact_moments(np.array([order]), np.array([ratio]), rate)[0, 0])
    assert exact * (1 - 1e-9) - 1e-12 <= found <= exact * (1 + 1e-6) + 1e-12


def test_the_sum_and_the_integral_meet_at_an_integer_order() -> None:
    """Integer orders are binomial sums, real ones integrals: no step where one takes over from the other."""
    below, at, above = exact_moments(np.array([4 - 1e-7, 4.0, 4 + 1e-7]), np.array([0.7]), 0.2)[:, 0]
    assert below <= at * (1 + 1e-8)
    assert at <= above * (1 + 1e-8)
    assert above <= below * (1 + 1e-6)


def test_nothing_is_free_but_nothing() -> None:
    ratio = np.array([0.0, 1e-6])
    found = exact_moments(np.array([2.0, 2.5]), ratio, 0.3)
    assert (found[:, 0] == 0).all()
    assert (found[:, 1] > 0).all()
    assert (exact_moments(np.array([2.0, 2.5]), ratio, 0.0) == 0).all()


def test_the_printed_pair_is_never_below_the_forward_sum() -> None:
    orders, ratio = np.array([1.0, 2.0, 16.0]), np.array([0.1, 1.0, 3.0])
    assert (exact_moments(orders, ratio, 0.1, "printed") >= exact_moments(orders, ratio, 0.1)).all()


ORDERS = np.array([0.1, 1.0, 2.5, 8.0, 31.4, 64.0])


@pytest.mark.slow_cases("0.3-0.0001")
@pytest.mark.parametrize(("std", "rate"), [(1.1, 0.01), (0.5, 0.2), (4.0, 0.9), (1.0, 1.0), (0.3, 1e-4)])
def test_never_below_the_exact_path_and_close_above(std: float, rate: float) -> None:
    distances = np.concatenate([np.random.default_rng(0).beta(0.3, 2.0, 400), [0.0, 1e-12, 1.0]])
    exact = log_moment(ORDERS, distances, noise_std=std, sampling_rate=rate, method="exact")
    table = log_moment(ORDERS, distances, noise_std=std, sampling_rate=rate, method="table")
    assert (table >= exact).all()
    assert (table <= exact * 1.01).all()


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.7])
def test_cost_is_convex_in_the_squared_distance_at_integer_and_real_orders(rate: float) -> None:
    squares = np.linspace(0, 4, 200)
    values = log_moment(ORDERS, np.sqrt(squares), noise_std=1.0, sampling_rate=rate, method="exact")
    # A second difference below zero by more than the inflation of 1e-9 would break the chords.
    assert (np.diff(values, n=2, axis=1) >= -4e-9 * values[:, 1:-1]).all()


def test_many_records_take_the_table_and_few_the_exact_path() -> None:
    distances = np.random.default_rng(1).uniform(0, 1, 8193)
    table = tabulated(np.array([4.0]), distances / 1.3, 0.1)
    assert log_moment([4.0], distances, noise_std=1.3, sampling_rate=0.1).tolist() == table.tolist()
    exact = log_moment([4.0], distances[:8192], noise_std=1.3, sampling_rate=0.1, method="exact")
    assert log_moment([4.0], distances[:8192], noise_std=1.3, sampling_rate=0.1).tolist() == exact.tolist()


def test_infinite_costs_stay_infinite() -> None:
    distances = np.concatenate([np.full(5, 1e-3), [1e160]])
    found = log_moment(2, distances, noise_std=1.0, sampling_rate=0.1, method="table")
    assert found[-1] == np.inf
    assert np.isfinite(found[:-1]).all()


@pytest.mark.parametrize("x", [1e-300, 1e-12, 0.5, 29.9, 30.1, 700.0, 1e4])
def test_log_expm1_keeps_its_digits(x: float) -> None:
    with mp.workdps(30):
        exact = float(mp.log(mp.expm1(mp.mpf(x))))
    assert float(log_expm1(np.array([x]))[0]) == pytest.approx(exact, rel=1e-12)


def test_log_expm1_of_zero_is_minus_infinity() -> None:
    assert log_expm1(np.array([0.0]))[0] == -math.inf


def test_log_sum_neither_overflows_nor_forgets_infinity() -> None:
    found = log_sum(np.array([[1000.0, 1000.0], [-1000.0, -1000.0], [0.0, math.inf], [-math.inf, -math.inf]]))
    assert found[:2] == pytest.approx([1000 + math.log(2), -1000 + math.log(2)], rel=1e-15)
    assert found[2:].tolist() == [math.inf, -math.inf]


def test_log_binomial_is_the_law() -> None:
    found = log_binomial(40, 0.03)
    assert found == pytest.approx(stats.binom.logpmf(np.arange(41), 40, 0.03), rel=1e-10)
    assert math.fsum(np.exp(found).tolist()) == pytest.approx(1.0, rel=1e-12)
