"""Noised life tables: Kaplan-Meier curves and the log-rank test, with errors of noise and sampling.

A life table counts, for each of m time bins, the patients whose event or whose censoring is in it. It also counts those
that are followed to the end of all bins. In a bin events come before censorings, as Kaplan and Meier 1958 order ties.
Errors are those of the delta method: right to first order in noise / patients at risk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from study_protocol.queries.counting import NORMAL, Estimates, Floats, counts
from study_protocol.queries.monotone import errors_along, first_reached, isotonic, last_reached

# A hazard needs more patients at risk than this many standard deviations of their number's noise.
_MIN_AT_RISK = 3.0
# Places inside a bin at which an end of the median's interval is looked for.
_PARTS = 8
# If the noise leaves fewer after a bin than this, or a smaller share, variances and logarithms take this instead.
_MIN_REMAINING, _MIN_SURVIVAL = 0.5, 1e-12


@dataclass(frozen=True)
class LifeTable:
    """The life table of one group.

    Attributes:
        events, censored: (m,) raw counts of every bin.
        later: raw count of those followed to the end.
        std: of the noise in each.
    """

    events: Floats
    censored: Floats
    later: float
    std: float

    @cached_property
    def at_risk(self) -> Floats:
        """(m + 1,) raw, at every edge."""
        return np.cumsum(np.append(self.events + self.censored, self.later)[::-1])[::-1]

    @cached_property
    def known_bins(self) -> int:
        """Bins, from the first on, in which there are patients enough for a hazard."""
        too_few = (self.at_risk <= _MIN_AT_RISK * np.sqrt(self._at_risk_noise))[:-1]
        return int(np.argmax(too_few)) if too_few.any() else len(too_few)

    def numbers_at_risk(self) -> Estimates:
        """Return the numbers at risk at every edge, shape (m + 1,). They are made to fit: falling, none below zero."""
        return counts(self.at_risk, self._at_risk_noise, np.maximum(-isotonic(-self.at_risk), 0.0))

    @cached_property
    def survival(self) -> Estimates:
        """(m + 1,) survival at every edge, made to fit: falling from 1 to 0 or above.

        NaN, in [0, 1], if too few are at risk.

        The interval is on the scale of the cumulative hazard Λ. It holds the numbers λ with |Λ - λ| ≤ 1.96 √(noise +
        λ·unit), as in `counts`. unit is the sampling variance for each unit of Λ.
        """
        noise, sampling, unit = self._log_errors()
        raw = self._raw
        # Noise may have more survive than there were: the interval is then as wide as without a death.
        hazard = -np.log(np.clip(raw, _MIN_SURVIVAL, 1.0))
        middle = hazard + NORMAL**2 * unit / 2
        reach = NORMAL * np.sqrt(np.maximum(noise + hazard * unit + (NORMAL * unit / 2) ** 2, 0.0))
        fitted = np.clip(-isotonic(-raw), 0.0, 1.0)
        return Estimates(
            raw=self._from_one(raw),
            estimate=self._from_one(fitted),
            dp_error=self._from_one(fitted * np.sqrt(noise), 0.0),
            sampling_error=self._from_one(fitted * np.sqrt(sampling), 0.0),
            low=self._from_one(np.clip(np.exp(-middle - reach), 0.0, 1.0), unknown=0.0),
            high=self._from_one(np.clip(np.exp(-middle + reach), 0.0, 1.0), unknown=1.0),
        )

    def median(self, edges: Floats) -> Estimates:
        """Return the time at which half survive, on the straight line between edges, shape (1,). NaN: not reached.

        Its interval holds the times whose own interval of survival holds one half (Brookmeyer, Crowley 1982). It has no
        end (NaN) where that of the last known time holds one half.
        """
        times, narrower, low, high = self._between(edges)
        known_edges, last = slice(self.known_bins + 1), float(times[-1])
        fitted = self.survival.estimate[known_edges]

        def time_of(share: float) -> float:
            time = first_reached(edges[known_edges], -fitted, -share)
            return last if math.isnan(time) else time

        earliest, latest = first_reached(times, -low, -0.5), last_reached(times, -high, -0.5)
        ends = (last if math.isnan(earliest) else earliest, math.nan if high[-1] >= 0.5 else latest)
        median = first_reached(edges[known_edges], -fitted, -0.5)
        if math.isnan(median):
            return _single(math.nan, math.nan, math.nan, *ends)
        factor = float(np.interp(median, times, narrower))
        noise, sampling = (
            factor * float(np.interp(median, edges[known_edges], errors[known_edges]))
            for errors in (self.survival.dp_error, self.survival.sampling_error)
        )
        return _single(median, *errors_along(time_of, 0.5, noise, sampling), *ends)

    def _between(self, edges: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the times of the known curve with those inside bins, a factor of its errors, and the interval's ends.

        The factor says by how much the errors are smaller than on the straight line between the edges' errors. At the
        part t of a bin the variance is less than the straight line by t(1 - t) times the variance of the bin's own
        fall.
        """
        known_edges, part = slice(self.known_bins + 1), np.linspace(0.0, 1.0, _PARTS, endpoint=False)
        curve, (_, at_risk) = self.survival, self._hazards
        raw = curve.raw[known_edges]

        def line(ends: Floats) -> Floats:
            return np.append((np.outer(ends[:-1], 1 - part) + np.outer(ends[1:], part)).ravel(), ends[-1])

        after = np.maximum(raw[1:], 0.0)
        fall = np.maximum(-np.diff(raw), 0.0) * after / at_risk + (self.std * after / at_risk) ** 2
        variance = line(curve.dp_error[known_edges] ** 2 + curve.sampling_error[known_edges] ** 2)
        less = np.append(np.outer(fall, part * (1 - part)).ravel(), 0.0)
        narrower = np.sqrt(np.clip(1 - less / np.where(variance > 0, variance, np.inf), 0.0, 1.0))
        middle = line(raw)
        low, high = (middle + narrower * (line(ends[known_edges]) - middle) for ends in (curve.low, curve.high))
        return line(edges[known_edges]), narrower, low, high

    @cached_property
    def _at_risk_noise(self) -> Floats:
        """(m + 1,) variances: two cells for every later bin, and one."""
        return self.std**2 * (2 * np.arange(len(self.events), -1, -1, dtype=np.float64) + 1)

    @cached_property
    def _hazards(self) -> tuple[Floats, Floats]:
        """(known,) events and patients at risk."""
        return self.events[: self.known_bins], self.at_risk[: self.known_bins]

    @cached_property
    def _raw(self) -> Floats:
        """(known,) Kaplan and Meier's product, at the end of every bin."""
        events, at_risk = self._hazards
        return np.cumprod(np.maximum(1 - events / at_risk, 0.0), dtype=np.float64)

    def _log_errors(self) -> tuple[Floats, Floats, Floats]:
        """Return variances of log survival by noise and by sampling, and the latter for a unit of Λ.

        Each has shape (known,). Source: Greenwood 1926.
        """
        events, at_risk = self._hazards
        surviving = np.maximum(at_risk - events, _MIN_REMAINING)
        # By one patient more at risk in every bin so far. This sum is Greenwood's, too.
        steps = np.cumsum(events / (at_risk * surviving))
        # A cell of a bin k is in the numbers at risk up to k. One of events is also in those of events.
        before = np.cumsum(steps**2 + (steps - 1 / surviving) ** 2)
        after = 2.0 * (len(self.events) - 1 - np.arange(self.known_bins)) + 1
        noise = self.std**2 * (before + after * steps**2)
        observed = np.maximum(events, 0.0)
        spread = np.cumsum(observed / (at_risk * np.maximum(at_risk - observed, _MIN_REMAINING)))
        hazard = np.cumsum(-np.log(np.maximum(at_risk - observed, _MIN_REMAINING) / at_risk))
        unit = np.where(hazard > 0, spread / np.where(hazard > 0, hazard, 1.0), 1 / at_risk)
        return noise, np.maximum(steps, 0.0), unit

    def _from_one(self, values: Floats, first: float = 1.0, unknown: float = math.nan) -> Floats:
        """Return (m + 1,) values that begin at one, of (known,) values."""
        return np.concatenate([[first], values, np.full(len(self.events) - self.known_bins, unknown)])


