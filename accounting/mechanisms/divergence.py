"""Log-moments of the privacy loss, φ(λ) = λ·D_{λ+1}, of Gaussian noise with Poisson sampling.

φ(λ, d; q, s) = log Σ_k C(λ+1,k) q^k (1−q)^{λ+1−k} exp((k²−k) d²/2s²)   (Triastcyn & Faltings 2020, Theorem 3,
c^L before the expectation over data). With equal-variance Gaussians it bounds both directions (Mironov, Talwar &
Zhang 2019, Theorem 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidArgument
from accounting.mechanisms.exact import INFLATION, Direction, exact_moments
from accounting.mechanisms.table import tabulated
from accounting.units import FloatArray, check_array, check_choice, check_orders, check_positive, check_rate

Values = float | Sequence[float] | npt.NDArray[np.floating]

# From this many distances on a table is worth building.
_TABLE_ABOVE = 8192


def log_moment(
    order: Values,
    distance: Values,
    *,
    noise_std: float,
    sampling_rate: float,
    direction: Direction = "forward",
    method: Literal["auto", "exact", "table"] = "auto",
) -> FloatArray:
    """φ(λ, d): λ times the Rényi divergence of order λ+1 that one noised step costs, rounded up.

    order          λ > 0, integer or real, or a strictly increasing array of them
    distance       L2 norm ≥ 0 of what one record (or client) adds to the noised sum
    noise_std      standard deviation s of the noise, on the scale of `distance`
    sampling_rate  Poisson rate q in [0, 1]
    direction      "printed": max(c^L, c^R) as printed in Theorem 3 (integer λ), for study; it grows like q, not q²
    method         "table": rounded up to a chord of a table in d²; "auto" takes it above 8,192 distances

    Returns a float64 array of shape np.shape(order) + np.shape(distance).

    Guarantees: never below the exact value; above it by less than 1e-6 relative ("exact"), 1e-2 ("table").
    Edge cases: q = 0 or d = 0 costs exactly 0; an overflowing cost is inf. Raises InvalidArgument for NaN, infinity,
    negative numbers, -0.0, q > 1, s ≤ 0, λ ≤ 0.

    >>> round(float(log_moment(8, 1.0, noise_std=2.0, sampling_rate=0.1)), 3)
    0.128
    >>> log_moment([2, 8], [0.1, 0.5, 1.0], noise_std=2.0, sampling_rate=0.1).shape
    (2, 3)
    """
    orders = check_orders(np.atleast_1d(np.asarray(order)), "order")
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
    return values.reshape(np.shape(order) + np.shape(distance))


def replace_one_moment(order: Values, distance: Values, *, noise_std: float, sampling_rate: float) -> FloatArray:
    """log(1 − q + q e^{λ(λ+1)d²/2s²}): the cost when one record is exchanged for another, by joint convexity.

    `distance` is the norm of the difference between the two contributions (≤ 2C for clipped ones). Shapes, errors
    and rounding as in log_moment; any λ > 0.

    >>> round(float(replace_one_moment(8, 1.0, noise_std=2.0, sampling_rate=0.1)), 3)
    6.699
    """
    full = log_moment(order, distance, noise_std=noise_std, sampling_rate=1.0, method="exact")
    rate = check_rate("sampling_rate", sampling_rate)
    return sampled_bound(full, rate)


def sampled_bound(log_moments: FloatArray, rate: float) -> FloatArray:
    """log(1 − q + q e^{φ}), rounded up: takes part with probability q, unseen (joint convexity of e^{λD})."""
    if rate == 0:
        return np.zeros_like(log_moments)
    with np.errstate(over="ignore"):
        small = np.log1p(rate * np.expm1(np.minimum(log_moments, 1.0)))
        large = log_moments + np.log(rate + (1 - rate) * np.exp(-log_moments))
    return np.where(log_moments < 1, small, large) * (1 + INFLATION)
