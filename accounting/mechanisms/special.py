"""The special functions in use, with types: scipy ships none."""

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
