"""Upper confidence bounds on E e^X for 0 ≤ X ≤ log_max from independent samples of X, in the log domain.

`betting` and `band` never fall when a sample rises: they accept samples that were rounded up one by one by hand or by
noise. The other two accept samples rounded up by one fixed map only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy import optimize as _optimize  # pyright: ignore[reportMissingTypeStubs]
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.errors import EstimatorRefused, InvalidArgument
from accounting.mechanisms.divergence import Values, log_expm1, log_sum
from accounting.plan.limits import Estimator
from accounting.values import FloatArray, check_array, check_choice, check_count, check_delta, check_nonnegative

_functions = cast(Any, _special)
_roots = cast(Any, _optimize)

ESTIMATORS: Mapping[Estimator, str] = MappingProxyType(
    {
        "student-t": "Triastcyn & Faltings 2020, eq. 14: exact only if e^X is normal.",
        "betting": "Waudby-Smith & Ramdas 2023: a mixture of bets against every smaller mean. Distribution-free.",
        "band": "Order statistics: a lower band on the distribution function, the rest at log_max. Distribution-free.",
        "bernstein": "Maurer & Pontil 2009, Theorem 4. Distribution-free.",
    }
)
DISTRIBUTION_FREE = frozenset({"betting", "band", "bernstein"})

# Instead of 0 in a logarithm: above it, so upwards.
_TINY = 1e-280
_CELLS = 4096
# Half of the stake bets everything. The rest is spread over bets down to one that suits a million samples.
_BETS = np.concatenate([[1.0], np.geomspace(1e-3, 0.8, 24)])
_LOG_STAKES = np.log(np.concatenate([[0.5], np.full(24, 0.5 / 24)]))


def upper_mean(
    log_values: Values,
    failure_probability: float,
    *,
    method: Estimator = "student-t",
    log_max: float | None = None,
    counts: Values | None = None,
) -> float:
    """An upper bound on log E e^X that fails with probability at most `failure_probability` over drawing the sample.

    log_values  (m,) samples of X ≥ 0, or with `counts` the distinct values (bin edges, rounded up)
    log_max     the largest value X can take. Required except for student-t, where it is ignored
    counts      (bins,) how often each value occurred: integers ≥ 0

    Guarantees: within [0, log_max] for the distribution-free methods. Assumes independent samples: pairs that share a
    record are not. Raises InvalidArgument (also for a value above log_max), EstimatorRefused for m < 3, and for
    student-t when the sample variance is zero.

    >>> sample = [0.0, 0.1, 0.1, 0.3] * 100
    >>> round(upper_mean(sample, 1e-3, method="betting", log_max=1.0), 3)
    0.161
    """
    check_choice("method", method, ESTIMATORS)
    gamma = check_delta(failure_probability, "failure_probability")
    values = check_array("log_values", log_values)
    weights = np.ones(values.size) if counts is None else _check_counts(counts, values.size)
    if method != "student-t":
        if log_max is None:
            raise InvalidArgument("log_max", f"is required for {method}")
        ceiling = check_nonnegative("log_max", log_max)
        if bool((values > ceiling).any()):
            raise InvalidArgument("log_values", f"holds {float(values.max())!r}, above log_max {ceiling!r}")
    else:
        ceiling = math.inf
    # An empty bin is no sample: its value must not count as the largest that was seen.
    values, weights = values[weights > 0], weights[weights > 0]
    if weights.sum() < 3:
        raise EstimatorRefused(f"{int(weights.sum())} samples: an estimate needs at least 3")
    if method == "student-t":
        return _student_t(values, weights, gamma)
    if ceiling == 0:
        return 0.0
    estimate = {"betting": _betting, "band": _band, "bernstein": _bernstein}[method]
    return min(ceiling, estimate(values, weights, gamma, ceiling))


def binary_upper_mean(ones: int, trials: int, failure_probability: float) -> float:
    """Upper bound on a probability after `ones` successes: the 1 − failure quantile of Beta(ones+1, zeros+1).

    The flat-prior posterior of Triastcyn & Faltings 2020, section 4.3.1. Raises InvalidArgument.

    >>> round(binary_upper_mean(3, 100, 1e-3), 3)
    0.123
    """
    n = check_count("trials", trials, minimum=0)
    k = check_count("ones", ones, minimum=0)
    if k > n:
        raise InvalidArgument("ones", f"must be ≤ trials = {n}, not {k}")
    return beta_upper_quantile(k + 1, n - k + 1, check_delta(failure_probability, "failure_probability"))


def lower_counts(
    counts: Values, noise_std: float, failure_probability: float, *, sample_size: int
) -> npt.NDArray[np.int64]:
    """Counts ordered from small to large values, moved upwards until their noise can hide no value.

    counts       (bins,) integers, each with its own discrete Gaussian noise of standard deviation `noise_std`
    sample_size  the public number m of samples

    Every cumulative count from below is lowered by a bound on its summed noise that holds for all of them but with
    probability `failure_probability` (sub-Gaussian tail of the discrete Gaussian: Canonne, Kamath & Steinke 2020,
    Lemma 3.7), made monotone and clipped to [0, m]. Missing counts go to the top bin. The result, shape (bins,), is
    stochastically above the true histogram: use it with `betting` or `band`. Raises InvalidArgument.
    """
    std = check_nonnegative("noise_std", noise_std)
    gamma = check_delta(failure_probability, "failure_probability")
    m = check_count("sample_size", sample_size)
    noisy = check_array("counts", counts, low=-math.inf)
    if bool((noisy != np.floor(noisy)).any()):
        raise InvalidArgument("counts", "must be integers")
    # Without the last: it is m, which is public.
    below = np.cumsum(noisy)[:-1]
    slack = std * np.sqrt(2 * np.arange(1, noisy.size) * math.log(max(1, noisy.size - 1) / gamma))
    lowered = np.floor(below - slack)
    # A later bound that is lower makes no earlier one false, so the running maximum holds too.
    monotone = np.clip(np.maximum.accumulate(lowered), 0, m) if lowered.size else lowered
    return np.diff(np.concatenate([[0.0], monotone, [float(m)]])).astype(np.int64)


def _check_counts(counts: Values, size: int) -> FloatArray:
    weights = check_array("counts", counts)
    if weights.size != size:
        raise InvalidArgument("counts", f"has {weights.size} entries for {size} values")
    if bool((weights != np.floor(weights)).any()):
        raise InvalidArgument("counts", "must be integers")
    if weights.sum() == 0:
        raise InvalidArgument("counts", "are all zero: an empty sample")
    return weights


def _student_t(values: FloatArray, weights: FloatArray, gamma: float) -> float:
    """M + F⁻¹(1−γ, m−1)·S/√(m−1), S with 1/m. Isf, because 1 − γ is 1 for the γ in use."""
    m = float(weights.sum())
    top = float(values.max())
    scaled = np.exp(values - top)
    mean = float(weights @ scaled) / m
    deviations = scaled - mean
    variance = float(weights @ deviations**2) / m
    # Equal values differ by their rounding alone.
    if variance <= (8e-16 * mean) ** 2:
        raise EstimatorRefused("the sample variance is zero: Student t would claim to know the population exactly")
    quantile = student_upper_quantile(m - 1, gamma)
    if not math.isfinite(quantile):
        raise EstimatorRefused(f"no float holds the Student quantile of {gamma!r} at {int(m)} samples")
    bound = mean + quantile * math.sqrt(variance / (m - 1))
    return max(0.0, top + math.log(max(bound, _TINY)))


def _unit(values: FloatArray, ceiling: float) -> FloatArray:
    """y = (e^X − 1)/(e^log_max − 1) in [0, 1], never rounded down to 0."""
    # The last term covers the rounding of a difference of large exponents.
    logs = log_expm1(values) - float(log_expm1(np.array([ceiling]))[0]) + 4e-16 * ceiling
    return np.minimum(1.0, np.where(values > 0, np.maximum(np.exp(logs) * (1 + 1e-12), _TINY), 0.0))


def _from_unit(mean: float, ceiling: float) -> float:
    """log(1 + mean·(e^log_max − 1)), rounded up."""
    log_mean, log_range = math.log(max(mean, _TINY)), float(log_expm1(np.array([ceiling]))[0])
    return float(np.logaddexp(0.0, log_mean + log_range)) * (1 + 4e-16 * (2 + abs(log_mean) + abs(log_range)))


def _betting(values: FloatArray, weights: FloatArray, gamma: float, ceiling: float) -> float:
    y, weights = _grouped(_unit(values, ceiling), weights)
    target = -math.log(gamma)

    def log_capital(logit: float) -> float:
        # (μ − y)/(1 − μ) with μ = 1/(1 + e^−logit): 1/(1−μ) = 1 + e^logit
        odds = math.exp(logit)
        with np.errstate(divide="ignore"):
            gains = np.log1p(np.multiply.outer(_BETS, odds * (1 - y) - y))
        return float(log_sum(_LOG_STAKES + gains @ weights)) - target

    # The mean between e^−60 and 1 − e^−60 of the range.
    low, high = -60.0, 60.0
    # Not even the largest mean is ruled out.
    if log_capital(high) < 0:
        return ceiling
    if log_capital(low) >= 0:
        return _from_unit(1 / (1 + math.exp(-low)), ceiling)
    logit = root(log_capital, low, high)
    # The capital rises with the mean. Step to the side where it is surely above 1/γ.
    while log_capital(logit) < 0:
        logit += 1e-9 * max(1.0, abs(logit))
    return _from_unit(1 / (1 + math.exp(-logit)), ceiling)


def _grouped(y: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Equal values once. More than 4,096 distinct ones rounded up to a geometric grid (betting is monotone)."""
    if y.size > _CELLS:
        grid = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, _CELLS)])
        index = np.searchsorted(grid, y, side="left")
        totals = np.bincount(index, weights=weights, minlength=grid.size).astype(np.float64)
        return grid[totals > 0], totals[totals > 0]
    distinct, inverse = np.unique(y, return_inverse=True)
    return distinct, np.bincount(inverse, weights=weights).astype(np.float64)


