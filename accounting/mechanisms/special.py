"""The special functions in use, with types: scipy ships none. And sums of exponentials by their logarithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy import optimize as _optimize  # pyright: ignore[reportMissingTypeStubs]
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.units import FloatArray

_functions = cast(Any, _special)
_roots = cast(Any, _optimize)


def log_gamma(x: FloatArray | npt.NDArray[np.integer]) -> FloatArray:
    """ln Γ(x) for x > 0."""
    return np.asarray(_functions.gammaln(x), dtype=np.float64)


def beta_quantile(a: FloatArray, b: FloatArray, probability: float) -> FloatArray:
    """x with P(Beta(a, b) ≤ x) = probability."""
    return np.asarray(_functions.betaincinv(a, b, probability), dtype=np.float64)


def beta_upper_quantile(a: float, b: float, probability: float) -> float:
    """x with P(Beta(a, b) > x) = probability; small probabilities keep their digits."""
    return float(_functions.betainccinv(a, b, probability))


def student_upper_quantile(freedom: float, probability: float) -> float:
    """x with P(t > x) = probability; small probabilities keep their digits."""
    return -float(_functions.stdtrit(freedom, probability))


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """A zero between two arguments of opposite sign (Brent)."""
    return float(_roots.brentq(function, low, high, xtol=1e-9, rtol=1e-12))


def log_normal_cdf(x: FloatArray) -> FloatArray:
    """ln Φ(x); far in the lower tail it keeps its digits."""
    return np.asarray(_functions.log_ndtr(x), dtype=np.float64)


def normal_cdf(x: FloatArray) -> FloatArray:
    """Φ(x); relative precision in the lower tail."""
    return np.asarray(_functions.ndtr(x), dtype=np.float64)


def log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x − 1) for x ≥ 0 without overflow."""
    with np.errstate(divide="ignore"):
        return np.where(x > 30, x + np.log1p(-np.exp(-np.maximum(x, 30))), np.log(np.expm1(np.minimum(x, 30))))


def log_sum(terms: FloatArray) -> FloatArray:
    """log Σ e^terms over the last axis; +inf stays +inf."""
    top = terms.max(axis=-1, keepdims=True)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        return np.log(np.exp(terms - finite).sum(axis=-1)) + finite[..., 0]


def log_binomial(trials: int, rate: float) -> FloatArray:
    """Log-probabilities of Binomial(trials, rate), 0 < rate < 1."""
    k = np.arange(trials + 1)
    choose = log_gamma(np.array(trials + 1)) - log_gamma(k + 1) - log_gamma(trials - k + 1)
    return choose + k * np.log(rate) + (trials - k) * np.log1p(-rate)
