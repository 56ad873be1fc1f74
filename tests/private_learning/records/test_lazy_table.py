"""Tables read row group by row group say what the same files say in memory, and hold few of them."""

from __future__ import annotations

import builtins
import datetime
import decimal
import gc
import os
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from private_learning.records import DataError, LazyTable, Table, list_table, load, one_per_patient
from private_learning.records.lazy_table import Stored, stacked
from private_learning.records.row_groups import OpenFiles, Parts
from study_protocol.cells import Column, read_days, read_numbers

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ROWS = 40
_DRAW = np.random.default_rng(4)
DAY = datetime.date(2020, 2, 1)
# Every type that a column may have; of text, numbers first and words later, and numbers throughout.
COLUMNS: dict[str, list[Any]] = {
    "who": [f"p{row // 2}" for row in range(ROWS)],
    "real": [None if row % 7 == 3 else float(x) for row, x in enumerate(_DRAW.normal(size=ROWS))],
    "whole": [None if row == 11 else 2**53 + row for row in range(ROWS)],
    "full": list(range(ROWS)),
    "flag": [row % 3 == 0 if row != 5 else None for row in range(ROWS)],
    "exact": [decimal.Decimal(row).scaleb(-2) for row in range(ROWS)],
    "mixed": [f"{row}.50" if row < 30 else " ward a " for row in range(ROWS)],
    "digits": ["-0", " 007 ", None, "1e3", *[f"{row}.25" for row in range(ROWS - 4)]],
    "words": ["", "no", "yes", None, "NaT"] * (ROWS // 5),
    "day": [None if row == 2 else DAY + datetime.timedelta(days=row) for row in range(ROWS)],
    "late": [None] * 30 + ["x"] * 10,
}
ARROW = pyarrow.table(COLUMNS)
CODED = ARROW.set_column(0, "who", ARROW["who"].dictionary_encode())


def one_parquet(tmp_path: Path) -> Path:
    parquet.write_table(CODED, tmp_path / "a.parquet", row_group_size=7)
    return tmp_path / "a.parquet"


def one_group(tmp_path: Path) -> Path:
    parquet.write_table(ARROW, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def arrow_file(tmp_path: Path) -> Path:
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", ARROW.schema) as file:
        file.write_table(ARROW, max_chunksize=9)
    return tmp_path / "a.arrow"


def compressed_feather(tmp_path: Path) -> Path:
    feather: Any = pytest.importorskip("pyarrow.feather")
    feather.write_feather(CODED, str(tmp_path / "a.feather"), compression="zstd", chunksize=8)
    return tmp_path / "a.feather"


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "parts"
    made.mkdir()
    (made / "_SUCCESS").touch()
    parquet.write_table(ARROW.slice(0, 15), made / "part-0.parquet", row_group_size=4)
    # Its column `late` is of nothing but missing cells.
    parquet.write_table(ARROW.slice(15, 0), made / "part-1.parquet")
    rest = ARROW.slice(15).select(list(reversed(ARROW.column_names)))
    with pyarrow.ipc.new_file(made / "part-2.arrow", rest.schema) as file:
        file.write_table(rest, max_chunksize=10)
    return made


KINDS = [one_parquet, one_group, arrow_file, compressed_feather, folder]


def lazily(path: Path, **options: Any) -> LazyTable:
    found = load(path, lazy=True, **options)
    assert isinstance(found, LazyTable)
    return found


def same(one: Table, other: Table) -> None:
    assert set(one.columns) == set(other.columns)
    for name, column in other.columns.items():
        found = one.columns[name]
        assert found.tolist() == column.tolist(), name
        for read in (read_numbers, read_days):
            # Bits, so that −0 is not 0.
            assert read(found).values.tobytes() == read(column).values.tobytes(), name
    assert (one.patients, one.named, len(one)) == (other.patients, other.named, len(other))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_columns_read_on_demand_are_those_of_all_cells_in_memory(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    path = kind(tmp_path)
    there = lazily(path, patient_column="who")
    kinds = {"real": "f", "whole": "i", "full": "i", "flag": "b", "day": "M"}
    assert {name: there.columns[name].values.dtype.kind for name in kinds} == kinds
    assert all(there.columns[name].is_text for name in ("exact", "mixed", "digits", "words", "late"))
    # Lists with gaps are objects, each of which is written as a text; the files keep their types.
    assert there.columns["whole"].tolist() == COLUMNS["whole"]
    wanted = load(path, lazy=False, patient_column="who")
    assert isinstance(wanted, Table)
    same(there, wanted)
    for name in ("real", "whole", "full", "flag", "exact", "digits"):
        listed = Table.of(COLUMNS).columns[name]
        np.testing.assert_array_equal(read_numbers(wanted.columns[name]).values, read_numbers(listed).values)
    np.testing.assert_array_equal(
        read_days(wanted.columns["day"]).values, read_days(Table.of(COLUMNS).columns["day"]).values
    )
    here = load(path, lazy=False, patient_column="who")
    assert type(here) is Table
    same(here, wanted)
    few = [39, 0, 3, 3, 22]
    same(there.take(range(39, -1, -1)).take(few), wanted.take([39 - row for row in few]))
    same(there.read([]), wanted.take([]))
    assert one_per_patient(there).patients == tuple(f"p{row}" for row in range(ROWS // 2))
    assert "who" not in there.columns
    assert there.columns.get("who") is None
    # Nobody is named: every row is a patient.
    assert lazily(path).patients == tuple(f"row-{row}" for row in range(ROWS))


def test_a_table_after_another_keeps_both_apart(tmp_path: Path) -> None:
    one = lazily(one_parquet(tmp_path), patient_column="who")
    found = stacked([one.take([5, 1]), one.take([30])])
    assert found.patients == ("0/p2", "0/p0", "1/p15")
    wanted = Table.of(COLUMNS, patient_column="who").take([5, 1, 30])
    assert {name: found.columns[name].tolist() for name in ("full", "mixed")} == {
        name: wanted.columns[name].tolist() for name in ("full", "mixed")
    }
    assert found.first(np.array([False, False, True])) == "row 31 of table 2"
    # What one of them hides, both hide.
    assert "full" not in stacked([one.without_columns({"full"}), one]).columns


def test_a_large_table_is_read_on_demand_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one_parquet(tmp_path)
    assert type(load(path)) is Table
    monkeypatch.setattr("private_learning.records.lazy.LARGE", 1000)
    assert isinstance(load(path), LazyTable)
    assert type(load(path, lazy=False)) is Table


def test_what_is_held_of_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 100 row groups of 50 rows, 400 bytes a column: at most five are kept, and one more is being read.
    columns = {"a": np.arange(5000.0), "b": np.arange(5000.0) * 2}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=50)
    alive: list[weakref.ref[Any]] = []
    most = 0
    decode = Parts.cells

    def counted(self: Parts, part: int, name: str) -> Column:
        nonlocal most
        made = decode(self, part, name)
        alive.append(weakref.ref(made.values))
        most = max(most, sum(one() is not None for one in alive))
        return made

    monkeypatch.setattr(Parts, "cells", counted)
    stored = Stored([tmp_path / "a.parquet"], room=2000)
    rows = np.random.default_rng(1).permutation(5000)[:400]
    for _ in range(3):
        for name, values in columns.items():
            np.testing.assert_array_equal(stored.read(name, rows).values, values[rows])
    # One of the last row group may still have its name in the frame that read it.
    assert 5 <= most <= 7
    # Each row group once for a column, however its rows lie in the request.
    assert len(alive) <= 3 * 2 * 100


@pytest.mark.quick("compressed_feather")
@pytest.mark.parametrize("kind", [one_parquet, compressed_feather], ids=lambda kind: kind.__name__)
def test_threads_and_forks_read_a_file_that_stays_open(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    """Each through its own: all of them at once give what one alone gives."""
    stored, rows = Stored([kind(tmp_path)], room=0), np.arange(ROWS)
    wanted = {name: stored.read(name, rows).values.tobytes() for name in ("real", "whole", "flag")}

    def right(name: str) -> bool:
        return all(stored.read(name, rows).values.tobytes() == wanted[name] for _ in range(20))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(right, [*wanted] * 4))
    child = os.fork()
    if child == 0:
        os._exit(0 if all(map(right, wanted)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("kind", [one_parquet, arrow_file], ids=lambda kind: kind.__name__)
def test_a_file_is_opened_once_for_all_parts_of_a_column(
    tmp_path: Path, kind: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    real = OpenFiles.get

    def get(self: OpenFiles, key: object, open_it: Callable[[], Any]) -> Any:
        return real(self, key, lambda: (opened.append(key), open_it())[1])

    stored = Stored([kind(tmp_path)], room=0)
    monkeypatch.setattr(OpenFiles, "get", get)
    for _ in range(3):
        stored.read("real", np.arange(ROWS))
    assert len(opened) == 1


def test_few_files_stay_open_however_many_a_table_has(tmp_path: Path) -> None:
    for place in range(30):
        parquet.write_table(pyarrow.table({"x": [float(place)]}), tmp_path / f"{place:02d}.parquet")
    before = len(os.listdir("/proc/self/fd"))
    stored = Stored(sorted(tmp_path.iterdir()), room=0)
    assert stored.read("x", np.arange(30)).tolist() == list(range(30))
    assert len(os.listdir("/proc/self/fd")) - before <= 8
    del stored
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_another_process_reads_the_same(tmp_path: Path) -> None:
    found = lazily(folder(tmp_path), patient_column="who")
    same(pickle.loads(pickle.dumps(found)), found)


def test_only_columns_that_are_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    decode = Parts.column
    monkeypatch.setattr(Parts, "column", lambda self, part, name: (read.append(name), decode(self, part, name))[1])
    found = lazily(one_parquet(tmp_path), patient_column="who")
    assert set(read) == {"who"}
    read.clear()
    assert found.take([1, 8, 2]).columns["full"].tolist() == [1.0, 8.0, 2.0]
    assert read == ["full", "full"]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
def test_a_broken_or_changed_file_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"PAR1 or ARROW1, and then nothing of the kind")
    for lazy in (True, False):
        with pytest.raises(DataError, match=r"this is not a whole (Parquet|Arrow) file"):
            load(path, lazy=lazy)
    table = pyarrow.table({"x": [1.0, 2.0]})
    if name.endswith("parquet"):
        parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    found = lazily(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="has changed since it was opened"):
        found.columns["x"]
    path.unlink()
    with pytest.raises(DataError, match=r"column x: .* was moved"):
        found.columns["x"]
    with pytest.raises(DataError, match=name):
        lazily(path)


def test_broken_pages_name_the_column_and_no_cell(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"secret": ["x7y"] * 2000}), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="column secret: the file is broken there") as caught:
        lazily(path).columns["secret"]
    assert "x7y" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "patients", "message"),
    [
        ({"x": []}, None, "the table has no rows"),
        ({"x": [1.0]}, "who", "no patient column 'who' among the 1 columns"),
        ({"x": [1.0], "Whoo": ["a"]}, "whoo", "Did you mean 'Whoo'"),
        ({"x": [1.0] * 4, "who": ["a", None, "b", "nan"]}, "who", "2 of 4 records .* the first in row 2"),
    ],
    ids=["empty", "no-patient-column", "like-another", "gaps"],
)
@pytest.mark.parametrize("lazy", [True, False])
def test_a_table_that_cannot_be_used_is_refused(
    tmp_path: Path, columns: dict[str, Any], patients: str | None, message: str, lazy: bool
) -> None:
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=2)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "a.parquet", patient_column=patients, lazy=lazy)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": [1.0]}, "column 'y' is not in all 2 files"),
        ({"x": [1.0], "y": ["a"], "z": [1]}, "column 'z' is not in all 2 files"),
        ({"x": ["1"], "y": ["a"]}, "column 'x' is of another type in file 2 of 2"),
    ],
    ids=["lacks", "more", "type"],
)
def test_files_of_one_folder_have_the_same_columns(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    parquet.write_table(pyarrow.table({"x": [2], "y": ["b"]}), tmp_path / "0.parquet")
    parquet.write_table(pyarrow.table(other), tmp_path / "1.parquet")
    with pytest.raises(DataError, match=message):
        load(tmp_path, lazy=True)


@pytest.mark.parametrize("types", [("float32", "float64"), ("float16", "float32"), ("int64", "float32")])
def test_numbers_of_low_precision_stand_beside_no_others(tmp_path: Path, types: tuple[str, str]) -> None:
    """A code that 32 bits round would be missing in a row that is read alone, and a value beside rows of 64."""
    for place, kind in enumerate(types):
        parquet.write_table(pyarrow.table({"x": np.array([1, 2], kind)}), tmp_path / f"{place}.parquet")
    with pytest.raises(DataError, match="column 'x' is of another type in file 2 of 2 than before it: write it with"):
        load(tmp_path, lazy=True)


def test_several_files_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    for name, x in (("a", 1.0), ("b", 2.0)):
        parquet.write_table(pyarrow.table({"x": [x, x]}), tmp_path / f"{name}.parquet")
    found = list_table([tmp_path / "b.parquet", tmp_path / "a.parquet"])
    assert found.columns["x"].tolist() == [2.0, 2.0, 1.0, 1.0]
    assert found.take([3, 0]).first(np.array([True, True])) == "row 2 of file 2 of 2"


def test_lists_are_refused_only_where_they_are_needed(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"x": [1.0, 2.0], "seen": [[1], [2, 3]]}), tmp_path / "a.parquet")
    assert lazily(tmp_path / "a.parquet").columns["x"].tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match="column seen: its cells are lists or structures"):
        load(tmp_path / "a.parquet", lazy=False)


def test_patients_that_are_stored_as_bytes_are_called_by_their_text(tmp_path: Path) -> None:
    """Otherwise a list of patients to leave out, which is text, would name nobody."""
    who = pyarrow.array([b"17", b"18"])
    for stored in (who, who.cast(pyarrow.large_binary()), who.dictionary_encode()):
        parquet.write_table(pyarrow.table({"who": stored, "x": [1.0, 2.0]}), tmp_path / "a.parquet")
        assert lazily(tmp_path / "a.parquet", patient_column="who").patients == ("17", "18")
    parquet.write_table(pyarrow.table({"who": [b"\xff7"], "x": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column who: some of 1 cells cannot be read as text"):
        lazily(tmp_path / "a.parquet", patient_column="who")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="two columns of the table have one name"):
        lazily(tmp_path / "a.parquet")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.arrow").write_text("ARROW1")
    real = builtins.__import__

    def lacking(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(DataError, match=r"wardround\[parquet\]"):
        load(tmp_path / "a.arrow")
