"""What a round's reports say about its cost, on the safe side of everything that is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from accounting.plan.report import (
    DISTANCE_BINS,
    CumulativeMoments,
    DistanceHistogram,
    JointReport,
    RoundReport,
    distance_bin,
)
from accounting.units import Level
from client_sdk.protocol.secure_sum.parameters import METRICS, PAPERS, TERMS, histogram_name
from client_sdk.protocol.study.settings import Privacy, StudySettings
from server.domain.admission import Findings

Values: TypeAlias = NDArray[np.float64] | NDArray[np.int64]
_NO_BOUND = 1e300


@dataclass(frozen=True)
class Attendance:
    """What became of the sampled clients.

    received   their update, or all their masked vectors, is here
    waiting    may still answer;  missing  will not: revoked, withdrawn or too late
    sending    those of whose update a byte was ever let in, whatever became of it
    survivors  whose vectors are in the secure sum;  enrolled  every client that ever joined the study
    """

    received: frozenset[str]
    waiting: frozenset[str]
    missing: frozenset[str]
    sending: frozenset[str]
    survivors: frozenset[str] = frozenset()
    enrolled: frozenset[str] = frozenset()

    @property
    def silent(self) -> int:
        """How many neither sent nor refused, if collecting ends now."""
        return len(self.waiting) + len(self.missing)

    def is_due(self, *, deadline: float, now: float) -> bool:
        """Whether collecting ends: everybody has answered, or nobody else is waited for."""
        return not self.waiting or now >= deadline


def round_report(settings: StudySettings, findings: Sequence[Findings], attendance: Attendance) -> RoundReport | None:
    """The report in updates that came in the clear, one of the findings for each; None charges the reservation."""
    if settings.privacy.bayesian is None:
        return None
    if settings.privacy.rules.central:
        return _histogram([f.distance for f in findings], attendance.silent, settings.privacy.clip_norm)
    log_moments = [f.log_moments for f in findings if f.log_moments is not None]
    # A client that has not reported may be the one whose bound is the largest.
    if attendance.silent or not log_moments or len(log_moments) < len(findings):
        return None
    return CumulativeMoments.largest(log_moments)


def masked_round_report(
    settings: StudySettings, sums: Mapping[str, Values], attendance: Attendance, *, publishes: bool
) -> RoundReport | None:
    """The report in the opened sums, by vector name; None charges the reservation.

    publishes: under disclosure `noised`, whether this round's histograms are real; otherwise they are zeros.
    """
    privacy = settings.privacy
    if privacy.bayesian is None or (privacy.disclosure == "noised" and not publishes):
        return None
    # An update came in the clear from a client whose log-moments are not in the sums.
    unreported = not attendance.received <= attendance.survivors
    measured, histogram = Level.INSTANCE in privacy.rules.levels, histogram_name(privacy.rules)
    records = _moments(sums, attendance) if measured and not unreported else None
    clients = None if histogram is None else _counts(privacy, sums.get(histogram), attendance)
    if histogram is None or not measured:
        return records if histogram is None else clients
    return JointReport(clients, records)


def _moments(sums: Mapping[str, Values], attendance: Attendance) -> CumulativeMoments | None:
    reported, papers = sums.get(TERMS), sums.get(PAPERS)
    if reported is None:
        return None
    # Above the grid: no bound was reported, and the reservation is the smaller one.
    bounds = [min(float(value), _NO_BOUND) for value in reported]
    costs = None if papers is None or not np.isfinite(papers).all() else tuple(float(cost) for cost in papers)
    metrics = sums.get(METRICS)
    # Summed once: afterwards every hospital says 0, so that two sums never differ by one hospital's number.
    known = metrics is not None and np.isfinite(metrics[0]) and metrics[0] > 0
    records = float(metrics[0]) if metrics is not None and known else None
    return CumulativeMoments(bounds[0], tuple(bounds[1:]), attendance.survivors == attendance.enrolled, costs, records)


def _counts(privacy: Privacy, reported: Values | None, attendance: Attendance) -> DistanceHistogram | None:
    """The summed histogram; who is missing fills the top bin."""
    if reported is None:
        return None
    counts = [round(float(count)) for count in reported]
    counts[-1] += attendance.silent
    if privacy.histogram_noise is None:
        return DistanceHistogram(tuple(counts)) if any(counts) else None
    # Every survivor added its share; only the honest ones are relied on for privacy.
    noise = privacy.histogram_noise.std * math.sqrt(len(attendance.survivors) / privacy.histogram_shares)
    return DistanceHistogram(
        tuple(counts), len(attendance.survivors) + attendance.silent, math.nextafter(noise, math.inf)
    )


def _histogram(distances: Sequence[float | None], missing: int, top: float) -> DistanceHistogram | None:
    counts = [0] * DISTANCE_BINS
    for distance in distances:
        counts[distance_bin(distance, top)] += 1
    counts[-1] += missing
    return DistanceHistogram(tuple(counts)) if any(counts) else None
