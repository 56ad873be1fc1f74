"""Parquet and Arrow files by groups of rows: the same cells as pyarrow's own reading, and little of them in memory."""

from __future__ import annotations

import datetime
import decimal
import os
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from client_sdk.data import DataError, LazyTable, Table, list_parquet, load, one_per_patient, records_of
from client_sdk.data import row_groups as module

arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
feather: Any = pytest.importorskip("pyarrow.feather")
parquet: Any = pytest.importorskip("pyarrow.parquet")

ROWS = 50
FORMS = ("a.parquet", "a.arrow", "plain.feather")


def columns() -> dict[str, Any]:
    """Of every kind that hospitals have; in `mixed` only the last group holds a text."""
    draw = np.random.default_rng(3)
    absent = draw.random(ROWS) < 0.2
    return {
        "who": [f"{row // 2:03}" for row in range(ROWS)],
        "age": draw.uniform(18, 90, ROWS),
        "half": arrow.array(draw.uniform(0, 1, ROWS).astype(np.float32), mask=absent),
        "stay": arrow.array(draw.integers(0, 9, ROWS), mask=absent),
        "ward": arrow.array(draw.choice(["a", " b", "07"], ROWS), mask=absent).dictionary_encode(),
        "mixed": ["7"] * (ROWS - 1) + ["unknown"],
        "ill": arrow.array(draw.random(ROWS) < 0.5, mask=absent),
        "dose": arrow.array([decimal.Decimal(row) / 4 for row in range(ROWS)]),
        "day": arrow.array([datetime.date(2024, 1, 1 + row % 28) for row in range(ROWS)]),
    }


def written(folder: Path, form: str, table: Any = None, size: int = 7) -> Path:
    table, path = arrow.table(columns()) if table is None else table, folder / form
    if form.endswith(".parquet"):
        parquet.write_table(table, path, row_group_size=size)
    else:
        feather.write_feather(table, path, chunksize=size, compression="uncompressed" if "plain" in form else "lz4")
    return path


def lazily(path: Path, **more: Any) -> LazyTable:
    found = load(path, lazy=True, **more)
    assert isinstance(found, LazyTable)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_order_are_those_that_pyarrow_reads(tmp_path: Path, form: str) -> None:
    table = arrow.table(columns())
    found = lazily(written(tmp_path, form), patient_column="who")
    whole = Table.of(table.to_pydict(), patient_column="who")
    assert found.names == tuple(whole.columns)
    assert (found.patients, found.named) == (whole.patients, True)
    assert found.patients[14] == "007"
    assert np.diff(found.file.starts).tolist() == [7] * 7 + [1]
    rows = [49, 0, 13, 14, 0, 6, 7]
    for view, places in ((found.read(rows), rows), (found.take(rows).read([2, 0]), [13, 49])):
        assert view.patients == tuple(whole.patients[place] for place in places)
        for name, column in whole.take(places).columns.items():
            np.testing.assert_array_equal(view.columns[name], column, err_msg=name)
    parts = list(found.parts(["age", "ward"]))
    np.testing.assert_array_equal(np.concatenate([part.columns["age"] for part in parts]), whole.columns["age"])


@pytest.mark.parametrize("form", FORMS)
def test_in_memory_it_is_the_table_that_pyarrow_reads(tmp_path: Path, form: str) -> None:
    found = load(written(tmp_path, form), patient_column="who")
    assert isinstance(found, Table)
    for name, column in Table.of(arrow.table(columns()).to_pydict(), patient_column="who").columns.items():
        assert found.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(found.columns[name], column, err_msg=name)


def test_a_large_file_is_read_on_demand_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "a.parquet")
    monkeypatch.setattr("client_sdk.data.lazy.LARGE", ROWS * 9 * 8)
    assert isinstance(load(path), Table)
    monkeypatch.setattr("client_sdk.data.lazy.LARGE", ROWS * 9 * 8 - 1)
    assert isinstance(load(path), LazyTable)
    assert isinstance(load(path, lazy=False), Table)


