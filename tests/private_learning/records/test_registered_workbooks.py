"""A format that a program adds for workbooks is asked before they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from private_learning.records import DataError, Table, load
from private_learning.records.formats import FORMATS, RecordFormat


def test_a_registered_format_reads_a_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="a workbook is read through a snapshot"):
        load(path)
    table = Table.of({"age": [1.0]})
    mine = RecordFormat((".xlsx",), lambda path, options: table, holds=lambda path: path.suffix == ".xlsx")
    monkeypatch.setitem(FORMATS, "mine", mine)
    assert load(path) is table
