"""(ε, δ) from moments against published tables, exact Gaussian curves and the papers' own numbers."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom, norm

from accounting import (
    InvalidArgument,
    attack_success,
    delta_from_moments,
    epsilon_delta_curve,
    epsilon_from_moments,
    group,
    largest_moment,
    log_moment,
    percentile_delta,
    population_fraction,
    posterior_bounds,
)
from accounting.mechanisms.conversion import spendable_delta, takes_noise_as_exact

INTEGERS = np.arange(1.0, 257.0)
WORKLOADS = [
    # noise multiplier, rate, steps, δ, RDP improved, Chernoff (computed with independent code)
    (1.1, 256 / 60000, 14062, 1e-5, 2.5970, 3.0091),
    (0.7, 512 / 50000, 10000, 1e-5, 17.146, 18.533),
    (1.0, 0.1, 300, 1e-3, 10.633, 12.019),
    (2.0, 0.01, 300, 1e-5, 0.3720, 0.5052),
    (4.0, 1.0, 100, 1e-6, 15.328, 16.283),
]


@pytest.mark.parametrize(("std", "rate", "steps", "delta", "improved", "chernoff"), WORKLOADS)
def test_reference_workloads(
    std: float, rate: float, steps: int, delta: float, improved: float, chernoff: float
) -> None:
    moments = steps * log_moment(INTEGERS, 1.0, noise_std=std, sampling_rate=rate)
    assert epsilon_from_moments(INTEGERS, moments, delta)[0] == pytest.approx(improved, rel=1e-4)
    plain = epsilon_from_moments(INTEGERS, moments, delta, conversion="chernoff")[0]
    assert plain == pytest.approx(chernoff, rel=1e-4)


def test_the_printed_maximum_of_both_directions_is_useless_at_small_rates() -> None:
    # ε = 3.0 becomes 82: the printed reverse direction is first order in q.
    moments = 14062 * log_moment(INTEGERS, 1.0, noise_std=1.1, sampling_rate=256 / 60000, direction="printed")
    assert epsilon_from_moments(INTEGERS, moments, 1e-5, conversion="chernoff")[0] == pytest.approx(82.4, abs=0.1)


def test_one_trial_too_few_reports_less_than_the_truth() -> None:
    # Binomial(λ) for Binomial(λ+1): 9.3 by Chernoff where the loss distribution itself needs 14.740.
    orders = np.arange(2.0, 12.0)
    moments = []
    for order in orders.astype(int):
        k = np.arange(order + 1)
        moments.append(10000 * np.log(binom.pmf(k, order, 512 / 50000) @ np.exp((k * k - k) / (2 * 0.7**2))))
    wrong, _ = epsilon_from_moments(orders, moments, 1e-5, conversion="chernoff")
    assert wrong == pytest.approx(9.27, abs=0.01)
    ours = 10000 * log_moment(INTEGERS[:20], 1.0, noise_std=0.7, sampling_rate=512 / 50000)
    assert epsilon_from_moments(INTEGERS[:20], ours, 1e-5)[0] > 14.740


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Exact δ of one Gaussian release of sensitivity mu (Balle & Wang 2018, Theorem 8)."""
    below = norm.logcdf(-mu / 2 - epsilon / mu)
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + below))


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_never_below_the_exact_gaussian_curve(mu: float, delta: float) -> None:
    orders = np.geomspace(0.05, 500, 400)
    moments = log_moment(orders, mu, noise_std=1.0, sampling_rate=1.0)
    for conversion in ("improved", "chernoff"):
        epsilon, order = epsilon_from_moments(orders, moments, delta, conversion=conversion)
        assert gaussian_delta(epsilon, mu) <= delta
        assert order in orders
        again, _ = delta_from_moments(orders, moments, epsilon, conversion=conversion)
        assert again == pytest.approx(delta, rel=1e-9)
        assert again <= delta * (1 + 1e-9)
    assert gaussian_delta(epsilon_from_moments(orders, moments, delta)[0], mu) > delta / 30


