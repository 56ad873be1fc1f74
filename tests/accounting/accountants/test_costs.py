"""One step, what was seen of it, and the rows it is charged to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting import InvalidArgument, Relation, log_moment, replace_one_moment, upper_mean
from accounting.accountants.costs import Measurement, Rows, Step
from accounting.estimation.upper_mean import Estimator, lower_counts

ORDERS = np.array([2.0, 4.0, 4.0])
STEP = Step(noise_std=2.0, sampling_rate=0.1, max_distance=1.0)


def test_a_row_that_repeats_an_order_costs_the_same() -> None:
    found = STEP.costs(ORDERS, np.array([0.2, 1.0]))
    exact = log_moment([2.0, 4.0], [0.2, 1.0], noise_std=2.0, sampling_rate=0.1)
    assert found.tolist() == [exact[0].tolist(), exact[1].tolist(), exact[1].tolist()]
    assert STEP.ceiling(ORDERS).tolist() == found[:, 1].tolist()


def test_the_ceiling_is_a_copy() -> None:
    STEP.ceiling(ORDERS)[:] = 0
    assert (STEP.ceiling(ORDERS) > 0).all()


def test_replacing_one_has_its_own_cost() -> None:
    step = Step(noise_std=2.0, sampling_rate=0.1, max_distance=1.0, relation=Relation.REPLACE_ONE)
    exact = replace_one_moment([2.0], [0.5], noise_std=2.0, sampling_rate=0.1)
    assert step.costs(np.array([2.0]), np.array([0.5])).tolist() == exact.tolist()


def test_without_a_clip_norm_there_is_no_ceiling() -> None:
    with pytest.raises(InvalidArgument, match="max_distance"):
        Step(noise_std=2.0, sampling_rate=0.1, max_distance=None).ceiling(ORDERS)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("distances", {"distances": [0.5, 1.5]}),
        ("distances", {"distances": [0.5, 0.5], "counts": [1, 2]}),
        ("count_noise", {"distances": [0.5], "count_noise": 2.0}),
        ("counts", {"distances": [0.5, 1.0], "counts": [1.5, 2]}),
        ("counts", {"distances": [0.5, 1.0], "counts": [0, 0]}),
        ("counts", {"distances": [0.5, 1.0], "counts": [1, 2, 3]}),
        ("sample_size", {"distances": [0.5, 1.0], "counts": [1, 2], "sample_size": 4}),
        ("sample_size", {"distances": [0.5, 1.0], "counts": [-1, 2], "count_noise": 2.0}),
        ("distances", {"distances": [0.2, 0.5], "counts": [-1, 2], "count_noise": 2.0, "sample_size": 9}),
    ],
)
def test_what_was_seen_is_checked_by_name(name: str, values: dict[str, Any]) -> None:
    given = {"counts": None, "count_noise": 0.0, "sample_size": None, "max_distance": 1.0} | values
    with pytest.raises(InvalidArgument) as error:
        Measurement.of(**given)
    assert error.value.argument == name


def test_counts_with_noise_are_moved_up_and_others_left() -> None:
    exact = Measurement.of([0.5, 1.0], [30, 10], 0.0, None, max_distance=1.0)
    noised = Measurement.of([0.5, 1.0], [30, 10], 2.0, 40, max_distance=1.0)
    assert np.asarray(exact.settled_counts(1e-6)).tolist() == [30, 10]
    assert (
        np.asarray(noised.settled_counts(1e-6)).tolist() == lower_counts([30, 10], 2.0, 1e-6, sample_size=40).tolist()
    )


def rows(estimator: Estimator) -> Rows:
    return Rows(np.array([2.0]), np.array([1e-3]), np.array([False]), estimator)


def test_a_row_reads_the_estimator_at_its_ceiling() -> None:
    values = np.array([0.0, 0.1, 0.2, 0.5 + 1e-12] * 20)
    found = rows("betting").bound(values, 1e-3, 0.5)
    assert found == upper_mean(np.minimum(values, 0.5), 1e-3, method="betting", log_max=0.5)


@pytest.mark.parametrize(("estimator", "top"), [("betting", math.inf), ("band", math.inf), ("student-t", 1.0)])
def test_a_row_without_an_estimate_is_infinite(estimator: Estimator, top: float) -> None:
    values = np.array([0.1, math.inf, 0.3]) if estimator == "student-t" else np.array([0.1, 0.2, 0.3])
    assert rows(estimator).bound(values, 1e-3, top) == math.inf
