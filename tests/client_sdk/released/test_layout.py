"""How records become a model's inputs, as another program reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from client_sdk.released.layout import layout_of
from private_learning.records import Table
from private_learning.tasks import load
from private_learning.tasks.columns import encode_columns
from private_learning.tasks.tables import TableTask
from tests.factories.released import TABLE, TASKS

DATED = TABLE | {"column.admitted": "2020-01-01..2020-12-31", "column.bmi": "15..60; missing=30; missing-values=0|-1"}
SHAPED = DATED | {
    "column.chol": "0..400; missing=240; typical=150..300; log",
    "column.admitted": "2019-01-01..2020-12-31; typical=2020-03-01..2020-09-01",
    "column.thal": "3|6|7; missing; frequencies=55|5|40",
}


def test_every_column_has_its_place_its_range_and_what_means_missing() -> None:
    assert layout_of(load("logistic-regression", DATED)) == [
        # 1 January and 31 December 2020, in days.
        {
            "column": "admitted",
            "first": 0,
            "low": 18262,
            "high": 18627,
            "missing": None,
            "unit": "days since 1970-01-01",
            "missing_values": [],
        },
        {"column": "age", "first": 1, "low": 18, "high": 90, "missing": None, "missing_values": []},
        {"column": "bmi", "first": 2, "low": 15, "high": 60, "missing": 30, "missing_values": ["0", "-1"]},
        {"column": "chol", "first": 4, "low": 100, "high": 400, "missing": 240, "missing_values": []},
        {"column": "thal", "first": 6, "categories": ["3", "6", "7"], "missing": True, "missing_values": []},
    ]


@pytest.mark.parametrize("described", [DATED, SHAPED], ids=["ranges", "typical ranges"])
def test_inputs_that_are_made_by_the_layout_alone_are_the_task_s(described: dict[str, Any]) -> None:
    """As another program would: from the description, with pandas."""
    task = load("logistic-regression", described)
    assert isinstance(task, TableTask)
    frame = pd.DataFrame(
        {
            "age": [40.0, 100.0],
            "admitted": pd.to_datetime(["2020-07-01", "2019-01-01"]),
            "bmi": [0.0, 20.0],
            "chol": [np.nan, 300.0],
            "thal": ["7", None],
        }
    )
    inputs: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    for column in layout_of(task):
        assert column["first"] == len(inputs)
        cells = frame[column["column"]]
        absent = cells.isna() | cells.astype(str).isin([f"{float(code)}" for code in column["missing_values"]])
        if "categories" in column:
            shares = column.get("shares", [0.0] * len(column["categories"]))
            hits = [(cells == category).to_numpy(float) for category in column["categories"]]
            inputs += [np.where(absent, 0.0, hit - share) for hit, share in zip(hits, shares, strict=True)]
            inputs += [absent.to_numpy(float)] if column["missing"] else []
            continue
        numbers = cells
        if "unit" in column:
            numbers = (cells - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        if column["missing"] is not None:
            numbers = numbers.mask(absent, column["missing"])
        clipped = numbers.clip(column["low"], column["high"])
        first, last = column.get("typical", (column["low"], column["high"]))
        if "log_offset" in column:
            first, last, clipped = (np.log(value + column["log_offset"]) for value in (first, last, clipped))
        share = (clipped - first) / (last - first)
        inputs.append((2 * share - 1).to_numpy(float))
        inputs += [] if column["missing"] is None else [absent.to_numpy(float)]
    expected = encode_columns(task.columns, Table.of(frame).columns)
    np.testing.assert_allclose(np.stack(inputs, axis=1), expected, atol=1e-12)


def test_a_task_on_arrays_has_no_columns() -> None:
    assert layout_of(load("cnn", TASKS["cnn"])) == []
