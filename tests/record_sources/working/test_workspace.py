"""Columns get one type over all chunks, and mean what a CSV of the same rows means."""

from __future__ import annotations

import csv
import datetime
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow.parquet as pq
import pytest

from private_learning.records import Table, read_csv
from private_learning.records.table_files import read_parquet
from private_learning.tasks.columns import encode_columns, read_columns
from record_sources.errors import SourceError
from study_protocol.cells import read_categories
from tests.record_sources.working.filled import DAY, NOON, filled

NAMES = ("patient", "truth", "whole", "number", "exact", "day", "moment", "word", "code", "empty")
DECLARED = {
    "column.truth": "false|true; missing",
    "column.whole": "-5..5; missing=0",
    "column.number": "-1..1; missing=0",
    "column.exact": "0..100; missing=1",
    "column.day": "2019-01-01..2021-01-01; missing=2020-01-01",
    "column.moment": "2019-01-01..2021-01-01; missing=2020-01-01",
    "column.word": "x|y z; missing",
    "column.code": "1|2|3; missing",
    "column.empty": "0..1; missing=0",
}


def row(number: int) -> tuple[Any, ...]:
    """Cells of every type, many of them missing."""
    draw = random.Random(number)
    cells = (
        draw.random() < 0.5,
        draw.randrange(-5, 6),
        draw.uniform(-1, 1),
        Decimal(draw.randrange(10_000)).scaleb(-2),
        DAY + datetime.timedelta(draw.randrange(100)),
        NOON + datetime.timedelta(microseconds=draw.randrange(10**12)),
        draw.choice(["x", "y z", "", " x"]),
        Decimal(draw.randrange(1, 4)),
        None,
    )
    return (number, *(None if draw.random() < 0.2 else cell for cell in cells))


@pytest.mark.parametrize("chunk", [3, 100_000])
def test_a_snapshot_gives_the_tensors_of_a_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("record_sources.working.workspace._LARGEST_CHUNK", chunk)
    rows = [row(number) for number in range(100, 300)]
    snapshot = read_parquet(filled(tmp_path / "made", NAMES, rows), patient_column="patient")
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows])
    from_csv = read_csv(tmp_path / "t.csv", patient_column="patient")

    def tensors(table: Table) -> bytes:
        return encode_columns(read_columns(DECLARED), table.columns).tobytes()

    assert snapshot.patients == from_csv.patients
    assert tensors(snapshot) == tensors(from_csv)


def test_chunks_do_not_change_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(number) for number in range(200)]
    # Late and early nulls, empty texts, and numbers whose type changes late.
    rows += [(number, None, 5, 7, number, None, DAY, "", None, None) for number in range(20)]
    whole = filled(tmp_path / "whole", NAMES, rows).read_bytes()
    for chunk in (1, 7, 201):
        monkeypatch.setattr("record_sources.working.workspace._LARGEST_CHUNK", chunk)
        shuffled = random.Random(chunk).sample(rows, len(rows))
        assert filled(tmp_path / str(chunk), NAMES, shuffled).read_bytes() == whole


def test_patients_are_named_as_a_reader_names_them(tmp_path: Path) -> None:
    cells = [17, 17.0, Decimal("17.00"), "17.0", "\uff11\uff17", " A\u00ad1 ", UUID(int=10), DAY, "007"]
    path = filled(tmp_path, ["patient", "x"], [(cell, 1) for cell in cells])
    assert set(pq.read_table(path)["patient"].to_pylist()) == {"17", "A1", str(UUID(int=10)), "2020-02-29", "007"}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (None, "2 of 3 rows have no patient in column patient"),
        (" ", "2 of 3 rows have no patient in column patient"),
        (math.nan, "2 of 3 rows have no patient in column patient"),
        (1.5e300, "column patient: 2 of 3 cells hold a number whose last digits are lost"),
        ([1], "column patient: 2 of 3 cells hold neither a text nor a whole number"),
        (b"\xff", "column patient: 2 of 3 cells hold bytes"),
    ],
)
def test_rows_without_a_patient_are_counted(tmp_path: Path, cell: Any, words: str) -> None:
    with pytest.raises(SourceError) as error:
        filled(tmp_path, ["patient", "x"], [("a", 1), (cell, 2), (cell, 3)])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["patient", "x", "x"], "the names x stand for several columns"),
        (["patient", "Age", "age"], "the names Age, age stand for several columns"),
        (["patient", ""], "1 columns have no name"),
        ([], "0 columns have no name"),
        (["id"], "there is no column patient with the patient. There are id"),
    ],
)
def test_names_that_do_not_tell_columns_apart_are_refused(tmp_path: Path, names: list[str], words: str) -> None:
    with pytest.raises(SourceError) as error:
        filled(tmp_path, names, [])
    assert words in str(error.value)


def test_categories_of_exact_numbers_are_those_of_their_texts(tmp_path: Path) -> None:
    cells = [Decimal("0.10"), Decimal("2.00"), Decimal("0.3")]
    path = filled(tmp_path, ["patient", "x"], list(enumerate(cells)))
    places = read_categories(read_parquet(path, patient_column="patient").columns["x"], ("0.1", "2", "0.3")).places
    np.testing.assert_array_equal(places, [0, 1, 2])
