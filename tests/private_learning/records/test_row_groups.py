"""Parquet and Arrow files that promise more than they hold end no process and fill no memory."""

from pathlib import Path

import numpy as np
import pytest

from private_learning.records.records import DataError
from private_learning.records.row_groups import parts_of

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

ROWS = 2_000_000


def test_a_long_word_in_every_row_is_held_once(tmp_path: Path) -> None:
    # 131 GB, if each row held it.
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["w" * 65_536]))
    path = tmp_path / "words.parquet"
    parquet.write_table(pa.table({"word": coded}), path, row_group_size=ROWS, store_schema=False)
    assert path.stat().st_size < 100_000
    found = parts_of(path)
    names = found.identifiers(0, "word")
    assert len(names) == ROWS
    assert set(names) == {"w" * 65_536}
    assert len(found.cells(0, "word")) == ROWS


def test_more_rows_than_such_a_file_can_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.arrow"
    feather.write_feather(pa.table({"seen": pa.nulls(200_000_000)}), path, chunksize=200_000_000)
    with pytest.raises(DataError, match=r"unpacked it would take 1\.5 GiB"):
        parts_of(path)


def test_cells_of_a_fixed_width_are_counted_by_their_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("study_protocol.cells.unpacking.MAX_UNPACKED", 1 << 20)
    path = tmp_path / "wide.parquet"
    parquet.write_table(pa.table({"wide": pa.array([bytes(65_536)] * 1000, pa.binary(65_536))}), path)
    assert 200 * path.stat().st_size < 1000 * 65_536
    with pytest.raises(DataError, match="unpacked it would take"):
        parts_of(path)


def test_words_of_every_type_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = 30_000
    # More distinct words than a dictionary page takes: the rest of the column is stored without one.
    many = pa.array([f"{number % 20_000:0200d}" for number in range(rows)])
    few = pa.array([None if number % 7 == 0 else "abc"[number % 3] for number in range(rows)])
    table = pa.table(
        {
            "many": many,
            "few": few,
            "large": few.cast(pa.large_string()),
            "bytes": few.cast(pa.binary()),
            "coded": few.dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "words.parquet", row_group_size=rows)
    found = parts_of(tmp_path / "words.parquet")
    for name in table.column_names:
        assert found.identifiers(0, name) == (many if name == "many" else few).to_pylist(), name
