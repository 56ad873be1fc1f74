from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accounting.plan.report import CumulativeMoments, DistanceHistogram, distance_edges
from server.domain.admission import Findings
from server.domain.report import Attended, masked_report, report_of
from tests.factories.settings import settings

EDGES = distance_edges(1.0)
CLIENT = settings(scheme="client", bayesian=True)
PARALLEL = settings(bayesian=True)


def reported(filter: float, *moments: float) -> Findings:
    return Findings(None, CumulativeMoments(filter, moments))


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(0, 5))
def test_no_distance_is_counted_below_itself(distances: list[float], missing: int) -> None:
    report = report_of(CLIENT, [Findings(d, None) for d in distances], missing=missing)
    if not distances and not missing:
        assert report is None
        return
    assert isinstance(report, DistanceHistogram)
    assert sum(report.counts) == len(distances) + missing
    # However far up one looks, at least as many are counted there as there really are.
    for k, edge in enumerate(EDGES):
        assert sum(report.counts[k + 1 :]) >= sum(d > edge for d in distances) + (missing if edge < 1 else 0)
    # And none is rounded up further than its own bin.
    assert sum(report.counts[:1]) == sum(d <= EDGES[0] for d in distances)


def test_the_largest_of_the_reports_counts() -> None:
    report = report_of(PARALLEL, [reported(0.1, 0.5, 0.2), reported(0.3, 0.1, 0.4)], missing=0)
    assert report == CumulativeMoments(0.3, (0.5, 0.4))


def test_records_that_were_told_before_are_not_told_again() -> None:
    study = settings("sequential", masked=True, bayesian=True)
    everybody = Attended(survivors=5, missing=0, complete=True, unreported=False)
    sums = {"papers": np.full(4, 0.01), "metrics": np.array([600.0])}
    for reported, expected in ((600.0, 600.0), (0.0, None)):
        report = masked_report(study, sums | {"metrics": np.array([reported])}, everybody, publishes=False)
        assert report is None or report.records == expected


def test_a_silent_hospital_may_be_the_one_that_spent_most() -> None:
    assert report_of(PARALLEL, [reported(0.1, 0.5)], missing=1) is None


def test_nothing_reported_is_no_evidence() -> None:
    assert report_of(PARALLEL, [], missing=0) is None
    assert report_of(settings(), [Findings(None, None)], missing=0) is None
