"""Properties of a sheet that its values do not show: merged cells, errors, and formulas that were never computed."""

from __future__ import annotations

import lzma
import posixpath
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO
from xml.parsers import expat

from record_sources.errors import SourceError
from study_protocol.cells.unpacking import TooLarge, require_safe

# calamine keeps the whole rectangle around the cells of a sheet in memory, 32 bytes for each.
MAX_CELLS = 32_000_000
_PARTS = 10_000
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_TRUE = ("1", "true")
_DIGITS, _LETTERS = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ$"
_ERROR = re.compile(r"#[A-Z]|Err:\d")
# Text in a format of numbers.
_QUOTED = re.compile(r'"[^"]*"|\\.')


# What the readers of archives and of XML raise for damaged bytes.
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError),
    *(expat.ExpatError, KeyError, ValueError),
)


@dataclass(repr=False)
class SheetCheck:
    """Counts over the header and the rows below it. Columns are counted from 0.

    rows, columns  extent of the cells, from the first row and column of the sheet
    merged         number of merged ranges
    errors         column -> cells with an error, for example #N/A
    uncomputed     column -> formulas without a value
    percentages    column -> numbers that are shown as percentages
    hidden         number of rows with cells below the header that are not shown
    totals         number of rows of totals below Excel's tables
    """

    header_row: int
    rows: int = 0
    columns: int = 0
    merged: int = 0
    errors: Counter[int] = field(default_factory=Counter[int])
    uncomputed: Counter[int] = field(default_factory=Counter[int])
    percentages: Counter[int] = field(default_factory=Counter[int])
    hidden: int = 0
    totals: int = 0

    def note(
        self, row: int, column: int, *, error: bool, uncomputed: bool, percentage: bool, rows: int = 1, times: int = 1
    ) -> None:
        """Count a cell with content. Rows are counted from 1. row: the last of `rows`. column: the first of `times`."""
        if row > self.rows:
            self.rows = row
        if column + times > self.columns:
            self.columns = column + times
        if (error or uncomputed or percentage) and row >= self.header_row:
            for place in range(column, min(column + times, 1 << 14)):
                self.errors[place] += error
                self.uncomputed[place] += uncomputed
                self.percentages[place] += percentage * min(rows, row - self.header_row)

    def note_merge(self, last_row: int) -> None:
        self.merged += last_row >= self.header_row

    def note_hidden(self, last_row: int, rows: int = 1) -> None:
        self.hidden += max(0, min(rows, last_row - self.header_row))


def check_sheet(path: Path, sheet: str, header_row: int) -> SheetCheck:
    """Return what stands in a sheet of an .xlsx, .xlsm or .ods file. It is streamed.

    Raises:
        SourceError: the file is no such workbook, is broken or protected by a password, unpacks into far more than its
            size, or has no such sheet.
    """
    if _starts_as(path, _COMPOUND):
        raise SourceError(
            f"{path.name} is protected by a password, or is an old .xls file. Save it as .xlsx without one"
        )
    check = SheetCheck(header_row)
    try:
        with zipfile.ZipFile(path) as archive:
            _require_whole(path, archive)
            if path.suffix.lower() == ".ods":
                _check_ods(path, archive, sheet, check)
            else:
                sheet_part = _sheet_part(path, archive, sheet)
                check.totals = _totals(archive, sheet_part, header_row)
                with archive.open(sheet_part) as part:
                    _parse(part, _ExcelCells(check, _percentage_styles(archive)))
    except TooLarge as error:
        raise SourceError(str(error)) from None
    except SourceError:
        raise
    except _BROKEN:
        raise SourceError(
            f"{path.name} is no whole workbook. Open it in Excel or LibreOffice and save it again"
        ) from None
    if check.rows * check.columns > MAX_CELLS:
        raise SourceError(
            f"{path.name}, sheet {sheet}: its cells reach over {check.rows} rows and {check.columns} columns, which is "
            "too much for a workbook. Delete stray cells, or read the records from a database"
        )
    return check


def broken(path: Path) -> SourceError:
    """Return the error of a file that cannot be read as a workbook."""
    return SourceError(f"{path.name} is no whole workbook. Open it in Excel or LibreOffice and save it again")


