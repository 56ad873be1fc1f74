"""Sheets of workbooks: cells as they are stored, and everything that a sheet hides is counted and refused."""

from __future__ import annotations

import zipfile
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openpyxl import Workbook
from openpyxl.utils.datetime import CALENDAR_MAC_1904
from openpyxl.worksheet.worksheet import Worksheet

from record_sources.errors import SourceError
from record_sources.workbook.sheet import read_sheet
from tests.record_sources.workbook.workbooks import HEADER, MANIFEST, MOMENT, ROWS, rewritten, written


def test_cells_are_read_as_they_are_stored(tmp_path: Path) -> None:
    def percent(sheet: Worksheet) -> None:
        for row in range(2, 5):
            sheet[f"C{row}"].number_format = "0.0%"
        sheet["B2"].number_format = '0 "% of all" \\%'
        sheet["H9"].number_format = "0%"

    found = read_sheet(written(tmp_path / "a.xlsx", [HEADER, *ROWS], percent), "Cohort")
    assert (found.columns, found.count) == (tuple(HEADER), 3)
    rows = list(found.rows())
    assert rows == ROWS
    assert [type(row[1]) for row in rows] == [int, type(None), int]


def test_a_table_may_start_anywhere_and_its_sheet_may_be_hidden(tmp_path: Path) -> None:
    def hide(sheet: Worksheet) -> None:
        sheet.sheet_state = "hidden"
        sheet.merge_cells("A1:C1")

    rows = [
        ["Cohort of 2026"],
        [],
        [None, "patient", None, "ill"],
        [None, "a", None, True],
        [None, "b", None, False],
        [None],
    ]
    found = read_sheet(written(tmp_path / "a.xlsx", rows, hide), "Cohort", 3)
    assert (found.columns, list(found.rows())) == (("patient", "ill"), [["a", True], ["b", False]])


@pytest.mark.parametrize("epoch", [None, CALENDAR_MAC_1904])
def test_days_do_not_depend_on_the_date_system(tmp_path: Path, epoch: datetime | None) -> None:
    book = Workbook()
    book.epoch = epoch or book.epoch
    sheet = book.create_sheet("Cohort")
    for row in (["patient", "day", "moment"], ["a", date(2020, 2, 29), MOMENT]):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    rows = list(read_sheet(tmp_path / "a.xlsx", "Cohort").rows())
    assert rows == [["a", date(2020, 2, 29), MOMENT]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["patient", "x"], ["a", "=1+1"], ["b", "=A1"]], "column B: 2 formulas have no value"),
        ([["patient", "x"], ["a", "#N/A"], ["b", 1]], "column B: 1 cells have an error"),
        ([["patient", "x"], ["a", 1], ["b", "two"], ["c", 3]], "column x mixes 1 texts and 2 numbers"),
        ([["patient", "x"], ["a", 1], ["b", date(2020, 1, 1)]], "column x mixes 1 numbers and 1 dates"),
        ([["patient", "x"], ["a", 1], ["b", True]], "column x mixes 1 numbers and 1 Booleans"),
        ([["patient", "x"], [4000123412341234, 1]], "column patient: 1 numbers have more than 15 digits"),
        ([["patient", "x"], ["a", timedelta(hours=30)]], "column x: 1 cells are times of day or durations"),
        ([["patient", "x", "X"], ["a", 1, 2]], "2 columns have the name x"),
        ([["patient", None, "x"], ["a", 1, 2], ["b", None, 3]], "column B has no name, but 1 cells"),
        ([["patient"], ["a", 1], ["b", 1]], "column B has no name, but 2 cells"),
        ([["patient", " "], ["a", 1]], "column B has no name, but 1 cells"),
        ([["patient", 2020], ["a", 1]], "column B: its name is no text"),
        ([[], ["patient"], ["a"]], "row 1 has no names of columns"),
    ],
)
def test_what_a_table_cannot_hold_is_counted(tmp_path: Path, rows: list[list[Any]], words: str) -> None:
    path = written(tmp_path / "a.xlsx", rows)
    with pytest.raises(SourceError, match=words) as refused:
        read_sheet(path, "Cohort")
    assert str(refused.value).startswith("a.xlsx, sheet Cohort: ")
    assert "two" not in str(refused.value)
    assert "4000" not in str(refused.value)


@pytest.mark.parametrize("merged", ["A1:B1", "A2:A3", "B3:C4"])
def test_merged_cells_are_refused(tmp_path: Path, merged: str) -> None:
    path = written(tmp_path / "a.xlsx", [HEADER, *ROWS], lambda sheet: sheet.merge_cells(merged))
    with pytest.raises(SourceError, match="1 merged ranges in the header or the rows"):
        read_sheet(path, "Cohort")