@dataclass(frozen=True)
class LogRank:
    """The log-rank test.

    Its statistic is χ² with so many degrees of freedom if all groups have the same hazards, NaN if unknown.
    """

    statistic: float
    degrees: int
    p_value: float


def log_rank(groups: Sequence[LifeTable]) -> LogRank:
    """Return the log-rank test in noise: events less expected ones, over their covariance by sampling and noise.

    Bins are used while enough patients are at risk in all. Source: Mantel 1966, Peto 1972.

    Args:
        groups: two or more, with noise of the same deviation.
    """
    events, at_risk = np.stack([group.events for group in groups]), np.stack([group.at_risk[:-1] for group in groups])
    std, bins = groups[0].std, events.shape[1]
    pooled = LifeTable(
        events.sum(axis=0),
        np.sum([group.censored for group in groups], axis=0),
        sum(group.later for group in groups),
        std * math.sqrt(len(groups)),
    )
    used = pooled.known_bins
    events, at_risk, of_all, risk = events[:, :used], at_risk[:, :used], pooled.events[:used], pooled.at_risk[:used]
    shares = at_risk / risk
    excess = (events - of_all * shares).sum(axis=1)
    # (g, h, bins): what one event more of group h adds to the excess of group g.
    direct = np.eye(len(groups))[:, :, None] - shares[:, None]
    # One patient is at risk with no variance to it: not 0/0.
    spread = np.where(risk > 1, of_all * (risk - of_all) / np.where(risk > 1, risk - 1, 1.0), 0.0)
    sampling = np.einsum("j,gj,hgj->gh", spread, shares, direct)
    # The amount that one patient more of group h at risk up to a bin takes from it.
    indirect = np.cumsum(of_all / risk * direct, axis=2)
    noise = (
        _products(indirect) + _products(direct - indirect) + (2 * (bins - used) + 1) * _products(indirect[:, :, -1:])
    )
    return _chi_square(excess, sampling + std**2 * noise)