def _band(values: FloatArray, weights: FloatArray, gamma: float, ceiling: float) -> float:
    order = np.argsort(values)
    x, reached = values[order], np.cumsum(weights[order])
    last = np.append(x[1:] > x[:-1], True)
    x, reached = x[last], reached[last]
    floor = _order_statistic_band(int(reached[-1]), gamma, tuple(reached.astype(np.int64).tolist()))
    masses = np.diff(np.concatenate([[0.0], floor, [1.0]]))
    with np.errstate(divide="ignore"):
        # 1e-12 covers the rounding of the sum.
        return float(log_sum(np.log(np.maximum(masses, 0.0)) + np.append(x, ceiling))) + 1e-12


@lru_cache(maxsize=64)
def _order_statistic_band(m: int, gamma: float, ranks: tuple[int, ...]) -> FloatArray:
    """F(x_(i)) ≥ BetaInv(γ/m; i, m−i+1) for all i at once, by a union bound. Made monotone."""
    i = np.asarray(ranks, dtype=np.float64)
    # At m = 1e9 the inverse is right to 1e-5 of the probability. At absurdly small ones it may be NaN: then no mass.
    slack = 1e-4 if m > 100_000 else 1e-9
    quantiles = np.nan_to_num(beta_quantile(i, m - i + 1, gamma / m * (1 - slack)), nan=0.0)
    return np.maximum.accumulate(quantiles * (1 - 1e-9))


