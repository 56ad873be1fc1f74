"""Estimates from noised counts of patients that fit together, with intervals from before they were made to fit.

Sampling: another time the number of patients in a cell varies as Poisson's law does, independently of other cells.
Given the number of all patients, shares then vary as the multinomial law does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# The normal law's 97.5 % point.
NORMAL = 1.959963984540054
# A divisor must be above so many deviations of its noise: nearer to zero, the estimate has no value.
STANDS_OUT = 3.0


@dataclass(frozen=True)
class Estimates:
    """(n,) each. raw: unbiased, perhaps below zero. estimate: made to fit. low, high: 95 % interval around raw."""

    raw: Floats
    estimate: Floats
    dp_error: Floats
    sampling_error: Floats
    low: Floats
    high: Floats

    @property
    def errors(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.dp_error, self.sampling_error, self.low, self.high


_NAMES = tuple(field.name for field in fields(Estimates))


@dataclass(frozen=True, repr=False)
class TableEstimates:
    """Several tables over the same patients: cells and shares of each table, and one number of all patients."""

    cells: tuple[Estimates, ...]
    shares: tuple[Estimates, ...]
    patients: Estimates


def counts(raw: Floats, variance: Floats, estimate: Floats | None = None) -> Estimates:
    """Return estimates from raw counts whose DP noise has this variance.

    The interval holds the numbers λ with |raw - λ| ≤ 1.96 √(λ + variance): Wilson's score interval (1927) with noise.
    It is cut at zero, which costs no coverage.
    """
    root = np.sqrt(np.maximum(raw + variance + NORMAL**2 / 4, 0.0))
    low, high = (raw + NORMAL**2 / 2 + sign * NORMAL * root for sign in (-1, 1))
    positive = np.maximum(raw, 0.0)
    return Estimates(
        raw=raw,
        estimate=positive if estimate is None else estimate,
        dp_error=np.sqrt(variance),
        sampling_error=np.sqrt(positive),
        low=np.maximum(low, 0.0),
        high=np.maximum(high, 0.0),
    )


def estimate_tables(tables: list[Floats], std: float) -> TableEstimates:
    """Return estimates of tables that count the same patients, with noise of this standard deviation in every cell.

    Every table's sum estimates the number of patients. Least squares gives one number for all and moves every cell of a
    table by the same amount. That is linear, so that errors are exact and estimates stay unbiased. Only then the fitted
    cells are moved to the nearest ones that are not below zero and have the same sum.
    """
    sizes = np.array([len(cells) for cells in tables], np.float64)
    sums = np.array([cells.sum() for cells in tables])
    # A table of d cells says the number of patients with variance d·std².
    inverse = float((1 / sizes).sum())
    patients, variance = float((sums / sizes).sum()) / inverse, std**2 / inverse
    cells: list[Estimates] = []
    shares: list[Estimates] = []
    for table, size, total in zip(tables, sizes, sums, strict=True):
        raw = table + (patients - total) / size
        noise = std**2 * (1 - 1 / size) + variance / size**2
        fitted = on_simplex(raw, max(patients, 0.0))
        cells.append(counts(raw, np.full(len(raw), noise), fitted))
        shares.append(shares_of(raw, fitted, patients, noise, variance / size, variance))
    return TableEstimates(tuple(cells), tuple(shares), counts(np.array([patients]), np.array([variance])))


def on_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest numbers, none below zero, with this sum. Held, Wolfe, Crowder 1974."""
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    pivot = int(np.flatnonzero(falling - excess >= 0)[-1]) if bool((falling - excess >= 0).any()) else 0
    return np.maximum(values - excess[pivot], 0.0)


def shares_of(
    raw: Floats, fitted: Floats, total: float, noise: Floats | float, with_total: Floats | float, of_total: float
) -> Estimates:
    """Return raw / total.

    The interval holds the shares p with |raw - p·total| ≤ 1.96 √variance(p), noise and sampling together. It unites the
    intervals of Fieller and of Wilson. It is [0, 1] where the total is not above 3 deviations of its noise. There are
    then no estimates (NaN).

    Args:
        noise: variance of the noise in a cell.
        with_total: covariance of that noise with the noise of the total.
        of_total: variance of the noise of the total.
    """
    square = NORMAL**2
    a = total**2 + square * (total - of_total)
    if total <= 0 or a <= 0 or total**2 <= STANDS_OUT**2 * of_total:
        nothing = np.full(len(raw), np.nan)
        return Estimates(nothing, nothing, nothing, nothing, np.zeros(len(raw)), np.ones(len(raw)))
    b = -2 * raw * total - square * (total - 2 * with_total)
    c = raw**2 - square * noise
    root = np.sqrt(np.maximum(b**2 - 4 * a * c, 0.0))
    share = raw / total
    inside = np.clip(share, 0.0, 1.0)
    low, high = ends_within(share, (-b - root) / (2 * a), (-b + root) / (2 * a), 0.0, 1.0)
    return Estimates(
        raw=share,
        estimate=fitted / total,
        dp_error=np.sqrt(np.maximum(noise - 2 * share * with_total + share**2 * of_total, 0.0)) / total,
        sampling_error=np.sqrt(inside * (1 - inside) / total),
        low=low,
        high=high,
    )


def clip_estimates(estimates: Estimates, low: Floats, high: Floats) -> Estimates:
    """Return the estimates clipped to the range of possible values."""
    low_ends, high_ends = ends_within(estimates.raw, estimates.low, estimates.high, low, high)
    return replace(estimates, estimate=np.clip(estimates.estimate, low, high), low=low_ends, high=high_ends)


def ends_within(
    raw: Floats, low: Floats, high: Floats, lower_bound: Floats | float, upper_bound: Floats | float
) -> tuple[Floats, Floats]:
    """Return the ends of intervals around `raw`, cut to the possible range.

    If noise has carried `raw` beyond the range, the nearer end is as far from the bound as it was from `raw`. If it
    were only cut, the interval would be narrow or empty, and would hold the truth less often the narrower it is.
    """
    moved = np.nan_to_num(np.clip(raw, lower_bound, upper_bound) - raw, nan=0.0)
    return np.clip(np.minimum(low, low + moved), lower_bound, upper_bound), np.clip(
        np.maximum(high, high + moved), lower_bound, upper_bound
    )


def blank_unsure(sure: NDArray[np.bool_], estimates: Estimates, low: Floats, high: Floats) -> Estimates:
    """Return the estimates where they are sure.

    Elsewhere return no estimate, no errors and an interval of all possible values.
    """
    parts = {name: np.where(sure, getattr(estimates, name), np.nan) for name in _NAMES}
    return Estimates(
        **{**parts, "low": np.where(sure, estimates.low, low), "high": np.where(sure, estimates.high, high)}
    )


def split(estimates: Estimates, places: Sequence[int]) -> list[Estimates]:
    """Return the estimates split before these places."""
    parts = [np.split(getattr(estimates, name), places) for name in _NAMES]
    return [Estimates(*part) for part in zip(*parts, strict=True)]


def unknown_estimates(count: int) -> Estimates:
    """Return estimates of unknown values: NaN throughout."""
    return Estimates(*(np.full(count, np.nan) for _ in _NAMES))


def join_estimates(parts: Sequence[Estimates]) -> Estimates:
    return Estimates(*(np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES))
