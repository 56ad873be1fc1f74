"""Log-moments of the privacy loss, φ(λ) = λ·D_{λ+1}, of Gaussian noise with Poisson sampling.

φ(λ, d; q, s) = log Σ_k C(λ+1,k) q^k (1−q)^{λ+1−k} exp((k²−k) d²/2s²)   (Triastcyn & Faltings 2020, Theorem 3,
c^L before the expectation over data). With equal-variance Gaussians it bounds both directions (Mironov, Talwar &
Zhang 2019, Theorem 5). Everything is evaluated for φ itself, not 1 + something: tiny costs keep their digits.

For many records at once there is a table in d², read by chords. φ is convex in t = d²/s², so a chord never lies below
it. For integer λ it is a log-sum-exp of lines. For real α = λ+1 > 1 let v(y, t) = log E (1−q+q e^{y+B_t−t/2})^α.
g = ∂v/∂t obeys g_t = g_yy/2 + (v_y − 1/2) g_y and h = g_t the same equation with the source g_y² ≥ 0. At t = 0, with
w = q e^y/(1−q+q e^y), g = α(α−1)w²/2 and h = α(α−1)w²(1−w)(1 + (2α−3)w)/2 ≥ 0: by the maximum principle h stays ≥ 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.errors import InvalidArgument
from accounting.values import FloatArray, check_array, check_choice, check_positive, check_rate, orders_or_alphas

_functions = cast(Any, _special)

Values = float | Sequence[float] | npt.NDArray[np.floating]
Direction = Literal["forward", "printed"]

# Rounding errors of the sums below stay under 1e-10 relative for orders up to 1e4. This covers them ten times over.
INFLATION = 1e-9
# Beyond, ln Γ(n) ≈ n ln n carries n ln n · 2⁻⁵² of absolute error into every weight.
_INFLATION_PER_ORDER = 1e-15
# Numbers in the largest temporary array: 16 MiB.
_CHUNK = 1 << 21
# Used where α|x| < 1/4: each term is less than a quarter of the one before, so the 30th is below 2⁻⁵⁶ of the first.
_SERIES_TERMS = 30
_LARGEST_EXPONENT = 700.0
# In a sum over a binomial law. At larger orders sampling is not credited.
MOST_TERMS = 2**20

# From this many distances on a table is worth building.
_TABLE_ABOVE = 8192
# At a chord's middle. Its gap to a convex function is concave, hence at most twice as wide anywhere: within 1e-2.
_TOLERANCE = 4e-3
_START = 256
# Halvings of a chord. Where they are not enough it still bounds φ, only less tightly.
_ROUNDS = 8
_BLOCK = 1 << 16


def log_moment(
    order: Values | None = None,
    distance: Values = (),
    *,
    alpha: Values | None = None,
    noise_std: float,
    sampling_rate: float,
    direction: Direction = "forward",
    method: Literal["auto", "exact", "table"] = "auto",
) -> FloatArray:
    """φ(λ, d): λ times the Rényi divergence of order λ+1 that one noised step costs, rounded up.

    order          λ ≥ 1e-6, integer or real, or a strictly increasing array of them
    alpha          the same as Rényi orders α = λ + 1. One of the two is given
    distance       L2 norm ≥ 0 of what one record (or client) adds to the noised sum
    noise_std      standard deviation s of the noise, on the scale of `distance`
    sampling_rate  Poisson rate q in [0, 1]
    direction      "printed": max(c^L, c^R) as printed in Theorem 3 (integer λ), for study. It grows like q, not q²
    method         "table": rounded up to a chord of a table in d². "auto" takes it above 8,192 distances

    Returns a float64 array of shape np.shape(order) + np.shape(distance).

    Guarantees: never below the exact value. Above it by less than 1e-6 relative ("exact"), 1e-2 ("table").
    Edge cases: q = 0 or d = 0 costs exactly 0. An overflowing cost is inf. Raises InvalidArgument for NaN, infinity,
    negative numbers, -0.0, q > 1, s ≤ 0, λ ≤ 0.

    >>> round(float(log_moment(8, 1.0, noise_std=2.0, sampling_rate=0.1)), 3)
    0.128
    >>> log_moment([2, 8], [0.1, 0.5, 1.0], noise_std=2.0, sampling_rate=0.1).shape
    (2, 3)
    >>> round(float(log_moment(alpha=9, distance=1.0, noise_std=2.0, sampling_rate=0.1)), 3)
    0.128
    """
    checked_orders = orders_or_alphas(order, alpha, ("order", "alpha"))
    orders = np.atleast_1d(checked_orders)
    distances = check_array("distance", distance, shape=None)
    std = check_positive("noise_std", noise_std)
    rate = check_rate("sampling_rate", sampling_rate)
    check_choice("direction", direction, ("forward", "printed"))
    check_choice("method", method, ("auto", "exact", "table"))
    if direction == "printed" and bool((orders != np.floor(orders)).any()):
        raise InvalidArgument("order", "the printed directions are binomial sums: integer orders only")
    with np.errstate(over="ignore", under="ignore"):
        ratio = distances.ravel() / std
        if method == "table" or (method == "auto" and direction == "forward" and distances.size > _TABLE_ABOVE):
            values = tabulated(orders, ratio, rate)
        else:
            values = exact_moments(orders, ratio, rate, direction)
    return values.reshape(checked_orders.shape + np.shape(distance))


def replace_one_moment(
    order: Values | None = None,
    distance: Values = (),
    *,
    alpha: Values | None = None,
    noise_std: float,
    sampling_rate: float,
) -> FloatArray:
    """log(1 − q + q e^{λ(λ+1)d²/2s²}): the cost when one record is exchanged for another, by joint convexity.

    `distance` is the norm of the difference between the two contributions (≤ 2C for clipped ones). Shapes, errors
    and rounding as in log_moment. Any λ > 0.

    >>> round(float(replace_one_moment(8, 1.0, noise_std=2.0, sampling_rate=0.1)), 3)
    6.699
    """
    full = log_moment(order, distance, alpha=alpha, noise_std=noise_std, sampling_rate=1.0, method="exact")
    rate = check_rate("sampling_rate", sampling_rate)
    return sampled_bound(full, rate)


def sampled_bound(log_moments: FloatArray, rate: float) -> FloatArray:
    """log(1 − q + q e^{φ}), rounded up: takes part with probability q, unseen (joint convexity of e^{λD})."""
    if rate == 0:
        return np.zeros_like(log_moments)
    with np.errstate(over="ignore"):
        # Two forms: the second loses the digits of a small φ, the first overflows at a large one.
        small = np.log1p(rate * np.expm1(np.minimum(log_moments, 1.0)))
        large = log_moments + np.log(rate + (1 - rate) * np.exp(-log_moments))
    return np.where(log_moments < 1, small, large) * (1 + INFLATION)


def exact_moments(orders: FloatArray, ratio: FloatArray, rate: float, direction: Direction = "forward") -> FloatArray:
    """φ, shape (orders, records), for distances in units of the noise, from sums or integrals. Rounded up."""
    values = np.zeros((orders.size, ratio.size))
    charged = ratio > 0
    if rate == 0 or not charged.any():
        return values
    points = ratio[charged]
    if rate == 1:
        values[:, charged] = unsampled_moments(orders[:, None], points)
        return values
    raw = np.empty((orders.size, points.size))
    # Beyond, a sum has too many terms. Without sampling it costs more, and no statement is read there.
    far = orders > MOST_TERMS
    raw[far] = np.multiply.outer(orders[far] * (orders[far] + 1), points**2 / 2)
    whole = (orders == np.floor(orders)) & ~far
    trials = orders[whole].astype(np.int64)
    raw[whole] = _binomial(trials + 1, points, rate, shift=-1)
    if direction == "printed":
        raw[whole] = np.maximum(raw[whole], _binomial(trials, points, rate, shift=1))
    for row in np.flatnonzero(~whole & ~far):
        raw[row] = _quadrature(float(orders[row]), points, rate)
    values[:, charged] = _upwards(orders[:, None], raw)
    return values


def unsampled_moments(orders: FloatArray, ratio: FloatArray | float) -> FloatArray:
    """Return λ(λ+1)r²/2 at a distance of r > 0 deviations, rounded up: the cost of a record that is in every step.

    Mironov 2017, Proposition 7. The two are broadcast against each other.
    """
    return _upwards(orders, orders * (orders + 1) * (ratio * ratio / 2))


def _upwards(orders: FloatArray, raw: FloatArray) -> FloatArray:
    inflation = np.maximum(INFLATION, _INFLATION_PER_ORDER * orders * np.log1p(orders))
    # A relative margin does nothing for a cost that underflowed to 0. One step up does.
    return np.nextafter(raw * (1 + inflation), np.inf)


def _binomial(trials: npt.NDArray[np.int64], ratio: FloatArray, rate: float, *, shift: int) -> FloatArray:
    """log E_{k ~ Bin(n, q)} exp((k² + shift·k) r²/2) for every n in `trials`: shift −1 is c^L, +1 is c^R."""
    out = np.zeros((trials.size, ratio.size))
    if trials.size == 0:
        return out
    # k = 0 (and k = 1 for c^L) has exponent 0 and drops out of E e^… − 1.
    first = 2 if shift < 0 else 1
    k = np.arange(first, int(trials.max()) + 1)
    growth = (k * k + shift * k) / 2.0
    weights = [log_binomial(int(n), rate)[first:] for n in trials]
    rows = max(1, _CHUNK // growth.size)
    for start in range(0, ratio.size, rows):
        block = slice(start, start + rows)
        # Once for the largest order, read by all: the exponentials are what takes the time.
        terms = log_expm1(np.multiply.outer(ratio[block] ** 2, growth))
        for row, weight in enumerate(weights):
            out[row, block] = np.logaddexp(0.0, log_sum(terms[:, : weight.size] + weight))
    return out


def _quadrature(lam: float, ratio: FloatArray, rate: float) -> FloatArray:
    """log E_{z~N(0,1)} (1 − q + q e^{rz − r²/2})^{λ+1} for real λ > 0, by the trapezoidal rule in the log domain.

    The integrand is analytic for |Im z| < π/r, so the rule converges like e^{−2πy/h} in any strip y < π/r (Trefethen
    & Weideman 2014, Theorem 5.1). The step below puts that under e^{−45}.
    """
    strip = np.minimum(6.0, np.pi / (2 * ratio))
    alpha = lam + 1
    # e^{−z²/2} grows by e^{y²/2} towards the edge y of the strip. The step pays for that too.
    step = 2 * np.pi * strip / (45 + strip**2 / 2)
    # From 13 deviations below 0 to 13 above αr, the peak of e^{αrz − z²/2}: outside is less than e^{−84}.
    with np.errstate(over="ignore"):
        nodes = np.ceil((26 + alpha * ratio) / step) + 1
    out = np.full_like(ratio, np.inf)
    order = np.argsort(nodes)
    # A cost this large (α²r²/2 nats) decides nothing. The closed form without sampling bounds it.
    feasible = nodes[order] <= 4 * _CHUNK
    huge = order[~feasible]
    out[huge] = alpha * lam * ratio[huge] ** 2 / 2
    order = order[feasible]
    start = 0
    while start < order.size:
        rows = max(1, min(order.size - start, int(_CHUNK // nodes[order[start]])))
        # Again, for the last row of the block: it has the most nodes, and all rows get as many.
        rows = max(1, min(rows, int(_CHUNK // nodes[order[start + rows - 1]])))
        block = order[start : start + rows]
        r, h = ratio[block, None], step[block, None]
        z = h * np.arange(int(nodes[block[-1]])) - 13.0
        logs = _log_excess(lam, r * z - r * r / 2, rate) - z * z / 2
        out[block] = np.logaddexp(0.0, log_sum(logs) + np.log(h[:, 0] / np.sqrt(2 * np.pi)))
        start += rows
    return out


def _log_excess(lam: float, u: FloatArray, rate: float) -> FloatArray:
    """log[(1+x)^α − 1 − αx], α = λ + 1, for x = q(e^u − 1).

    The linear part has mean zero, and without it there is no cancellation. In λ, not α − 1, which at λ = 1e-6 has lost
    six
    digits: (1+x)^α − 1 − αx = (1+x)(e^{λ ln(1+x)} − 1) − λx.
    """
    alpha = lam + 1
    # Beyond e^700 floats end, and x + 1 = x long before.
    x = rate * np.expm1(np.minimum(u, _LARGEST_EXPONENT))
    log_x = np.where(u > _LARGEST_EXPONENT, u + np.log(rate), np.log(np.maximum(np.abs(x), 1e-300)))
    log_grown = np.where(u > _LARGEST_EXPONENT, log_x, np.log1p(x))
    growth = alpha * log_grown
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        series = np.ones_like(x)
        for k in range(_SERIES_TERMS, 1, -1):
            series = 1 + series * x * (alpha - k) / (k + 1)
        small = 2 * np.log(np.abs(x)) + np.log(alpha * lam / 2 * series)
        middle = np.log((1 + x) * np.expm1(np.minimum(lam * log_grown, 30.0)) - lam * x)
        linear = np.exp(np.log(alpha) + log_x - growth)
        large = growth + np.log1p(-np.exp(-growth) - linear)
    # (1+x)^α − 1 − αx cancels for small x, where the series does not, and overflows for large, where logs do not.
    near = np.abs(x) * alpha < 0.25
    return np.where(near, small, np.where(growth < 30, middle, large))


def tabulated(orders: FloatArray, ratio: FloatArray, rate: float) -> FloatArray:
    """φ at every order for every distance in units of the noise. Shape (orders, records)."""
    top = float(ratio.max())
    out = np.empty((orders.size, ratio.size))
    if top == 0 or rate == 0:
        out.fill(0.0)
        return out
    # The table is in d², which would under- or overflow.
    if not 1e-100 < top < 1e100:
        return exact_moments(orders, ratio, rate)
    # A power of two, so that an accounting sample whose largest norm moves a little keeps its table.
    nodes, values, slopes = _table(tuple(orders.tolist()), float(2.0 ** np.ceil(np.log2(top))), rate)
    offset, scratch = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, ratio.size, _BLOCK):
        t = np.square(ratio[start : start + _BLOCK])
        index = np.clip(np.searchsorted(nodes, t, side="right") - 1, 0, nodes.size - 2)
        offset, scratch = offset[: t.size], scratch[: t.size]
        np.subtract(t, nodes.take(index), out=offset)
        for row in range(orders.size):
            part = out[row, start : start + _BLOCK]
            # mode="clip" because "raise" makes numpy buffer the output
            slopes[row].take(index, out=part, mode="clip")
            part *= offset
            part += values[row].take(index, out=scratch, mode="clip")
    return out


@lru_cache(maxsize=32)
def _table(orders: tuple[float, ...], top: float, rate: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes in t from 0 to top², φ at the left end of each chord, and each chord's slope.

    Chords are halved until none lies more than the tolerance above φ at its middle.
    """

    def moments(t: FloatArray) -> FloatArray:
        return exact_moments(np.array(orders), np.sqrt(t), rate)

    # Below this node every order is linear in t to well under the tolerance.
    first = _TOLERANCE / (4 * (1 + orders[-1]) ** 2)
    start = np.geomspace(min(first, top**2 / 2), top**2, _START)
    # geomspace may end a hair below, and a distance past the last node has no chord.
    start[-1] = top**2
    nodes = np.concatenate([[0.0], start])
    values = moments(nodes)
    for _ in range(_ROUNDS):
        middle = (nodes[:-1] + nodes[1:]) / 2
        chord = (values[:, :-1] + values[:, 1:]) / 2
        exact = moments(middle)
        with np.errstate(invalid="ignore"):
            split = (chord > exact * (1 + _TOLERANCE)).any(axis=0)
        if not split.any():
            break
        places = np.flatnonzero(split) + 1
        nodes = np.insert(nodes, places, middle[split])
        values = np.insert(values, places, exact[:, split], axis=1)
    with np.errstate(invalid="ignore"):
        slopes = np.diff(values) / np.diff(nodes)
    # An infinite end makes an infinite chord. The factor covers the rounding of the chord itself.
    slopes = np.where(np.isfinite(slopes), slopes * (1 + 1e-12), np.inf)
    return nodes, values[:, :-1] * (1 + 1e-12), slopes


def log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x − 1) for x ≥ 0 without overflow."""
    with np.errstate(divide="ignore"):
        return np.where(x > 30, x + np.log1p(-np.exp(-np.maximum(x, 30))), np.log(np.expm1(np.minimum(x, 30))))


def log_sum(terms: FloatArray) -> FloatArray:
    """log Σ e^terms over the last axis. +inf stays +inf."""
    top = terms.max(axis=-1, keepdims=True)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        return np.log(np.exp(terms - finite).sum(axis=-1)) + finite[..., 0]


def log_binomial(trials: int, rate: float) -> FloatArray:
    """Log-probabilities of Binomial(trials, rate), 0 < rate < 1."""
    k = np.arange(trials + 1)
    choose = log_gamma(np.array(trials + 1)) - log_gamma(k + 1) - log_gamma(trials - k + 1)
    return choose + k * np.log(rate) + (trials - k) * np.log1p(-rate)


def log_gamma(x: FloatArray | npt.NDArray[np.integer]) -> FloatArray:
    """ln Γ(x) for x > 0."""
    return np.asarray(_functions.gammaln(x), dtype=np.float64)
