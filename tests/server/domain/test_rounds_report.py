from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accounting.plan.report import CumulativeMoments, DistanceHistogram
from server.domain.admission import Findings
from server.domain.rounds import Attendance, masked_round_report, round_report
from tests.factories.settings import settings

NOBODY = frozenset[str]()
CLIENT = settings(scheme="client", bayesian=True)
PARALLEL = settings(bayesian=True)


def silent(missing: int) -> Attendance:
    return Attendance(NOBODY, NOBODY, frozenset(f"m{i}" for i in range(missing)), NOBODY)


def reported(filter: float, *moments: float) -> Findings:
    return Findings(None, CumulativeMoments(filter, moments))


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(0, 5))
def test_no_distance_is_counted_below_itself(distances: list[float], missing: int) -> None:
    report = round_report(CLIENT, [Findings(d, None) for d in distances], silent(missing))
    if not distances and not missing:
        assert report is None
        return
    assert isinstance(report, DistanceHistogram)
    assert sum(report.counts) == len(distances) + missing
    # However far up one looks, at least as many are counted there as there really are.
    edges = [(k + 1) / len(report.counts) for k in range(len(report.counts))]
    for k, edge in enumerate(edges):
        assert sum(report.counts[k + 1 :]) >= sum(d > edge for d in distances) + (missing if edge < 1 else 0)
    # And none is rounded up further than its own bin.
    assert report.counts[0] == sum(d <= edges[0] for d in distances) + (missing if len(edges) == 1 else 0)


def test_the_largest_of_the_reports_counts() -> None:
    report = round_report(PARALLEL, [reported(0.1, 0.5, 0.2), reported(0.3, 0.1, 0.4)], silent(0))
    assert report == CumulativeMoments(0.3, (0.5, 0.4))


def test_records_that_were_told_before_are_not_told_again() -> None:
    study = settings("sequential", masked=True, bayesian=True)
    everybody = frozenset("abcde")
    present = Attendance(everybody, NOBODY, NOBODY, everybody, survivors=everybody, enrolled=everybody)
    sums = {"papers": np.full(4, 0.01), "metrics": np.array([600.0])}
    for reported, expected in ((600.0, 600.0), (0.0, None)):
        report = masked_round_report(study, sums | {"metrics": np.array([reported])}, present, publishes=False)
        assert report is None or report.records == expected


def test_a_silent_hospital_may_be_the_one_that_spent_most() -> None:
    assert round_report(PARALLEL, [reported(0.1, 0.5)], silent(1)) is None


def test_nothing_reported_is_no_evidence() -> None:
    assert round_report(PARALLEL, [], silent(0)) is None
    assert round_report(settings(), [Findings(None, None)], silent(0)) is None
