"""Columns get one type over all chunks, and mean what a CSV of the same rows means."""

from __future__ import annotations

import csv
import datetime
import math
import random
from collections.abc import Sequence
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
from record_sources.snapshot.parquet import write_sorted
from record_sources.working.workspace import Workspace
from study_protocol.cells import read_categories

DAY, ZONED = datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 12, 0, 0, 250_000, datetime.UTC)
NOON = ZONED.replace(tzinfo=None)
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


def filled(folder: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """A Parquet file of these rows."""
    folder.mkdir(exist_ok=True)
    with Workspace(folder) as workspace:
        assert workspace.fill("t", columns, iter(rows), patient="patient") == len(rows)
        write_sorted(workspace, "t", "patient", folder / "t.parquet", one_row_each=False)
    return folder / "t.parquet"


def column(folder: Path, *cells: Any) -> list[Any]:
    path = filled(folder, ["patient", "x"], [(place, cell) for place, cell in enumerate(cells)])
    return pq.read_table(path).column("x").to_pylist()


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


def test_each_cell_keeps_its_meaning(tmp_path: Path) -> None:
    assert column(tmp_path / "a", 1, 2.5, None, Decimal("0.1")) == [1.0, 2.5, None, 0.1]
    assert column(tmp_path / "b", 2**53 + 1, -(2**62)) == [2**53 + 1, -(2**62)]
    assert column(tmp_path / "c", DAY, NOON) == [datetime.datetime(2020, 2, 29), NOON]  # noqa: DTZ001
    assert column(tmp_path / "d", math.nan, math.inf, Decimal("NaN")) == [None, math.inf, None]
    assert column(tmp_path / "e", UUID(int=1), datetime.time(8, 30), "é") == [str(UUID(int=1)), "08:30:00", "é"]
    assert column(tmp_path / "f", "", None, 3) == [None, None, 3]
    assert math.copysign(1, column(tmp_path / "g", -0.0)[0]) == -1
    assert column(tmp_path / "h", Decimal("5.00"), Decimal("7E+2")) == [5, 700]


def test_decimals_are_rounded_once_as_their_text(tmp_path: Path) -> None:
    exact = [Decimal(random.Random(n).randrange(10**20)).scaleb(-(n % 15) - 5) for n in range(200)]
    cells = dict(zip(map(str, range(200)), exact, strict=True))
    table = pq.read_table(filled(tmp_path, ["patient", "x"], list(cells.items())))
    stored = dict(zip(table["patient"].to_pylist(), table["x"].to_pylist(), strict=True))
    assert stored == {name: float(str(number)) for name, number in cells.items()}


@pytest.mark.parametrize("chunk", [1, 100_000])
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ((1, "secret", 2.5), "2 cells are numbers and 1 cells are texts. Make them of one type"),
        ((True, 1), "1 cells are Booleans and 1 cells are numbers"),
        ((DAY, "2020-01-01"), "1 cells are dates and 1 cells are texts"),
        ((ZONED, None, ZONED), "2 of 2 cells are times with a time zone"),
        ((b"secret", 1), "1 of 2 cells are of a type that no table holds (bytes)"),
        (([1], {"secret": 1}), "2 of 2 cells are of a type that no table holds (dict, list)"),
        ((2**53 + 1, 0.5), "1 of 2 whole numbers are too large"),
        ((0.5, 2**53 + 1), "1 of 2 whole numbers are too large"),
        ((2**63, 1), "1 of 2 whole numbers are too large"),
        ((Decimal("1E+999999"),), "1 of 1 whole numbers are too large"),
    ],
)
def test_cells_that_do_not_go_together_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, cells: tuple[Any, ...], words: str
) -> None:
    monkeypatch.setattr("record_sources.working.workspace._LARGEST_CHUNK", chunk)
    with pytest.raises(SourceError) as error:
        column(tmp_path, *cells)
    assert words in str(error.value)
    assert "table t: column x" in str(error.value)
    assert "secret" not in str(error.value)


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


def test_row_groups_have_a_fixed_length(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.fill("t", ["patient", "x"], ((n % 1000, n) for n in range(250_000)), patient="patient")
        write_sorted(workspace, "t", "patient", tmp_path / "t.parquet", one_row_each=False)
    metadata = pq.ParquetFile(tmp_path / "t.parquet").metadata
    assert [metadata.row_group(group).num_rows for group in range(3)] == [100_000, 100_000, 50_000]
    table = pq.read_table(tmp_path / "t.parquet")
    rows = list(zip(table["patient"].to_pylist(), table["x"].to_pylist(), strict=True))
    assert rows == sorted((str(n % 1000), n) for n in range(250_000))


def test_categories_of_exact_numbers_are_those_of_their_texts(tmp_path: Path) -> None:
    cells = [Decimal("0.10"), Decimal("2.00"), Decimal("0.3")]
    path = filled(tmp_path, ["patient", "x"], list(enumerate(cells)))
    places = read_categories(read_parquet(path, patient_column="patient").columns["x"], ("0.1", "2", "0.3")).places
    np.testing.assert_array_equal(places, [0, 1, 2])
