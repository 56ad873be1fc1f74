"""What a finished round shows of its real cost. Everything else about a round is public beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounting.errors import InvalidArgument
from accounting.units import check_array, check_count, check_nonnegative


@dataclass(frozen=True)
class DistanceHistogram:
    """How many of the sampled clients lie in each bin of distances, every distance rounded up to its bin's edge."""

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.counts:
            raise InvalidArgument("counts", "is empty")
        for count in self.counts:
            check_count("counts", count, least=0)


@dataclass(frozen=True)
class CumulativeMoments:
    """Upper bounds on the log-moments spent since the study began, the largest of all reporting clients.

    filter  nats at the plan's filter order;  moments  nats at every order of the report
    """

    filter: float
    moments: tuple[float, ...]

    def __post_init__(self) -> None:
        check_nonnegative("filter", self.filter)
        check_array("moments", self.moments)

    @classmethod
    def largest(cls, reports: list[CumulativeMoments]) -> CumulativeMoments:
        """Elementwise maximum: valid for every client at once.

        Raises:
            InvalidArgument: no report, or reports of different lengths.
        """
        if not reports or len({len(report.moments) for report in reports}) != 1:
            raise InvalidArgument("reports", "must be at least one, all with the same orders")
        columns = zip(*(report.moments for report in reports), strict=True)
        return cls(max(report.filter for report in reports), tuple(max(column) for column in columns))


Evidence = DistanceHistogram | CumulativeMoments


def evidence_to_dict(evidence: Evidence | None) -> dict[str, Any] | None:
    """JSON of the evidence; None (nothing was learnt: charge the worst case) stays None."""
    match evidence:
        case None:
            return None
        case DistanceHistogram(counts):
            return {"counts": list(counts)}
        case CumulativeMoments(filter_moment, moments):
            return {"filter": filter_moment, "moments": list(moments)}


def evidence_from_dict(value: Mapping[str, Any] | None) -> Evidence | None:
    """Inverse of `evidence_to_dict`.

    Raises:
        InvalidArgument: neither form, or numbers that are no evidence.
    """
    if value is None:
        return None
    if set(value) == {"counts"}:
        return DistanceHistogram(tuple(value["counts"]))
    if set(value) == {"filter", "moments"}:
        return CumulativeMoments(value["filter"], tuple(value["moments"]))
    raise InvalidArgument("evidence", "is neither a histogram nor cumulative moments")