def chi_square_tail(value: float, degrees: int) -> float:
    """Return P(χ² ≥ value). Source: Abramowitz, Stegun 1964, 26.4.4 and 26.4.5."""
    half = value / 2
    odd = degrees % 2
    first = math.erfc(math.sqrt(half)) if odd else 0.0
    term, total = math.exp(-half) * (math.sqrt(half / math.pi) * 2 if odd else 1.0), 0.0
    for step in range(degrees // 2):
        total += term
        term *= half / (step + (1.5 if odd else 1.0))
    return min(first + total, 1.0)


def _products(changes: Floats) -> Floats:
    """Return Σ over cells of what each does to two groups, shape (g, g)."""
    return np.einsum("ahj,bhj->ab", changes, changes)


def _chi_square(excess: Floats, covariance: Floats) -> LogRank:
    """Return χ² of the excesses. They add up to zero, so that the last one adds no information."""
    some, spread = excess[:-1], covariance[:-1, :-1]
    values = np.linalg.eigvalsh(spread) if np.isfinite(spread).all() else np.zeros(1)
    if values[0] <= 1e-12 * max(float(values[-1]), 1e-300):
        return LogRank(math.nan, len(some), math.nan)
    statistic = float(some @ np.linalg.solve(spread, some))
    return LogRank(statistic, len(some), chi_square_tail(statistic, len(some)))


def _single(estimate: float, dp: float, sampling: float, low: float, high: float) -> Estimates:
    return Estimates(*(np.array([value]) for value in (estimate, estimate, dp, sampling, low, high)))
