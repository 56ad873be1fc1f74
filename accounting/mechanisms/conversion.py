"""From log-moments to (ε, δ), and from (ε, δ) to sentences people can use."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import Values
from accounting.values import (
    FloatArray,
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_nonnegative,
    check_number,
    check_orders,
    order_or_alpha,
    orders_or_alphas,
    real_array,
    rounded_up,
)

Conversion = Literal["improved", "chernoff"]

# Total variation between what a noised sum of up to 10⁸ numbers draws and the exact discrete Gaussian: its cut tails.
SAMPLING_ERROR = 1e-40
# What a certificate says where that error is left out.
NOISE_AS_EXACT = "the noise is taken to be exact, whose cut tails an ε as large as this limit's would magnify"
_SMALLEST = math.nextafter(0.0, 1.0)


def epsilon_from_moments(
    orders: Values | None,
    log_moments: Values,
    delta: float,
    *,
    alphas: Values | None = None,
    conversion: Conversion = "improved",
) -> tuple[float, float]:
    """ε = min_λ [C(λ) + ln c_λ − ln δ]/λ and the order λ that gives it.

    "improved": c_λ = (1/(λ+1))(λ/(λ+1))^λ (Canonne, Kamath & Steinke 2020, Proposition 12: pointwise in the loss, so
    it holds under the expectation over x' too). "chernoff": c_λ = 1 (Triastcyn & Faltings 2020, Corollary 1).
    Subtract the estimator's failure probability from `delta` first. `alphas` = orders + 1 may be given in place of
    orders (None). The order that is returned is always λ.

    Edge cases: a log-moment of exactly 0 means no loss, ε = 0. Never negative. Infinite log-moments drop their order,
    and ε is inf when none is left.

    >>> epsilon, order = epsilon_from_moments([2, 8], [0.1, 0.9], 1e-5)
    >>> round(epsilon, 3), order
    (1.159, 8.0)
    """
    lams, moments = _curve(orders_or_alphas(orders, alphas), log_moments)
    target = check_delta(delta)
    epsilons = epsilons_of(lams, moments, target, conversion)
    # D = 0 at any order says that the two laws are equal. The others would still charge ln c_λ − ln δ.
    best = int(np.argmax(moments == 0)) if bool((moments == 0).any()) else int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])), float(lams[best])


def epsilons_of(lams: FloatArray, moments: FloatArray, delta: float, conversion: Conversion = "improved") -> FloatArray:
    """ε at each order by itself, shape (orders,), also where it is negative. The arguments are not checked again."""
    offset = _log_constant(lams, conversion)
    epsilons = (moments + offset - math.log(delta)) / lams
    # Three roundings of relative 2⁻⁵³ each, taken upwards.
    epsilons = epsilons + 4e-16 * (moments + np.abs(offset) - math.log(delta)) / lams
    return np.where(moments == 0, 0.0, epsilons)


def delta_from_moments(
    orders: Values | None,
    log_moments: Values,
    epsilon: float,
    *,
    alphas: Values | None = None,
    conversion: Conversion = "improved",
) -> tuple[float, float]:
    """δ = min_λ c_λ exp(C(λ) − λε), at most 1, and its order. The estimator's failure is the caller's to add.

    >>> delta, order = delta_from_moments([2, 8], [0.1, 0.9], 1.0)
    >>> round(delta, 6), order
    (3.6e-05, 8.0)
    """
    lams, moments = _curve(orders_or_alphas(orders, alphas), log_moments)
    target = check_nonnegative("epsilon", epsilon)
    logs = _log_deltas(lams, moments, target, conversion)
    best = int(np.argmin(logs))
    return float(deltas_of(lams, moments, target, conversion)[best]), float(lams[best])


def deltas_of(lams: FloatArray, moments: FloatArray, epsilon: float, conversion: Conversion = "improved") -> FloatArray:
    """δ at each order by itself, at most 1, shape (orders,). The arguments are not checked again."""
    # The factor is for the rounding of exp.
    logs = _log_deltas(lams, moments, epsilon, conversion)
    deltas = np.minimum(1.0, np.exp(np.minimum(0.0, logs)) * (1 + 1e-15))
    # What underflows is not nothing.
    return np.where(moments == 0, 0.0, np.maximum(deltas, _SMALLEST))


def _log_deltas(lams: FloatArray, moments: FloatArray, epsilon: float, conversion: Conversion) -> FloatArray:
    offset = _log_constant(lams, conversion)
    logs = moments + offset - lams * epsilon
    # The same roundings as of ε.
    logs = logs + 4e-16 * (moments + np.abs(offset) + lams * epsilon)
    return np.where(moments == 0, -np.inf, logs)


def spendable_delta(delta: float, epsilon: float, releases: int, estimator_failure_probability: float = 0.0) -> float:
    """Return δ less what the noise sampler's cut tails may add over `releases` noised sums and histograms: n(1 + e^ε)τ.

    P̃(S) ≤ P(S) + nτ ≤ e^ε Q(S) + δ + nτ ≤ e^ε Q̃(S) + δ + n(1 + e^ε)τ. An amount too small to change a float is
    covered by the rounding of ε. If ε is so large that most of δ − failure would go, δ is returned as it is: see
    `takes_noise_as_exact`.
    """
    if takes_noise_as_exact(delta, epsilon, releases, estimator_failure_probability):
        return delta
    return delta - sampling_slack(epsilon, releases)


def takes_noise_as_exact(
    delta: float, epsilon: float, releases: int, estimator_failure_probability: float = 0.0
) -> bool:
    """Whether ε is so large (65 and more) that a certificate must say that the noise is taken to be exact."""
    return sampling_slack(epsilon, releases) > (delta - estimator_failure_probability) / 2


def sampling_slack(epsilon: float, releases: int) -> float:
    """Return what the noise sampler's cut tails may add to δ over `releases` noised sums and histograms: n(1 +
    e^ε)τ."""
    # e^600 times the error is far above any δ already. e^710 would overflow.
    return releases * (1 + math.exp(min(epsilon, 600.0))) * SAMPLING_ERROR


def epsilon_delta_curve(
    orders: Values,
    log_moments: Values,
    deltas: Values,
    *,
    estimator_failure_probability: float = 0.0,
    conversion: Conversion = "improved",
) -> list[tuple[float, float]]:
    """(ε, δ) for every δ asked, or inf where δ does not exceed the estimator's failure probability.

    >>> curve = epsilon_delta_curve([2, 8], [0.1, 0.9], [1e-3, 1e-5])
    >>> [(round(epsilon, 3), delta) for epsilon, delta in curve]
    [(0.584, 0.001), (1.159, 1e-05)]
    """
    gamma = check_nonnegative("estimator_failure_probability", estimator_failure_probability)
    points: list[tuple[float, float]] = []
    for delta in check_array("deltas", deltas).tolist():
        beta = check_delta(delta, "deltas") - gamma
        # Nothing is left for the privacy loss: the estimate alone may fail that often.
        epsilon = math.inf if beta <= 0 else epsilon_from_moments(orders, log_moments, beta, conversion=conversion)[0]
        points.append((epsilon, delta))
    return points


def largest_moment(
    order: float | None, epsilon: float, beta: float, *, alpha: float | None = None, conversion: Conversion = "improved"
) -> float:
    """λε − ln c_λ + ln β, rounded down: the log-moment at which ε is spent. Negative when no charge at all fits.

    >>> round(largest_moment(8, 1.0, 1e-5), 3), round(largest_moment(8, 2.0, 1e-5), 3)
    (-0.373, 7.627)
    """
    lam = order_or_alpha(order, alpha)
    if lam is None:
        raise InvalidArgument("order", "is required, as itself or as alpha = order + 1")
    offset = float(_log_constant(np.array([lam]), conversion)[0])
    spendable, log_beta = lam * check_nonnegative("epsilon", epsilon), math.log(check_delta(beta, "beta"))
    return spendable - offset + log_beta - 1e-15 * (spendable + abs(offset) - log_beta)


def fixed_term(order: float, beta: float, *, conversion: Conversion = "improved") -> float:
    """(ln c_λ − ln β)/λ, at least 0: the ε that the first charge brings at a fixed order, however small it is.

    >>> round(fixed_term(4.0, 1e-5), 3), round(fixed_term(16.0, 1e-5), 3)
    (2.253, 0.482)
    """
    return epsilon_from_moments([order], [_SMALLEST], beta, conversion=conversion)[0]


def min_order(epsilon: float, beta: float, *, conversion: Conversion = "improved") -> float:
    """The least order λ, rounded up to 3 digits, at which enough noise keeps ε: below it the fixed term is too much.

    >>> min_order(1.0, 1e-5), min_order(8.0, 1e-5)
    (8.34, 1.25)
    """

    # It grows with λ: λε and −ln c_λ both do.
    def too_small(order: float) -> bool:
        return largest_moment(order, epsilon, beta, conversion=conversion) <= 0

    low, high = 1e-6, 1.0
    while too_small(high):
        low, high = high, 2 * high
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return rounded_up(high, 3)


def attack_success(epsilon: float, delta: float = 0.0) -> float:
    """Most a membership attacker with even odds can be right: (e^ε + δ)/(1 + e^ε).

    At δ = 0 this is P(A) = 1/(1 + e^{−ε}) (Triastcyn & Faltings 2020, eq. 1). ε = inf gives 1.

    >>> round(attack_success(1.0), 3), round(attack_success(1.0, 0.01), 3)
    (0.731, 0.734)
    """
    loss = _possibly_infinite(epsilon)
    slack = check_nonnegative("delta", delta)
    # In e^−ε: e^ε overflows for ε above 709, and ∞/∞ is NaN.
    tail = math.exp(-loss)
    return min(1.0, (1 + slack * tail) / (1 + tail))


def posterior_bounds(prior: float, epsilon: float) -> tuple[float, float]:
    """Lowest and highest belief after the release for one who believed `prior` before, under pure ε-DP.

    p/(e^ε + (1 − e^ε)p) and e^ε p/(1 + (e^ε − 1)p) (Danger 2022, section 2). A guarantee with δ > 0 holds this up to
    probability δ.

    >>> lowest, highest = posterior_bounds(0.1, 1.0)
    >>> round(lowest, 3), round(highest, 3)
    (0.039, 0.232)
    """
    belief = check_number("prior", prior)
    if not 0 <= belief <= 1:
        raise InvalidArgument("prior", f"must be in [0, 1], not {belief!r}")
    tail = math.exp(-_possibly_infinite(epsilon))
    # Certainty does not move. At ε = ∞ the quotients below would be 0/0.
    if belief in (0.0, 1.0):
        return belief, belief
    return belief * tail / (1 - belief + belief * tail), belief / (belief + tail * (1 - belief))


def population_fraction(delta: float, dp_delta: float, *, directions: int = 1) -> float:
    """The least fraction of the population that enjoys (ε, dp_delta)-DP, given (ε, delta) on average over it.

    1 − delta/dp_delta by Markov's inequality (Triastcyn & Faltings 2020, section 4.4.1), in each direction of the
    neighbouring relation. Directions=2 counts those protected in both.

    >>> round(population_fraction(1e-6, 1e-4), 3)
    0.99
    """
    average, single = check_delta(delta), check_delta(dp_delta, "dp_delta")
    return max(0.0, 1 - _directions(directions) * average / single)


def percentile_delta(delta: float, fraction: float, *, directions: int = 1) -> float:
    """δ₀ such that at least `fraction` of the population enjoys (ε, δ₀)-DP, given (ε, delta) on average. At most 1.

    >>> round(percentile_delta(1e-6, 0.99), 6)
    0.0001
    """
    average, share = check_delta(delta), check_nonnegative("fraction", fraction)
    if share >= 1:
        raise InvalidArgument("fraction", "must be < 1: an average says nothing about everybody")
    return min(1.0, _directions(directions) * average / (1 - share))


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """(kε, k e^{kε} δ) for k records (Triastcyn 2020, Proposition 5). δ at most 1.

    >>> epsilon, delta = group(0.5, 1e-6, 3)
    >>> round(epsilon, 3), round(delta, 7)
    (1.5, 1.34e-05)
    """
    k = check_count("size", size)
    loss, slack = _possibly_infinite(epsilon), check_delta(delta)
    # In logarithms: e^{kε} overflows where the answer is simply 1.
    log_delta = math.log(k) + k * loss + math.log(slack)
    return k * loss, math.exp(min(0.0, log_delta))


def _directions(number: int) -> int:
    if check_count("directions", number) > 2:
        raise InvalidArgument("directions", "must be 1 or 2")
    return number


def _curve(orders: Values, log_moments: Values) -> tuple[FloatArray, FloatArray]:
    lams = check_orders(np.atleast_1d(np.asarray(orders)))
    moments = np.atleast_1d(real_array("log_moments", log_moments))
    if moments.shape != lams.shape:
        raise InvalidArgument("log_moments", f"has shape {moments.shape}, orders {lams.shape}")
    if bool(np.isnan(moments).any()):
        raise InvalidArgument("log_moments", "holds NaN")
    if bool((moments < 0).any()):
        raise InvalidArgument("log_moments", "holds a negative value: λ times a divergence never is")
    return lams, moments


def _log_constant(lams: FloatArray, conversion: str) -> FloatArray:
    if check_choice("conversion", conversion, ("improved", "chernoff")) == "chernoff":
        return np.zeros_like(lams)
    return -np.log1p(lams) - lams * np.log1p(1 / lams)


def _possibly_infinite(epsilon: float) -> float:
    loss = check_number("epsilon", epsilon, finite=False)
    if loss < 0:
        raise InvalidArgument("epsilon", f"must be ≥ 0, not {loss!r}")
    return loss
