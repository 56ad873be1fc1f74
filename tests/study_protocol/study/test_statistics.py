"""The section of a study that allows questions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from accounting.plan.queries import MOST_CELLS, MOST_QUERIES
from study_protocol.study.statistics import Statistics


def test_it_is_planned_as_it_is_written() -> None:
    plan = Statistics(max_queries=7, max_cells=30, allowance=0.25).plan()
    assert (plan.max_queries, plan.max_cells, plan.allowance) == (7, 30, 0.25)
    assert Statistics(max_queries=7, max_cells=30).plan().allowance is None


@pytest.mark.parametrize(
    "entries",
    [
        {"max_queries": 0},
        {"max_queries": MOST_QUERIES + 1},
        {"max_cells": MOST_CELLS + 1},
        {"max_cells": 1.0},
        {"suppress_below": -1},
        {"suppress_below": 1001},
        {"allowance": 0.0},
    ],
    ids=str,
)
def test_numbers_beyond_their_range_are_refused(entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Statistics.model_validate({"max_queries": 1, "max_cells": 1} | entries)