def test_the_constant_is_the_pointwise_supremum() -> None:
    # c_λ is the largest of (1 − e^{−t})e^{−λt}: (1 − e^{ε−L})₊ ≤ c_λ e^{λ(L−ε)}.
    t = np.linspace(0, 50, 500001)
    for lam in (0.1, 1.0, 7.0):
        supremum = float(np.max(-np.expm1(-t) * np.exp(-lam * t)))
        # λε − ln c + ln β at ε = 0, β = e^−1
        ours = -1.0 - largest_moment(lam, 0.0, math.exp(-1.0))
        assert ours == pytest.approx(math.log(supremum), abs=1e-6)


def test_the_largest_moment_spends_exactly_epsilon() -> None:
    for conversion in ("improved", "chernoff"):
        most = largest_moment(8.0, 2.0, 1e-5, conversion=conversion)
        assert epsilon_from_moments(8.0, most, 1e-5, conversion=conversion)[0] == pytest.approx(2.0, rel=1e-12)


def test_no_charge_is_no_loss_and_infinite_orders_drop_out() -> None:
    assert epsilon_from_moments([1, 2], [0.0, 0.0], 1e-5)[0] == 0.0
    assert delta_from_moments([1, 2], [0.0, 0.0], 0.0)[0] == 0.0
    alone = epsilon_from_moments(1.0, 3.0, 1e-5)
    assert epsilon_from_moments([1, 2], [3.0, math.inf], 1e-5) == alone
    assert epsilon_from_moments([1, 2], [math.inf, math.inf], 1e-5)[0] == math.inf
    assert epsilon_from_moments(50, 1e-9, 0.9)[0] == 0.0


def test_the_curve_charges_the_failure_probability() -> None:
    orders, moments = np.arange(1.0, 33.0), np.arange(1.0, 33.0) * 0.1
    curve = epsilon_delta_curve(orders, moments, [1e-6, 1e-5, 1e-4], estimator_failure_probability=2e-6)
    assert curve[0] == (math.inf, 1e-6)
    assert curve[1][0] == epsilon_from_moments(orders, moments, 8e-6)[0]
    assert curve[1][0] > curve[2][0]


def test_the_papers_attack_success() -> None:
    # Triastcyn & Faltings 2020, section 3: 88 %, 99.33 %, 99.995 %.
    assert round(attack_success(2.0), 2) == 0.88
    assert round(attack_success(5.0), 4) == 0.9933
    assert round(attack_success(10.0), 5) == 0.99995
    assert attack_success(0.0) == 0.5
    assert attack_success(math.inf) == 1.0
    assert attack_success(0.0, 0.1) == pytest.approx(0.55)


def test_attack_success_is_the_best_test_between_two_laws() -> None:
    # The (ε, δ) pair with the most distinguishable laws: certain with δ, else odds e^ε.
    epsilon, delta = 1.3, 0.05
    p = [delta, (1 - delta) * math.e**epsilon / (1 + math.e**epsilon), (1 - delta) / (1 + math.e**epsilon), 0.0]
    q = p[::-1]
    best = sum(max(a, b) for a, b in zip(p, q, strict=True)) / 2
    assert attack_success(epsilon, delta) == pytest.approx(best, rel=1e-12)


def test_the_thesis_percentile_example() -> None:
    # (1, 1e-8) on average: 99.9 % of the population enjoys (1, 1e-5)-DP (thesis, section 7.4.2).
    assert population_fraction(1e-8, 1e-5) == pytest.approx(0.999, abs=1e-12)
    assert percentile_delta(1e-8, 0.999) == pytest.approx(1e-5, rel=1e-9)
    assert 1 - population_fraction(1e-8, 1e-5) ** 1000 == pytest.approx(0.632, abs=5e-4)
    assert population_fraction(1e-8, 1e-5, directions=2) == pytest.approx(0.998, abs=1e-12)
    assert population_fraction(1e-3, 1e-5) == 0.0
    assert percentile_delta(0.5, 0.999) == 1.0


