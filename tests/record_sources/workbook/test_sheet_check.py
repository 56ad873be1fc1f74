"""Unsafe files, and what a sheet hides from a reader of its cells."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.table import Table as ExcelTable
from openpyxl.worksheet.worksheet import Worksheet

from record_sources.errors import SourceError
from record_sources.workbook.sheet import read_sheet
from record_sources.workbook.sheet_check import column_letters, column_number
from tests.record_sources.workbook.workbooks import HEADER, ROWS, Change, rewritten, written


def test_a_workbook_that_is_no_safe_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.xlsx", [HEADER, *ROWS])
    with pytest.raises(SourceError, match=r"a.xlsx has no sheet Other. Its sheets are Sheet, Cohort"):
        read_sheet(path, "Other")
    for name, content in (("b.xlsx", b"no zip"), ("c.xlsx", path.read_bytes()[:-30]), ("d.xlsx", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=r"is no whole workbook. Open it"):
            read_sheet(tmp_path / name, "Cohort")
    (tmp_path / "locked.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    with pytest.raises(SourceError, match=r"is protected by a password, or is an old .xls file"):
        read_sheet(tmp_path / "locked.xlsx", "Cohort")
    with pytest.raises(SourceError, match=r"Save the workbook as .xlsx"):
        read_sheet(tmp_path / "old.xls", "Cohort")
    declared = ("<worksheet ", '<!DOCTYPE worksheet [<!ENTITY a "b">]><worksheet ')
    with pytest.raises(SourceError, match="is no whole workbook"):
        read_sheet(rewritten(path, "xl/worksheets/sheet2.xml", declared), "Cohort")
    monkeypatch.setattr("study_protocol.cells.unpacking.MAX_UNPACKED", 1 << 20)
    bomb = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(1 << 24))
    with pytest.raises(SourceError, match=r"bomb.xlsx: unpacked it would take"):
        read_sheet(bomb, "Cohort")


def test_two_cells_far_apart_take_no_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "a.xlsx", [HEADER, *ROWS], lambda sheet: sheet.cell(1_048_576, 16_384, "x"))
    with pytest.raises(SourceError, match="reach over 1048576 rows and 16384 columns, which is too much"):
        read_sheet(path, "Cohort")


def hidden_rows(sheet: Worksheet) -> None:
    sheet.row_dimensions[1].hidden = sheet.row_dimensions[3].hidden = sheet.row_dimensions[9].hidden = True


def some_percentages(sheet: Worksheet) -> None:
    sheet["C1"].number_format = sheet["C2"].number_format = "0.0 %"


def row_of_totals(sheet: Worksheet) -> None:
    sheet.append(["Total", 101, 1.75])
    table = ExcelTable(displayName="Patients", ref="A1:C5")
    table.totalsRowCount = 1
    sheet.add_table(table)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (hidden_rows, "1 rows are hidden"),
        (some_percentages, "column share: 1 of 3 numbers are shown as percentages"),
        (row_of_totals, "its table has a row of totals"),
    ],
)
def test_what_a_person_sees_otherwise_is_refused(change: Change, words: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"^a.xlsx, sheet Cohort: {words}[^\n]*$"):
        read_sheet(written(tmp_path / "a.xlsx", [HEADER[:3], *(row[:3] for row in ROWS)], change), "Cohort")


def test_letters_of_columns_are_those_of_excel() -> None:
    for place in (0, 25, 26, 701, 702, 16_383):
        assert column_letters(place) == get_column_letter(place + 1)
        assert column_number(column_letters(place)) == place
