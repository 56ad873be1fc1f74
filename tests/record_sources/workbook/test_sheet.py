"""Sheets of workbooks: cells as they are stored, and everything that a sheet hides is counted and refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openpyxl import Workbook
from openpyxl.utils.datetime import CALENDAR_MAC_1904
from openpyxl.worksheet.table import Table as ExcelTable
from openpyxl.worksheet.worksheet import Worksheet
from pyarrow import parquet

from private_learning.records import Table, load
from record_sources.errors import SourceError
from record_sources.source_file.description import WorkbookDescription
from record_sources.workbook import WorkbookSource
from record_sources.workbook.sheet import read_sheet
from record_sources.working.workspace import Workspace, no_progress

MOMENT = datetime(2020, 2, 29, 13, 30)  # noqa: DTZ001
Change = Callable[[Worksheet], object]
MANIFEST = '"urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
HEADER = ["patient", "age", "share", "seen"]
ROWS: list[list[Any]] = [
    ["007", 61.0, 0.5, date(2020, 1, 2)],
    ["008", None, 0.25, None],
    ["009", 40, 1, date(2021, 3, 4)],
]


def written(path: Path, rows: Sequence[Sequence[Any]], change: Change = lambda _sheet: None) -> Path:
    book = Workbook()
    sheet = book.create_sheet("Cohort")
    for row in rows:
        sheet.append(list(row))
    change(sheet)
    book.save(path)
    return path


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


def rewritten(path: Path, part: str, *changes: tuple[str, str]) -> Path:
    """Replace text in one part of a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = parts[part].decode()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**parts, part: text.encode()}.items():
            archive.writestr(name, content)
    return path


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


def test_a_workbook_gives_the_tensors_of_its_csv(tmp_path: Path) -> None:
    path = written(tmp_path / "a.xlsx", [HEADER, *ROWS])
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in [HEADER, *ROWS]]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    description = WorkbookDescription.model_validate({"kind": "workbook", "file": str(path), "sheet": "Cohort"})
    with Workspace(tmp_path) as workspace:
        contents = WorkbookSource(description).fill(workspace, no_progress)
        table = workspace.connection.sql(f"SELECT * FROM {contents.tables[0]} ORDER BY ALL").to_arrow_table()
    parquet.write_table(table, tmp_path / "a.parquet")
    tables = [load(tmp_path / name, patient_column="patient") for name in ("a.csv", "a.parquet")]
    first, second = (table for table in tables if isinstance(table, Table))
    assert first.patients == second.patients
    for name in ("age", "share"):
        np.testing.assert_array_equal(np.asarray(first.columns[name], float), np.asarray(second.columns[name], float))


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