@pytest.mark.parametrize("form", FORMS)
def test_groups_are_decoded_once_and_few_are_held(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[tuple[int, tuple[str, ...]]] = []
    name = "_parquet_group" if form.endswith(".parquet") else "_arrow_group"
    own = cast("Any", getattr(module, name))

    def counting(file: Any, group: int, names: tuple[str, ...]) -> Any:
        decoded.append((group, names))
        return own(file, group, names)

    monkeypatch.setattr(module, name, counting)
    # Two groups of one column of floats, with or without a byte of what is missing.
    monkeypatch.setattr(module, "HELD", 3 * 7 * 8 - 1)
    found = lazily(written(tmp_path, form))
    module._held.clear()
    found.read([0, 20, 3, 21, 1, 22], ["age"])
    assert decoded == [(0, ("age",)), (2, ("age",)), (3, ("age",))]
    assert sum(one.nbytes for one, _ in module._held.values()) < 3 * 7 * 8
    found.read([21, 15], ["age"])
    assert len(decoded) == 3
    found.read([0], ["age"])
    assert decoded[3:] == [(0, ("age",))]


def test_a_group_larger_than_what_is_held_is_held_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD", 1)
    found = lazily(written(tmp_path, "a.parquet"))
    found.read([0, 20, 40], ["age"])
    assert len(module._held) == 1


def test_rows_without_patients_are_named_by_their_place(tmp_path: Path) -> None:
    found = lazily(written(tmp_path, "a.parquet"))
    assert not found.named
    assert found.take([3, 1]).patients == ("row-3", "row-1")
    assert records_of(found) is found


def test_one_row_of_each_patient(tmp_path: Path) -> None:
    found = one_per_patient(lazily(written(tmp_path, "a.parquet"), patient_column="who"))
    assert found.rows.tolist() == list(range(0, ROWS, 2))


def test_another_process_reads_the_same(tmp_path: Path) -> None:
    found = lazily(written(tmp_path, "a.parquet"), patient_column="who")
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.read([30, 2]).columns["age"], found.read([30, 2]).columns["age"])


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_has_changed_or_gone_is_refused(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form)
    found = lazily(path)
    written(tmp_path, form, arrow.table(columns()).slice(0, 40))
    with pytest.raises(DataError, match="has changed since the records were loaded"):
        found.read([0])
    path.unlink()
    with pytest.raises(DataError, match="has changed since"):
        found.read([20])
    with pytest.raises(DataError, match="there is no such file"):
        load(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lazy", [True, False], ids=["on demand", "in memory"])
def test_files_that_are_no_tables_are_refused(tmp_path: Path, form: str, lazy: bool) -> None:
    path = written(tmp_path, form)
    data = path.read_bytes()
    for broken in (data[:-20], b"secret" * 40):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"not a whole (Parquet|Arrow) file") as caught:
            load(path, lazy=lazy)
        assert "secret" not in str(caught.value)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        load(path, lazy=lazy)
    with pytest.raises(DataError, match="at least one column and one row"):
        load(written(tmp_path, form, arrow.table({"x": arrow.array([], arrow.float64())})), lazy=lazy)
    twice = arrow.Table.from_arrays([arrow.array([1.0]), arrow.array([2.0])], names=["x", "x"])
    if form.endswith(".parquet"):
        with pytest.raises(DataError, match="two columns of the table have one name"):
            load(written(tmp_path, form, twice), lazy=lazy)
    with pytest.raises(DataError, match="'whom' among the 9 columns; did you mean 'who'"):
        load(written(tmp_path, form), patient_column="whom", lazy=lazy)
    without = arrow.table({"x": [1.0, 2.0], "who": ["a", None]})
    with pytest.raises(DataError, match="1 of 2 records have no patient identifier, the first in row 2"):
        load(written(tmp_path, form, without), patient_column="who", lazy=lazy)


@pytest.mark.parametrize("form", FORMS)
def test_pages_broken_in_the_middle_are_found_when_they_are_read(tmp_path: Path, form: str) -> None:
    table = arrow.table({"x": np.arange(4000.0), "y": [f"secret {row}" for row in range(4000)]})
    path = written(tmp_path, form, table, size=1000)
    found = lazily(path)
    data = bytearray(path.read_bytes())
    # The times of the file are set back, so that it is found by what it holds. Uncompressed numbers have no sum.
    about = path.stat()
    data[8 : len(data) // 2] = b"\xff" * (len(data) // 2 - 8)
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(DataError) as caught:
        found.read([0, 1500], ["x", "y"])
    assert "secret" not in str(caught.value)


def test_a_column_of_lists_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    table = arrow.table({"x": [1.0, 2.0], "codes": [["a"], ["b", "c"]]})
    found = lazily(written(tmp_path, "a.parquet", table))
    assert found.read([1], ["x"]).columns["x"].tolist() == [2.0]
    with pytest.raises(DataError, match="column codes holds several values in a row"):
        found.read([1])


def test_a_text_table_is_not_read_on_demand(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="a text table is read into memory as a whole"):
        load(tmp_path / "a.csv", lazy=True)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "a.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'wardround\[parquet\]'"):
        list_parquet(path)