def test_posterior_bounds_follow_from_bayes() -> None:
    low, high = posterior_bounds(0.3, 1.1)
    odds = 0.3 / 0.7
    assert low == pytest.approx(odds * math.exp(-1.1) / (1 + odds * math.exp(-1.1)), rel=1e-12)
    assert high == pytest.approx(odds * math.exp(1.1) / (1 + odds * math.exp(1.1)), rel=1e-12)
    assert posterior_bounds(0.3, 0.0) == pytest.approx((0.3, 0.3))
    assert posterior_bounds(0.0, math.inf) == (0.0, 0.0)
    assert posterior_bounds(0.5, math.inf) == (0.0, 1.0)


def test_groups() -> None:
    epsilon, delta = group(0.5, 1e-9, 3)
    assert epsilon == 1.5
    assert delta == pytest.approx(3 * math.exp(1.5) * 1e-9, rel=1e-12)
    assert group(1.0, 1e-5, 100) == (100.0, 1.0)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("orders", lambda: epsilon_from_moments([2, 1], [1.0, 1.0], 1e-5)),
        ("orders", lambda: epsilon_from_moments([0.0], [1.0], 1e-5)),
        ("log_moments", lambda: epsilon_from_moments([1, 2], [1.0], 1e-5)),
        ("log_moments", lambda: epsilon_from_moments(1, float("nan"), 1e-5)),
        ("log_moments", lambda: epsilon_from_moments(1, -1e-9, 1e-5)),
        ("delta", lambda: epsilon_from_moments(1, 1.0, 0.0)),
        ("delta", lambda: epsilon_from_moments(1, 1.0, 1.0)),
        ("conversion", lambda: epsilon_from_moments(1, 1.0, 0.1, conversion="best")),
        ("epsilon", lambda: delta_from_moments(1, 1.0, -1.0)),
        ("epsilon", lambda: attack_success(float("nan"))),
        ("epsilon", lambda: posterior_bounds(0.5, -1.0)),
        ("prior", lambda: posterior_bounds(1.5, 1.0)),
        ("fraction", lambda: percentile_delta(1e-8, 1.0)),
        ("directions", lambda: population_fraction(1e-8, 1e-5, directions=3)),
        ("size", lambda: group(1.0, 1e-5, 0)),
        (
            "estimator_failure_probability",
            lambda: epsilon_delta_curve(1, 1.0, [1e-5], estimator_failure_probability=-1.0),
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(name: str, call: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("delta", "limit", "releases"),
    [(1e-5, 8.0, 100), (1e-3, 30.0, 300), (1e-9, 30.0, 10**6), (1e-12, 20.0, 10**7), (1e-5, 60.0, 1000)],
)
def test_the_samplers_cut_tails_are_part_of_delta(delta: float, limit: float, releases: int) -> None:
    """At the ε reported, exact δ and n(1 + e^ε)·10⁻⁴⁰ together stay within δ, in 60 digits."""
    kept = spendable_delta(delta, limit, releases)
    assert not takes_noise_as_exact(delta, limit, releases)
    for order in (1.5, 4.0, 32.0):
        # The largest moment that the limit admits, and a small one.
        for moment in (largest_moment(order, limit, kept), 0.01 * limit):
            epsilon = epsilon_from_moments([order], [moment], kept)[0]
            with mp.workdps(60):
                lam, spent = mp.mpf(order), mp.mpf(epsilon)
                constant = (lam / (lam + 1)) ** lam / (lam + 1)
                true = constant * mp.exp(mp.mpf(moment) - lam * spent)
                assert true + releases * (1 + mp.exp(spent)) * mp.mpf("1e-40") <= mp.mpf(delta)


def test_so_large_an_epsilon_takes_the_noise_as_exact() -> None:
    assert takes_noise_as_exact(1e-5, 80.0, 100)
    assert spendable_delta(1e-5, 80.0, 100) == 1e-5
    assert spendable_delta(1e-5, 1e6, 100) == 1e-5
    assert takes_noise_as_exact(1e-5, 72.0, 100, estimator_failure_probability=9.99e-6)
    assert not takes_noise_as_exact(1e-5, 72.0, 100)