def test_a_formula_with_its_value_is_read(tmp_path: Path) -> None:
    """As Excel stores it, also one that gives an empty text."""
    path = rewritten(
        written(tmp_path / "a.xlsx", [["patient", "x", "y"], ["a", "=1+1", '=""'], ["b", 3, "z"]]),
        "xl/worksheets/sheet2.xml",
        ("<f>1+1</f><v />", "<f>1+1</f><v>2</v>"),
        ('<c r="C2"><f>""</f><v />', '<c r="C2" t="str"><f>""</f><v></v>'),
    )
    assert list(read_sheet(path, "Cohort").rows()) == [["a", 2, None], ["b", 3, "z"]]


def ods(path: Path, rows: str) -> Path:
    names = "urn:oasis:names:tc:opendocument:xmlns:"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", f"<m:manifest xmlns:m={MANIFEST}/>")
        archive.writestr(
            "content.xml",
            f'<office:document-content xmlns:office="{names}office:1.0" xmlns:table="{names}table:1.0" '
            f'xmlns:text="{names}text:1.0"><office:body><office:spreadsheet><table:table table:name="Cohort">'
            f"{rows}</table:table></office:spreadsheet></office:body></office:document-content>",
        )
    return path


def cell(text: str, more: str = 'office:value-type="string"') -> str:
    return f"<table:table-cell {more}><text:p>{text}</text:p></table:table-cell>"


def row(*cells: str) -> str:
    return f"<table:table-row>{''.join(cells)}</table:table-row>"


NAMES = row(cell("patient"), cell("x"))
NUMBER = 'office:value-type="float" office:value="2"'


def test_an_opendocument_sheet_is_read(tmp_path: Path) -> None:
    rows = NAMES + row(cell("007"), cell("2", f'table:formula="of:=1+1" {NUMBER}'))
    cells = '<table:table-cell table:number-columns-repeated="16384"/>'
    empty = f'<table:table-row table:number-rows-repeated="1048000">{cells}</table:table-row>'
    found = read_sheet(ods(tmp_path / "a.ods", rows + empty), "Cohort")
    assert (found.columns, list(found.rows())) == (("patient", "x"), [["007", 2]])


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (cell("", 'table:formula="of:=1+1"'), "column B: 1 formulas have no value"),
        (cell("#N/A", 'table:formula="of:=NA()" office:value-type="string"'), "column B: 1 cells have an error"),
        (cell("2", f'table:number-rows-spanned="2" {NUMBER}'), "1 merged ranges"),
        (cell("2", f'table:number-columns-repeated="900000000" {NUMBER}'), "reach over 3 rows and 900000001 columns"),
    ],
)
def test_what_an_opendocument_sheet_hides_is_counted(tmp_path: Path, second: str, words: str) -> None:
    path = ods(tmp_path / "a.ods", NAMES + row(cell("a"), second) + row(cell("b"), cell("2", NUMBER)))
    with pytest.raises(SourceError, match=words):
        read_sheet(path, "Cohort")


def test_an_ods_sheet_hides_no_row_and_no_percentage(tmp_path: Path) -> None:
    def cell(kind: str, content: str) -> str:
        attributes = f'office:value-type="{kind}"' + (f' office:value="{content}"' if kind != "string" else "")
        return f"<table:table-cell {attributes}><text:p>{content}</text:p></table:table-cell>"

    rows = [
        f"<table:table-row>{cell('string', 'p')}{cell('string', 'x')}</table:table-row>",
        f'<table:table-row table:visibility="filter" table:number-rows-repeated="2">{cell("string", "a")}'
        f"{cell('percentage', '0.45')}</table:table-row>",
        f"<table:table-row>{cell('string', 'b')}{cell('float', '45')}</table:table-row>",
    ]
    names = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr(
            "content.xml",
            f"<office:document-content{names}><office:body><office:spreadsheet>"
            f'<table:table table:name="S">{"".join(rows)}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
        archive.writestr("META-INF/manifest.xml", f"<m:manifest xmlns:m={MANIFEST}/>")
    with pytest.raises(SourceError, match=r"2 rows are hidden[^\n]*\n.*column x: 2 of 3 numbers are shown as percent"):
        read_sheet(tmp_path / "a.ods", "S")


def test_spaces_around_a_name_do_not_count(tmp_path: Path) -> None:
    assert read_sheet(written(tmp_path / "a.xlsx", [["patient ", " age"], ["a", 1]]), "Cohort").columns == (
        "patient",
        "age",
    )
    with pytest.raises(SourceError, match="2 columns have the name age"):
        read_sheet(written(tmp_path / "b.xlsx", [["Age", "age "], [1, 1]]), "Cohort")


def test_every_damaged_file_is_refused_in_words(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.xlsx", [HEADER, *ROWS]).read_bytes()
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[int(generator.integers(len(whole)))] ^= int(generator.integers(1, 256))
        (tmp_path / "b.xlsx").write_bytes(damaged)
        try:
            read_sheet(tmp_path / "b.xlsx", "Cohort")
        except SourceError as error:
            refused += str(error).startswith("b.xlsx")
    assert refused > 40
