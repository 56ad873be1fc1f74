"""One record changes nothing of what another one says: from the bytes of a file to tensors and cells of questions."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_learning.records import DataError, Table, list_table, read_csv
from private_learning.records.table_format import TableFormat
from private_learning.tasks.columns import encode_columns, read_columns
from study_protocol.cells import Spelling, column_of, read_categories, read_days, read_numbers, read_presence

DECLARED = read_columns(
    {
        "column.a": "0..100",
        "column.b": "-5..5; missing=0; missing-values=-1|99.9|k.A.",
        "column.c": "1|2|NA|True|0744; missing",
        "column.d": "2000-01-01..2030-01-01; missing=2020-01-01",
    }
)
NAMES = [column.name for column in DECLARED]
CELL = st.one_of(
    st.sampled_from(["", "1", "2.0", "1,5", "1.5", "1.234", "1,234", "0744", "744", "NA", "true", "False"]),
    st.sampled_from(
        [
            "<0,1",
            "99.9",
            "2020-01-05",
            "2020-01-05 10:00",
            "5.1.2020",
            "1/2/2020",
            "k.A.",
            "-1",
            "1e3",
            "1E1",
            "é",
            "x y",
        ]
    ),
    st.floats(allow_nan=False, width=32).map(str),
)
ROW = st.lists(CELL, min_size=len(NAMES), max_size=len(NAMES))
SPELLING = st.builds(Spelling, st.sampled_from([None, "point", "comma"]), st.sampled_from([None, "dmy", "mdy"]))


def written(rows: list[list[str]]) -> bytes:
    lines = [";".join(["who", *NAMES]), *(";".join([f"p{place}", *row]) for place, row in enumerate(rows))]
    return ("\n".join(lines) + "\n").encode()


def read(data: bytes, spelling: Spelling) -> Table | None:
    """None: the file is refused."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(data)
        try:
            declared = TableFormat("semicolon", decimal=spelling.decimal, dates=spelling.dates)
            return read_csv(path, declared, patient_column="who")
        except DataError:
            return None


def said(table: Table, rows: list[int]) -> list[bytes]:
    """Of these rows, all that training and questions can take from them, in bits."""
    found = [encode_columns(DECLARED, table.columns, strict=False)[rows].tobytes()]
    for column in DECLARED:
        cells = table.columns[column.name]
        for reader in (read_numbers, read_days):
            numbers = reader(cells, ("-1", "99.9", "k.A."))
            found += [part[rows].tobytes() for part in (numbers.values, numbers.missing, numbers.wrong)]
        places = read_categories(cells, ("1", "2", "NA", "True", "0744"), ("-1",))
        found += [part[rows].tobytes() for part in (places.places, places.missing, places.wrong)]
        found.append(read_presence(cells)[rows].tobytes())
    return found


@settings(max_examples=300)
@given(st.lists(ROW, min_size=1, max_size=5), ROW, SPELLING)
def test_one_row_more_changes_nobody_else(rows: list[list[str]], more: list[str], spelling: Spelling) -> None:
    before, after = read(written(rows), spelling), read(written([*rows, more]), spelling)
    if before is not None and after is not None:
        everybody = list(range(len(rows)))
        assert said(before, everybody) == said(after, everybody)
        assert after.patients[:-1] == before.patients


@settings(max_examples=300)
@given(st.lists(ROW, min_size=2, max_size=5), st.data(), SPELLING)
def test_one_byte_of_one_row_changes_nobody_else(rows: list[list[str]], data: Any, spelling: Spelling) -> None:
    whole = written(rows)
    lines = whole.split(b"\n")
    row = data.draw(st.integers(0, len(rows) - 1))
    line = bytearray(lines[row + 1])
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    changed = b"\n".join([*lines[: row + 1], bytes(line), *lines[row + 2 :]])
    before, after = read(whole, spelling), read(changed, spelling)
    if before is not None and after is not None and len(after) == len(before):
        others = [place for place in range(len(rows)) if place != row]
        assert said(before, others) == said(after, others)
        assert [after.patients[place] for place in others] == [before.patients[place] for place in others]


VALUES: dict[str, Any] = {
    "objects": st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.text(), st.binary()),
    "float": st.one_of(st.none(), st.floats(width=32)),
    "int": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    "bytes": st.one_of(st.none(), st.sampled_from([b"1", b"\xff", b"x", "é".encode()])),
    "dates": st.one_of(st.none(), st.datetimes().map(lambda moment: moment.replace(microsecond=0))),
}


@given(st.sampled_from(sorted(VALUES)), st.data(), SPELLING)
def test_one_value_more_changes_no_other_in_memory(kind: str, data: Any, spelling: Spelling) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=5))
    more = data.draw(VALUES[kind])
    try:
        found = [Table.of(dict.fromkeys(NAMES, cells), spelling=spelling) for cells in (values, [*values, more])]
    except DataError:
        return
    everybody = list(range(len(values)))
    assert said(found[0], everybody) == said(found[1], everybody)


@settings(max_examples=60)
@given(st.sampled_from(["float", "int", "bytes", "dates"]), st.data(), SPELLING)
def test_one_value_more_changes_no_other_in_parquet(kind: str, data: Any, spelling: Spelling) -> None:
    arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    types = {"float": "float32", "int": "int32", "bytes": "binary", "dates": "timestamp[s]"}
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=5))
    more = data.draw(VALUES[kind])
    found: list[list[bytes]] = []
    for cells in (values, [*values, more]):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "a.parquet"
            column = arrow.array(cells, types[kind])
            parquet.write_table(arrow.table(dict.fromkeys(NAMES, column)), path, row_group_size=3)
            # Bytes that are no text are a cell of their own, too.
            found.append(said(list_table(path, spelling=spelling), list(range(len(values)))))
    assert found[0] == found[1]


def test_a_cell_in_doubt_is_doubted_alone() -> None:
    one = read_numbers(column_of(["1,5", "2", "<0,1"], spelling=Spelling(decimal="comma")))
    assert one.wrong.tolist() == [False, False, True]
    assert np.isnan(one.values).tolist() == [False, False, True]
