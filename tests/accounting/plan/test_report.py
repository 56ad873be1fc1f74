"""Reports: distances rounded up to public bins, JSON and back, and what is no report."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidArgument
from accounting.plan.report import (
    DISTANCE_BINS,
    CumulativeMoments,
    DistanceHistogram,
    JointReport,
    distance_bin,
    distance_edges,
    histogram_in,
    moments_in,
    report_from_dict,
    report_to_dict,
)

CLIENTS = DistanceHistogram((1, 0, 2))
RECORDS = CumulativeMoments(0.5, (0.25, 1.0), complete=True, papers=(0.1, 0.2), records=30.0)


@given(st.floats(1e-6, 1e6), st.floats(0, 1))
def test_a_distance_lies_in_the_first_bin_that_is_not_below_it(top, share) -> None:
    edges, distance = distance_edges(top), share * top
    place = distance_bin(distance, top)
    assert distance <= edges[place]
    assert place == 0 or edges[place - 1] < distance
    assert edges[-1] == top
    assert len(edges) == DISTANCE_BINS
    assert all(a < b for a, b in pairwise(edges))


@pytest.mark.parametrize("distance", [None, 1.0000001, math.inf, math.nan])
def test_an_unknown_or_impossible_distance_counts_at_the_clip_norm(distance) -> None:
    assert distance_bin(distance, 1.0) == DISTANCE_BINS - 1


@pytest.mark.parametrize(
    "report",
    [
        None,
        CLIENTS,
        RECORDS,
        DistanceHistogram((-3, 9), 6, 2.5),
        CumulativeMoments(0.0, (0.0,)),
        JointReport(CLIENTS, RECORDS),
        JointReport(None, RECORDS),
        JointReport(CLIENTS, None),
    ],
)
def test_json_and_back(report) -> None:
    assert report_from_dict(json.loads(json.dumps(report_to_dict(report)))) == report


def test_what_a_report_says_of_each_level() -> None:
    both = JointReport(CLIENTS, RECORDS)
    assert [histogram_in(x) for x in (None, CLIENTS, RECORDS, both)] == [None, CLIENTS, None, CLIENTS]
    assert [moments_in(x) for x in (None, CLIENTS, RECORDS, both)] == [None, None, RECORDS, RECORDS]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"counts": []},
        {"counts": [1.5]},
        {"counts": [-1]},
        {"counts": [1], "count_noise": 2.0},
        {"counts": [1], "sample_size": 1},
        {"filter": 0.1},
        {"filter": math.nan, "moments": [0.1]},
        {"filter": 0.1, "moments": [-0.1]},
        {"filter": 0.1, "moments": [0.1], "records": -1.0},
        {"filter": 0.1, "moments": [0.1], "more": 1},
    ],
)
def test_what_is_no_report_is_refused(value) -> None:
    with pytest.raises(InvalidArgument):
        report_from_dict(value)


def test_the_largest_of_several_holds_for_all() -> None:
    largest = CumulativeMoments.largest([CumulativeMoments(1.0, (1.0, 5.0)), CumulativeMoments(2.0, (3.0, 0.5))])
    assert largest == CumulativeMoments(2.0, (3.0, 5.0))
    for reports in ([], [CumulativeMoments(1.0, (1.0,)), CumulativeMoments(1.0, (1.0, 2.0))]):
        with pytest.raises(InvalidArgument):
            CumulativeMoments.largest(reports)


@pytest.mark.parametrize("moments", [[1.0, True], [True, True], [1.0, None], [1.0, "2"], []])
def test_bounds_are_numbers_each_by_itself(moments: list[Any]) -> None:
    """In an array true is 1: one report would have two texts."""
    with pytest.raises(InvalidArgument, match=r"^moments:"):
        report_from_dict({"filter": 1.0, "moments": moments, "complete": False})


def test_whole_numbers_of_any_size_are_read_as_floats() -> None:
    """Beside 2⁷⁰ numpy would make objects of all of them, which no account can add up."""
    report = report_from_dict({"filter": 2**70, "moments": [3, 4], "complete": False})
    assert report == CumulativeMoments(float(2**70), (3.0, 4.0))
    assert [type(value) for value in (report.filter, *report.moments)] == [float] * 3  # type: ignore[union-attr]
