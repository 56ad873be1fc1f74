"""Rows of a text table with a known separator.

Error texts name lines and count rows. They never hold the content of a cell.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from private_learning.records.records import DataError
from private_learning.records.table_format import SEPARATORS, Separator
from study_protocol.cells.spelling import cleaned

PLURALS: dict[Separator, str] = {"comma": "commas", "semicolon": "semicolons", "tab": "tabs", "bar": "bars"}
_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]+)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
# A quotation mark opens a cell, closes it, or stands twice within it. One more mark makes their number odd, so no row
# can swallow another.
_QUOTED = (
    r'(?:[^"]*+(?:(?<=[{mark}\r\n])|(?<=[{mark}\r\n] )|(?<![\s\S]))"[^"]*+(?:""[^"]*+)*+"(?=[{mark}\r\n]|\Z))*+[^"]*+'
)
_TOTALS = frozenset(
    ("total", "totals", "grand total", "sum", "summe", "gesamt", "gesamtsumme", "insgesamt", "somme", "suma", "totale")
)


class _Reader(Protocol):
    """The type of a reader of `csv`, which does not export it."""

    @property
    def line_num(self) -> int: ...

    def __next__(self) -> list[str]: ...

    def __iter__(self) -> Iterator[list[str]]: ...


@dataclass(frozen=True, repr=False)
class Sheet:
    """The rows of a file without its header line. lines: the line in which each row ends, counted from 1."""

    names: list[str]
    rows: list[list[str]]
    lines: Sequence[int]


def read_sheet(
    file: str,
    text: str,
    separator: Separator,
    *,
    names: Sequence[str] | None = None,
    header: bool = True,
    may_be_empty: bool = False,
) -> Sheet:
    """Return the names and rows of a table.

    names         of the columns, if the file has no header line. Without both, a column is named by its position
    may_be_empty  a header without rows is allowed

    Raises:
        DataError: quotation marks do not pair, rows differ in length, or the header or the rows are missing.
    """
    rows, lines = split(file, text, separator)
    if not rows:
        raise DataError(f"{file}: there are no records, not even a header")
    if text[:5].lstrip('"')[:4].lower() == "sep=":
        raise DataError(
            f"{file}: line 1 is a hint that Excel writes for itself (sep=): remove this line, so that the names of the "
            "columns are the first line"
        )
    titled = header and names is None
    width = len(rows[0]) if names is None else len(names)
    if titled:
        _require_columns(file, rows, separator)
    _require_even(file, rows, lines, width, titled)
    if not titled:
        return Sheet(list(names or map(str, range(width))), rows, lines)
    column_names = list(map(cleaned, rows[0]))
    if len(rows) == 1 and not may_be_empty:
        raise DataError(f"{file}: there are no records below the header")
    _require_header(f"{file}: line {lines[0]}", column_names)
    return Sheet(column_names, rows[1:], lines[1:])


def split(file: str, text: str, separator: Separator) -> tuple[list[list[str]], Sequence[int]]:
    """Return (rows, the line in which each ends), without empty rows. Raises DataError: unpaired quotation marks."""
    mark = SEPARATORS[separator]
    if '"' in text:
        _require_paired(file, text, mark)
    rows, lines = _parsed(file, text, mark)
    # Spreadsheets save empty rows below the last one.
    blank = {place for place, cells in enumerate(rows) if not (cells and cells[0]) and not any(map(str.strip, cells))}
    if not blank:
        return rows, lines
    places = sorted(set(range(len(rows))) - blank)
    return [rows[place] for place in places], [lines[place] for place in places]


def is_number(cell: str) -> bool:
    """Return whether the cell is a number as programs write it. `nan` and `inf` are words, too, and no numbers here."""
    return _NUMBER.fullmatch(cell) is not None


def remarks_on(file: str, sheet: Sheet) -> tuple[str, ...]:
    """Return remarks for a person: a last line that may hold totals, and columns left out because they have no name."""
    remarks: list[str] = []
    unnamed = [
        place for place, name in enumerate(sheet.names) if not name and any(row[place].strip() for row in sheet.rows)
    ]
    if unnamed:
        remarks.append(
            f"{file}: {len(unnamed)} columns without a name are left out, the first of them column {unnamed[0] + 1}"
        )
    if (total := _totals_line(sheet)) is not None:
        remarks.append(f"{file}: the last line ({total}) begins with a word for a sum: if it holds totals, remove it")
    return tuple(remarks)


def _totals_line(sheet: Sheet) -> int | None:
    first = [next((cell for cell in map(cleaned, row) if cell), "").lower() for row in sheet.rows[-1:]]
    return sheet.lines[-1] if first and first[0].rstrip(":") in _TOTALS else None


def _parsed(file: str, text: str, mark: str) -> tuple[list[list[str]], Sequence[int]]:
    reader = _reader_of(text, mark)
    try:
        rows = list(reader)
    except csv.Error:
        rows = []
    # Every row is one line.
    if rows and reader.line_num == len(rows):
        return rows, range(1, len(rows) + 1)
    rows, lines, reader = list[list[str]](), list[int](), _reader_of(text, mark)
    while True:
        before = reader.line_num
        try:
            rows.append(next(reader))
        except StopIteration:
            return rows, lines
        except csv.Error as error:
            raise _fault(file, error, before) from error
        lines.append(reader.line_num)


def _reader_of(text: str, mark: str) -> _Reader:
    # Strict: a quotation mark that is never closed would swallow the rest of the file as one cell.
    return csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True, skipinitialspace=True)


def _fault(file: str, error: csv.Error, before: int) -> DataError:
    row = f"the row that begins in line {before + 1}"
    if "field limit" in str(error) or "field larger" in str(error):
        return DataError(
            f"{file}: {row} has a cell of more than {csv.field_size_limit()} characters: is a quotation mark left open?"
        )
    return DataError(
        f"{file}: the quotation marks of {row} do not pair: a text with a quotation mark stands in quotation marks, "
        "and writes its own twice"
    )


def _require_paired(file: str, text: str, mark: str) -> None:
    """Require quotation marks that open or close a cell or stand twice within one. Raises DataError: others exist."""
    pattern = re.compile(_QUOTED.replace("{mark}", re.escape(mark)))
    end = cast("re.Match[str]", pattern.match(text)).end()
    if end == len(text):
        return
    line = text[:end].replace("\r\n", "\n").replace("\r", "\n").count("\n")
    raise _fault(file, csv.Error("unpaired"), line)


def _require_even(file: str, rows: Sequence[list[str]], lines: Sequence[int], width: int, titled: bool) -> None:
    """Require rows of one length. Raises DataError: they differ. The message names the place and a likely cause."""
    lengths = list(map(len, rows))
    if lengths.count(width) == len(rows):
        return
    wrong = [place for place in range(int(titled), len(rows)) if lengths[place] != width]
    ratio, first_line = f"{len(wrong)} of {len(rows) - titled} rows", f"line {lines[wrong[0]]}"
    if all(lengths[place] == width + 1 and not rows[place][-1].strip() for place in wrong):
        raise DataError(
            f"{file}: {ratio} end with a separator, the first in {first_line}, and the header does not: remove it from "
            "their ends, or end the header with one, too"
        )
    if titled:
        _require_fitting_header(file, lengths, lines)
    advice = "A text that holds the separator stands in quotation marks"
    if wrong == [len(rows) - 1]:
        advice = "It is the last line: if it holds totals or a remark, remove it. If it breaks off, save it again"
    raise DataError(
        f"{file}: {ratio} do not have {width} cells. The first is in {first_line} and has {lengths[wrong[0]]}. {advice}"
    )


def _require_fitting_header(file: str, lengths: Sequence[int], lines: Sequence[int]) -> None:
    """Refuse a first line that has another length than all others, or than all below a later line."""
    width = lengths[0]
    common, often = Counter(lengths[1:]).most_common(1)[0]
    if often == len(lengths) - 1:
        above = "" if common < width else ". If the header stands in a later line, remove the lines above it"
        raise DataError(
            f"{file}: line {lines[0]} has {width} cells and every other line {common}: is there a header? The "
            f"first line must name every column once{above}"
        )
    start = lengths.index(common)
    if start and len(set(lengths[start:])) == 1:
        raise DataError(
            f"{file}: lines before line {lines[start]} have fewer cells than it and all lines below it: if the names "
            f"of the columns stand in line {lines[start]}, remove the lines above it"
        )


def _require_columns(file: str, rows: Sequence[list[str]], separator: Separator) -> None:
    """Require more than one column if another separator fits. Raises DataError: cells have another separator."""
    if len(rows[0]) > 1:
        return
    title = rows[0][0]
    for candidate, mark in SEPARATORS.items():
        # A title that stands above the header has the mark alone.
        if candidate != separator and all(mark in "".join(cells) for cells in rows):
            raise DataError(
                f"{file}: read by {PLURALS[separator]} it is one column, and {title.count(mark)} {PLURALS[candidate]} "
                f"stand in its name: declare --separator {candidate}"
            )
    words = len(title.split())
    if words > 1 and len(rows) > 1 and all(len(SEPARATORS[separator].join(cells).split()) == words for cells in rows):
        raise DataError(
            f"{file}: every line holds {words} texts between spaces: save it with commas, semicolons, tabs or bars "
            "between the cells"
        )


def _require_header(location: str, header: Sequence[str]) -> None:
    """Require a header of different names. Raises DataError: the first line reads like a record."""
    advice = "is there a header? The first line must name the columns, each once"
    numbers = [place for place, cell in enumerate(header, start=1) if is_number(cell) or cell == "?"]
    # 0, 1, 2, …: the names that pandas gives to columns without names.
    if numbers and header != list(map(str, range(len(header)))):
        raise DataError(
            f"{location} was read as the names of {len(header)} columns, but {len(numbers)} of them are numbers or "
            f"question marks, the first in column {numbers[0]}: {advice}, with words"
        )
    counts = Counter(filter(None, header))
    twice = [place for place, cell in enumerate(header, start=1) if counts[cell] > 1]
    if twice:
        second = header.index(header[twice[0] - 1], twice[0]) + 1
        raise DataError(f"{location} names a column twice (columns {twice[0]} and {second}): {advice}")
    if not counts:
        raise DataError(f"{location} names no column: {advice}")
