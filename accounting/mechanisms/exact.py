"""φ from sums and integrals, without a table: see `accounting.mechanisms.divergence` for the formula.

Everything is evaluated for φ itself, not 1 + something: tiny costs keep their digits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from accounting.mechanisms.special import log_binomial, log_expm1, log_sum
from accounting.units import FloatArray

Direction = Literal["forward", "printed"]

# Rounding errors of the sums below stay under 1e-10 relative for orders up to 1e4; this covers them ten times over.
INFLATION = 1e-9
# Beyond, ln Γ(n) ≈ n ln n carries n ln n · 2⁻⁵² of absolute error into every weight.
_INFLATION_PER_ORDER = 1e-15
_CHUNK = 1 << 21
_SERIES_TERMS = 30
_LARGEST_EXPONENT = 700.0


def exact_moments(orders: FloatArray, ratio: FloatArray, rate: float, direction: Direction = "forward") -> FloatArray:
    """φ, shape (orders, records), for distances in units of the noise, from sums or integrals; rounded up."""
    values = np.zeros((orders.size, ratio.size))
    charged = ratio > 0
    if rate == 0 or not charged.any():
        return values
    points = ratio[charged]
    if rate == 1:
        raw = np.multiply.outer(orders * (orders + 1), points**2 / 2)
    else:
        raw = np.empty((orders.size, points.size))
        whole = orders == np.floor(orders)
        trials = orders[whole].astype(np.int64)
        raw[whole] = _binomial(trials + 1, points, rate, shift=-1)
        if direction == "printed":
            raw[whole] = np.maximum(raw[whole], _binomial(trials, points, rate, shift=1))
        for row in np.flatnonzero(~whole):
            raw[row] = _quadrature(float(orders[row]) + 1, points, rate)
    inflation = np.maximum(INFLATION, _INFLATION_PER_ORDER * orders * np.log1p(orders))
    values[:, charged] = np.nextafter(raw * (1 + inflation[:, None]), np.inf)
    return values


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
        terms = log_expm1(np.multiply.outer(ratio[block] ** 2, growth))
        for row, weight in enumerate(weights):
            out[row, block] = np.logaddexp(0.0, log_sum(terms[:, : weight.size] + weight))
    return out


def _quadrature(alpha: float, ratio: FloatArray, rate: float) -> FloatArray:
    """log E_{z~N(0,1)} (1 − q + q e^{rz − r²/2})^α for real α > 1, by the trapezoidal rule in the log domain.

    The integrand is analytic for |Im z| < π/r, so the rule converges like e^{−2πy/h} in any strip y < π/r (Trefethen
    & Weideman 2014, Theorem 5.1); the step below puts that under e^{−45}.
    """
    strip = np.minimum(6.0, np.pi / (2 * ratio))
    step = 2 * np.pi * strip / (45 + strip**2 / 2)
    with np.errstate(over="ignore"):
        nodes = np.ceil((26 + alpha * ratio) / step) + 1
    out = np.full_like(ratio, np.inf)
    order = np.argsort(nodes)
    # A cost this large (α²r²/2 nats) decides nothing; the closed form without sampling bounds it.
    feasible = nodes[order] <= 4 * _CHUNK
    huge = order[~feasible]
    out[huge] = alpha * (alpha - 1) * ratio[huge] ** 2 / 2
    order = order[feasible]
    start = 0
    while start < order.size:
        rows = max(1, min(order.size - start, int(_CHUNK // nodes[order[start]])))
        rows = max(1, min(rows, int(_CHUNK // nodes[order[start + rows - 1]])))
        block = order[start : start + rows]
        r, h = ratio[block, None], step[block, None]
        z = h * np.arange(int(nodes[block[-1]])) - 13.0
        logs = _log_excess(alpha, r * z - r * r / 2, rate) - z * z / 2
        out[block] = np.logaddexp(0.0, log_sum(logs) + np.log(h[:, 0] / np.sqrt(2 * np.pi)))
        start += rows
    return out


def _log_excess(alpha: float, u: FloatArray, rate: float) -> FloatArray:
    """log[(1+x)^α − 1 − αx] for x = q(e^u − 1); the linear part has mean zero, and without it nothing cancels."""
    # Beyond e^700 floats end, and x + 1 = x long before.
    x = rate * np.expm1(np.minimum(u, _LARGEST_EXPONENT))
    log_x = np.where(u > _LARGEST_EXPONENT, u + np.log(rate), np.log(np.maximum(np.abs(x), 1e-300)))
    growth = alpha * np.where(u > _LARGEST_EXPONENT, log_x, np.log1p(x))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        series = np.ones_like(x)
        for k in range(_SERIES_TERMS, 1, -1):
            series = 1 + series * x * (alpha - k) / (k + 1)
        small = 2 * np.log(np.abs(x)) + np.log(alpha * (alpha - 1) / 2 * series)
        middle = np.log(np.expm1(np.minimum(growth, 30.0)) - alpha * x)
        linear = np.exp(np.log(alpha) + log_x - growth)
        large = growth + np.log1p(-np.exp(-growth) - linear)
    near = np.abs(x) * alpha < 0.25
    return np.where(near, small, np.where(growth < 30, middle, large))
