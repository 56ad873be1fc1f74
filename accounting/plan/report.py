"""The report of a finished round on its real cost. All other facts about a round are public beforehand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from accounting.errors import InvalidArgument
from accounting.values import check_count, check_nonnegative, check_positive

DISTANCE_BINS = 64
MOST_COUNTED = 2**52  # every count up to it is a float64


def distance_edges(top: float) -> tuple[float, ...]:
    """Upper edges of the bins of a client's distance: equal steps up to `top`, its clip norm, public like the plan."""
    return (*(top * place / DISTANCE_BINS for place in range(1, DISTANCE_BINS)), top)


def distance_bin(distance: float | None, top: float) -> int:
    """The first bin whose upper edge is not below the distance. Unknown or beyond: the last."""
    # Written so that NaN is beyond.
    if distance is None or not distance <= top:
        return DISTANCE_BINS - 1
    return bisect_left(distance_edges(top), distance)


@dataclass(frozen=True)
class DistanceHistogram:
    """How many of the sampled clients lie in each bin of distances, every distance rounded up to its bin's edge.

    Under disclosure `noised` the counts carry discrete Gaussian noise of standard deviation count_noise and may be
    negative. sample_size is then the public true total.
    """

    counts: tuple[int, ...]
    sample_size: int | None = None
    count_noise: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            raise InvalidArgument("counts", "is empty")
        for count in self.counts:
            check_count("counts", count, minimum=0 if self.sample_size is None else -MOST_COUNTED, maximum=MOST_COUNTED)
        if self.sample_size is not None:
            check_count("sample_size", self.sample_size, maximum=MOST_COUNTED)
            check_positive("count_noise", self.count_noise)
        elif self.count_noise != 0:
            raise InvalidArgument("sample_size", "is needed where the counts carry noise")


@dataclass(frozen=True)
class CumulativeMoments:
    """Upper bounds on the log-moments spent since the study began, the largest of all reporting clients.

    filter    nats at the plan's filter order
    moments   nats at every order λ (= α − 1) of the statement
    complete  every client that ever took part is among the reports
    papers    scheme sequential: this round's secure sum of the clients' costs at q = B_i/N, at every order of the
              statement, as in the papers
    records   the same: N, the secure sum of the clients' numbers of records
    """

    filter: float
    moments: tuple[float, ...]
    complete: bool = False
    papers: tuple[float, ...] | None = None
    records: float | None = None

    def __post_init__(self) -> None:
        # Each by itself, and kept as a float: an array of them would take true for 1, and large integers for objects.
        object.__setattr__(self, "filter", check_nonnegative("filter", self.filter))
        object.__setattr__(self, "moments", _nats("moments", self.moments))
        if self.papers is not None:
            object.__setattr__(self, "papers", _nats("papers", self.papers))
        if self.records is not None:
            object.__setattr__(self, "records", check_nonnegative("records", self.records))

    @classmethod
    def largest(cls, reports: list[CumulativeMoments]) -> CumulativeMoments:
        """Elementwise maximum: valid for every reporting client at once.

        Raises:
            InvalidArgument: no report, or reports of different lengths.
        """
        if not reports or len({len(report.moments) for report in reports}) != 1:
            raise InvalidArgument("reports", "must be at least one, all with the same orders")
        # Only the bounds: papers and records are sums, and whether these are all the clients is not known here.
        columns = zip(*(report.moments for report in reports), strict=True)
        return cls(max(report.filter for report in reports), tuple(max(column) for column in columns))


def _nats(name: str, values: tuple[float, ...]) -> tuple[float, ...]:
    if not values:
        raise InvalidArgument(name, "is empty")
    return tuple(check_nonnegative(name, value) for value in values)


@dataclass(frozen=True)
class JointReport:
    """Scheme joint: one round seen at both levels."""

    clients: DistanceHistogram | None
    records: CumulativeMoments | None


RoundReport = DistanceHistogram | CumulativeMoments | JointReport


def histogram_in(report: RoundReport | None) -> DistanceHistogram | None:
    """Return the part of the report on clients' distances."""
    if isinstance(report, JointReport):
        return report.clients
    return report if isinstance(report, DistanceHistogram) else None


def moments_in(report: RoundReport | None) -> CumulativeMoments | None:
    """Return the part of the report on records."""
    if isinstance(report, JointReport):
        return report.records
    return report if isinstance(report, CumulativeMoments) else None


def report_to_dict(report: RoundReport | None) -> dict[str, Any] | None:
    """Return JSON of the report. None (no estimate: charge the worst case) stays None."""
    match report:
        case None:
            return None
        case DistanceHistogram(counts, size, noise):
            reported: dict[str, Any] = {"counts": list(counts)}
            return reported if size is None else {**reported, "sample_size": size, "count_noise": noise}
        case CumulativeMoments(filter_moment, moments, complete, papers, records):
            reported = {"filter": filter_moment, "moments": list(moments), "complete": complete}
            context_fields = {"papers": None if papers is None else list(papers), "records": records}
            return reported | {name: value for name, value in context_fields.items() if value is not None}
        case JointReport(clients, records):
            return {"clients": report_to_dict(clients), "records": report_to_dict(records)}


def report_from_dict(value: Mapping[str, Any] | None) -> RoundReport | None:
    """Inverse of `report_to_dict`.

    Raises:
        InvalidArgument: no known form, fields that it does not have, or numbers that are no report.
    """
    if value is not None and set(value) == {"clients", "records"}:
        clients, records = (_single(value[name]) for name in ("clients", "records"))
        if not isinstance(clients, DistanceHistogram | None) or not isinstance(records, CumulativeMoments | None):
            raise InvalidArgument("report", "has a histogram of clients and moments of records, in this order")
        return JointReport(clients, records)
    return _single(value)


def _single(value: object) -> DistanceHistogram | CumulativeMoments | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        names = set(fields)
        if names in ({"counts"}, {"counts", "sample_size", "count_noise"}):
            size, noise = fields.get("sample_size"), fields.get("count_noise", 0.0)
            if ("sample_size" in names) == (size is not None):
                return DistanceHistogram(_listed("counts", fields["counts"]), size, noise)
        if {"filter", "moments", "complete"} <= names <= {"filter", "moments", "complete", "papers", "records"}:
            return _moments(fields)
    raise InvalidArgument("report", "is neither a histogram nor cumulative moments")


def _moments(fields: Mapping[str, Any]) -> CumulativeMoments:
    complete = fields["complete"]
    if not isinstance(complete, bool):
        raise InvalidArgument("complete", "is not true or false")
    context_fields = {name: fields[name] for name in ("papers", "records") if name in fields}
    # They are left out, not null: one report has one text.
    if None in context_fields.values():
        raise InvalidArgument("report", "names papers or records, and has none")
    papers = _listed("papers", context_fields["papers"]) if "papers" in context_fields else None
    moments = _listed("moments", fields["moments"])
    return CumulativeMoments(fields["filter"], moments, complete, papers, context_fields.get("records"))


def _listed(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidArgument(name, "is not a list")
    return tuple(cast("list[Any]", value))
