"""What a round's reports say about its cost, on the safe side of everything that is not known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting.evidence import CumulativeMoments, DistanceHistogram, Evidence
from client_sdk.protocol.settings import StudySettings
from server.domain.admission import Findings


def evidence_of(
    settings: StudySettings, findings: Sequence[Findings], *, missing: int, edges: Sequence[float]
) -> Evidence | None:
    """The evidence to settle a round with; None charges the reservation.

    Args:
        findings: one per update received.
        missing: sampled clients that neither sent nor refused.
        edges: increasing upper edges of the distance bins, the last one the clip norm (scheme client).
    """
    if settings.privacy.bayesian is None:
        return None
    if settings.privacy.scheme == "client":
        return _histogram([f.distance for f in findings], missing, edges)
    terms = [f.terms for f in findings if f.terms is not None]
    # A client that has not reported may be the one whose bound is the largest.
    if missing or not terms or len(terms) < len(findings):
        return None
    return CumulativeMoments.largest(terms)


def _histogram(distances: Sequence[float | None], missing: int, edges: Sequence[float]) -> DistanceHistogram | None:
    counts = np.zeros(len(edges), np.int64)
    for distance in distances:
        counts[_bin(distance, edges)] += 1
    counts[-1] += missing
    return DistanceHistogram(tuple(int(count) for count in counts)) if counts.any() else None


def _bin(distance: float | None, edges: Sequence[float]) -> int:
    """The first bin whose upper edge is not below the distance; unknown or beyond: the last."""
    if distance is None or not distance <= edges[-1]:
        return len(edges) - 1
    return int(np.searchsorted(np.asarray(edges), distance, side="left"))
