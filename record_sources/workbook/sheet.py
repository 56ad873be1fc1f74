"""One sheet of a workbook, with its header in one row and each cell as the workbook stores it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError

from record_sources.errors import SourceError
from record_sources.workbook.sheet_check import SheetCheck, check_sheet, column_letters
from study_protocol.cells import cleaned

_CHECKED = (".xlsx", ".xlsm", ".ods")
# Excel keeps 15 digits of a number.
_EXACT = 10**15


@dataclass(frozen=True, repr=False)
class CheckedSheet:
    """A checked sheet. `count` is the number of its rows below the header."""

    columns: tuple[str, ...]
    count: int
    _places: tuple[int, ...]
    _cells: Callable[[], Iterator[list[Any]]]

    def rows(self) -> Iterator[list[Any]]:
        """Yield the rows below the header, in their order: text, int, float, bool, date, datetime, or None."""
        for cells in islice(self._cells(), self.count):
            yield [_stored(cells[place]) for place in self._places]


def read_sheet(path: Path, sheet: str, header_row: int = 1) -> CheckedSheet:
    """Return a sheet of an .xlsx, .xlsm or .ods file. Wholly empty columns, and empty rows at its end, do not count.

    Args:
        path: the workbook. It is held in memory, at most 32 million cells.
        sheet: name of the sheet, which may be hidden.
        header_row: the row with the names of the columns, counted from 1.

    Raises:
        SourceError: the file is broken, protected or too large, or has no such sheet. Or the header or the rows have
            merged cells, errors, formulas without a value, names that are missing or stand twice, columns of texts and
            numbers, durations, numbers of more than 15 digits, some percentages among numbers, rows that are
            hidden, or a row of totals. All are counted, and no cell is shown.
    """
    if path.suffix.lower() not in _CHECKED:
        raise SourceError(
            f"{path.name}: errors and formulas without a value cannot be told from empty cells in this format. Save "
            "the workbook as .xlsx"
        )
    check = check_sheet(path, sheet, header_row)
    try:
        with path.open("rb") as file:
            opened = CalamineWorkbook.from_filelike(file).get_sheet_by_name(sheet)
    except PasswordError:
        raise SourceError(f"{path.name} is protected by a password. Save it without one") from None
    except (CalamineError, OSError):
        raise SourceError(
            f"{path.name} is no whole workbook. Open it in Excel or LibreOffice and save it again"
        ) from None
    try:
        return _checked(opened, check, header_row)
    except SourceError as error:
        raise SourceError("\n".join(f"{path.name}, sheet {sheet}: {line}" for line in str(error).split("\n"))) from None


def _checked(opened: CalamineSheet, check: SheetCheck, header_row: int) -> CheckedSheet:
    margin = opened.start[1] if opened.start else 0

    def below(first: int) -> Iterator[list[Any]]:
        return ([""] * margin + row for row in islice(opened.iter_rows(), first, None))

    header: list[Any] = next(below(header_row - 1), list[Any]())
    if not any(header):
        raise SourceError(f"row {header_row} has no names of columns. Set header_row to the row that has them")
    kinds = _Kinds(len(header))
    for cells in below(header_row):
        kinds.take(cells)
    header = list(map(_trimmed, header))
    faults = [*_stored_faults(check), *_header_faults(header, kinds), *kinds.faults(header, check.percentages)]
    if faults:
        raise SourceError("\n".join(faults))
    places = tuple(place for place, name in enumerate(header) if name != "")
    return CheckedSheet(tuple(header[place] for place in places), kinds.last, places, lambda: below(header_row))


def _trimmed(name: Any) -> Any:
    # Studies and mappings name a column without the spaces around it.
    return cleaned(name) if isinstance(name, str) else name


def _stored_faults(check: SheetCheck) -> Iterator[str]:
    if check.merged:
        yield f"{check.merged} merged ranges in the header or the rows. Undo the merges, and fill each cell"
    if check.hidden:
        yield f"{check.hidden} rows are hidden, perhaps by a filter. Show them if they belong here, or delete them"
    if check.totals:
        yield "its table has a row of totals, which would be a patient. Take it away (Table Design, Total Row)"
    for counts, sentence in (
        (check.errors, "cells have an error such as #N/A or #DIV/0!. Correct or empty them"),
        (check.uncomputed, "formulas have no value. Open the file in Excel or LibreOffice and save it again"),
    ):
        for column, count in sorted(counts.items()):
            if count:
                yield f"column {column_letters(column)}: {count} {sentence}"


def _header_faults(header: Sequence[Any], kinds: _Kinds) -> Iterator[str]:
    """Yield what is wrong with the names. Columns without a name are named by their letters."""
    for place, (name, counts) in enumerate(zip(header, kinds.counts, strict=True)):
        if fault := _name_fault(name, counts):
            yield f"column {column_letters(place)}{fault}"
    folded = Counter(str(name).casefold() for name in header if name != "")
    for name, count in folded.items():
        if count > 1:
            yield f"{count} columns have the name {name}, or differ only in capitals. Give each column its own name"


def _name_fault(name: Any, counts: Counter[str]) -> str:
    if name != "" and not isinstance(name, str):
        return ": its name is no text. Format the header's cell as text"
    if name == "" and counts:
        return f" has no name, but {counts.total()} cells. Name or delete it"
    return ""


class _Kinds:
    """Kinds of the cells of each column, and the last row that has a cell."""

    def __init__(self, columns: int) -> None:
        self.counts = [Counter[str]() for _ in range(columns)]
        self.last, self._row = 0, 0

    def take(self, cells: Sequence[Any]) -> None:
        self._row += 1
        for place, cell in enumerate(cells):
            if cell != "":
                self.counts[place][_kind_of(cell)] += 1
                self.last = self._row

    def faults(self, header: Sequence[Any], percentages: Mapping[int, int]) -> Iterator[str]:
        for place, (name, counts) in enumerate(zip(header, self.counts, strict=True)):
            if name == "":
                continue
            if counts["long"]:
                yield (
                    f"column {name}: {counts['long']} numbers have more than 15 digits, and a workbook keeps only 15. "
                    "Format the column as text and enter them again"
                )
            if counts["durations"]:
                yield f"column {name}: {counts['durations']} cells are times of day or durations. Write them as numbers"
            if 0 < percentages[place] < counts["numbers"]:
                yield (
                    f"column {name}: {percentages[place]} of {counts['numbers']} numbers are shown as percentages, and "
                    "45 % is stored as 0.45. Write all of them in one way"
                )
            present = [f"{counts[kind]} {kind}" for kind in ("texts", "numbers", "dates", "Booleans") if counts[kind]]
            if len(present) > 1:
                yield f"column {name} mixes {' and '.join(present)}. Format the column as one type, for example as text"


def _kind_of(cell: Any) -> str:
    if isinstance(cell, bool):
        return "Booleans"
    if isinstance(cell, int | float):
        return "long" if abs(cell) >= _EXACT and float(cell).is_integer() else "numbers"
    if isinstance(cell, date):
        return "dates"
    return "durations" if isinstance(cell, time | timedelta) else "texts"


def _stored(cell: Any) -> Any:
    if cell == "":
        return None
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