def _bernstein(values: FloatArray, weights: FloatArray, gamma: float, ceiling: float) -> float:
    y = _unit(values, ceiling)
    m = float(weights.sum())
    mean = float(weights @ y) / m
    variance = float(weights @ (y - mean) ** 2) / (m - 1)
    spread = math.log(2 / gamma)
    bound = mean + math.sqrt(2 * variance * spread / m) + 7 * spread / (3 * (m - 1))
    return _from_unit(min(1.0, bound * (1 + 1e-12)), ceiling)


def beta_quantile(a: FloatArray, b: FloatArray, probability: float) -> FloatArray:
    """x with P(Beta(a, b) ≤ x) = probability."""
    return np.asarray(_functions.betaincinv(a, b, probability), dtype=np.float64)


def beta_upper_quantile(a: float, b: float, probability: float) -> float:
    """x with P(Beta(a, b) > x) = probability. Small probabilities keep their digits."""
    return float(_functions.betainccinv(a, b, probability))


def student_upper_quantile(freedom: float, probability: float) -> float:
    """x with P(t > x) = probability. Small probabilities keep their digits."""
    return -float(_functions.stdtrit(freedom, probability))


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """A zero between two arguments of opposite sign (Brent)."""
    return float(_roots.brentq(function, low, high, xtol=1e-9, rtol=1e-12))