def _starts_as(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _require_whole(path: Path, archive: zipfile.ZipFile) -> None:
    """Require a sound archive of a safe size. Each part is unpacked once, so that a false size is found."""
    parts = archive.infolist()
    require_safe(path.name, path.stat().st_size, sum(part.file_size for part in parts))
    if len(parts) > _PARTS or archive.testzip() is not None:
        raise zipfile.BadZipFile


class _Elements:
    """Takes note of the elements of a document. Their names are without namespaces, those of attributes with them."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...
    def text(self, content: str) -> None: ...
    def end(self, name: str) -> None: ...


def _parse(part: IO[bytes], elements: _Elements) -> None:
    """Stream a document. Raises ValueError: it declares a document type, which could define entities."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    start_element, end_element = elements.start, elements.end

    def start(name: str, attributes: dict[str, str]) -> None:
        start_element(_local(name), attributes)

    def end(name: str) -> None:
        end_element(_local(name))

    def refuse(*_declaration: object) -> None:
        raise ValueError("a document type")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = elements.text
    parser.ParseFile(part)


@lru_cache(1 << 15)
def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _locals(attributes: Mapping[str, str]) -> dict[str, str]:
    return {_local(key): content for key, content in attributes.items()}


class _Collected(_Elements):
    """The attributes of all elements of one name."""

    def __init__(self, name: str) -> None:
        self._name, self.found = name, list[Mapping[str, str]]()

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == self._name:
            self.found.append(_locals(attributes))


def _all(archive: zipfile.ZipFile, part: str, name: str) -> list[Mapping[str, str]]:
    collected = _Collected(name)
    with archive.open(part) as opened:
        _parse(opened, collected)
    return collected.found


def _sheet_part(path: Path, archive: zipfile.ZipFile, sheet: str) -> str:
    sheets = {entry["name"]: entry["id"] for entry in _all(archive, "xl/workbook.xml", "sheet")}
    require_sheet(path, sheet, list(sheets))
    return _related(archive, "xl/workbook.xml").get(sheets[sheet], "")


def _related(archive: zipfile.ZipFile, part: str) -> dict[str, str]:
    """Return the parts that a part names, by the ids that it has for them."""
    folder, name = posixpath.split(part)
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in archive.namelist():
        return {}
    # A target that begins with / is joined to nothing.
    return {
        entry["Id"]: posixpath.normpath(posixpath.join("/", folder, entry["Target"])).lstrip("/")
        for entry in _all(archive, relations, "Relationship")
        if entry.get("TargetMode") != "External"
    }


def _totals(archive: zipfile.ZipFile, sheet_part: str, header_row: int) -> int:
    """Return the number of rows of totals that Excel's tables have below the header."""
    parts = [part for part in _related(archive, sheet_part).values() if posixpath.basename(part).startswith("table")]
    tables = [table for part in parts for table in _all(archive, part, "table")]
    return sum(int(table.get("totalsRowCount", 0)) for table in tables if _last_row(table["ref"]) > header_row)


def _last_row(reference: str) -> int:
    """Return 9 of B2:D9."""
    return int(reference.rpartition(":")[2].lstrip(_LETTERS))


def _percentage_styles(archive: zipfile.ZipFile) -> frozenset[str]:
    """Return the numbers of the styles that show a number as a percentage."""
    if "xl/styles.xml" not in archive.namelist():
        return frozenset()
    styles = _Styles()
    with archive.open("xl/styles.xml") as part:
        _parse(part, styles)
    return frozenset(str(place) for place, form in enumerate(styles.of_cells) if form in styles.percentages)


class _Styles(_Elements):
    """Number formats: those of percentages, and that of each style of a cell."""

    def __init__(self) -> None:
        # Of every workbook.
        self.percentages = {"9", "10"}
        self.of_cells, self._inside = list[str](), False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "cellXfs":
            self._inside = True
        elif name == "xf" and self._inside:
            self.of_cells.append(attributes.get("numFmtId", "0"))
        elif name == "numFmt" and "%" in _QUOTED.sub("", attributes.get("formatCode", "")):
            self.percentages.add(attributes.get("numFmtId", ""))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._inside = False


def require_sheet(path: Path, sheet: str, sheets: list[str]) -> None:
    """Raises SourceError: the workbook has no such sheet."""
    if sheet not in sheets:
        raise SourceError(f"{path.name} has no sheet {sheet}. Its sheets are {', '.join(sheets)}")


class _ExcelCells(_Elements):
    """Cells of one sheet. It is called a few times for each, and does little each time."""

    def __init__(self, check: SheetCheck, percentages: frozenset[str]) -> None:
        self._check, self._row, self._column, self._percentages = check, 0, -1, percentages
        self._kind, self._has_formula, self._has_value, self._in_value = "n", False, False, False
        self._is_percentage, self._hidden = False, False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "c":
            # The place may be left out. Then the cell follows the one before it.
            place = attributes.get("r", "")
            letters = place.rstrip(_DIGITS)
            self._column = column_number(letters) if letters else self._column + 1
            self._row = int(place[len(letters) :]) if letters else self._row
            self._kind, self._has_formula, self._has_value = attributes.get("t", "n"), False, False
            self._is_percentage = attributes.get("s", "0") in self._percentages
        elif name == "v":
            self._in_value = True
        elif name == "f":
            self._has_formula = True
        elif name == "is":
            self._has_value = True
        elif name == "row":
            self._row, self._column = int(attributes.get("r", self._row + 1)), -1
            self._hidden = attributes.get("hidden") in _TRUE
        elif name == "mergeCell":
            self._check.note_merge(_last_row(attributes["ref"]))

    def text(self, content: str) -> None:
        if self._in_value:
            self._has_value = True

    def end(self, name: str) -> None:
        if name == "v":
            self._in_value = False
        elif name == "c" and (self._has_value or self._has_formula):
            # A formula may give an empty text, and then its cell has the kind `str`.
            uncomputed = self._has_formula and not self._has_value and self._kind != "str"
            percentage = self._is_percentage and self._has_value and self._kind == "n"
            self._check.note(
                self._row, self._column, error=self._kind == "e", uncomputed=uncomputed, percentage=percentage
            )
            if self._hidden:
                self._check.note_hidden(self._row)
                self._hidden = False


@lru_cache(1 << 15)
def column_number(letters: str) -> int:
    """Return the place of a column from its letters, counted from 0."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def column_letters(number: int) -> str:
    """Return the letters of a column from its place, counted from 0."""
    letters, number = "", number + 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _check_ods(path: Path, archive: zipfile.ZipFile, sheet: str, check: SheetCheck) -> None:
    if "META-INF/manifest.xml" in archive.namelist() and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise SourceError(f"{path.name} is protected by a password. Save it without one")
    cells = _OdsCells(check, sheet)
    with archive.open("content.xml") as part:
        _parse(part, cells)
    require_sheet(path, sheet, cells.sheets)


class _OdsCells(_Elements):
    def __init__(self, check: SheetCheck, sheet: str) -> None:
        self._check, self._sheet, self.sheets = check, sheet, list[str]()
        self._inside, self._row, self._column, self._repeated, self._hidden = False, 0, 0, 1, False
        self._cell: Mapping[str, str] = {}
        self._text = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        attributes = _locals(attributes)
        if name == "table":
            self.sheets.append(attributes.get("name", ""))
            self._inside, self._row = self.sheets[-1] == self._sheet, 0
        elif name == "table-row":
            self._row, self._column = self._row + 1, 0
            self._repeated = int(attributes.get("number-rows-repeated", 1))
            self._hidden = attributes.get("visibility", "visible") != "visible"
        elif name in ("table-cell", "covered-table-cell"):
            self._cell, self._text = attributes, ""

    def text(self, content: str) -> None:
        if len(self._text) < 16:
            self._text += content

    def end(self, name: str) -> None:
        if name == "table":
            self._inside = False
        elif name == "table-row":
            self._row += self._repeated - 1
        elif name in ("table-cell", "covered-table-cell"):
            times = int(self._cell.get("number-columns-repeated", 1))
            if self._inside:
                self._note(times)
            self._column += times

    def _note(self, times: int) -> None:
        rows_spanned = int(self._cell.get("number-rows-spanned", 1))
        if rows_spanned > 1 or int(self._cell.get("number-columns-spanned", 1)) > 1:
            self._check.note_merge(self._row + rows_spanned - 1)
        computed, kind = "formula" in self._cell, self._cell.get("value-type")
        if computed or kind is not None:
            error = kind == "error" or (computed and _ERROR.match(self._text) is not None)
            last = self._row + self._repeated - 1
            self._check.note(
                last,
                self._column,
                error=error,
                uncomputed=computed and kind is None,
                percentage=kind == "percentage",
                rows=self._repeated,
                times=times,
            )
            if self._hidden:
                self._check.note_hidden(last, self._repeated)
                self._hidden = False
