"""Cells of a text table: which characters its bytes are, what stands between two cells, what a comma in a number means.

Each is read off the file where the file leaves one answer, and refused where it leaves two. Error texts name the line,
the column and the kind of fault; they never hold what a cell says.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from client_sdk.data.records import DataError

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# A workbook of today is a zip archive; one of before 2007 is a compound file.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+(?:[eE][+-]?\d+)?")
# Characters from which separators are guessed; every row decides.
_LOOKED_AT = 1 << 14


@dataclass(frozen=True)
class Sheet:
    """The rows of a file without its header line. lines: where in the file each row ends, counted from 1."""

    names: list[str]
    rows: list[list[str]]
    lines: list[int]


def read_sheet(path: Path, *, names: Sequence[str] | None, encoding: str | None, may_be_empty: bool = False) -> Sheet:
    """Names and rows of a text table. names: of the columns, where the file has no header line.

    may_be_empty: a header alone will do

    Raises:
        DataError: not a text, not in the encoding, no one separator, rows of another length, no header, no rows.
    """
    text = _decoded(path.name, _bytes(path), encoding)
    rows = _split(path.name, text, None if names is None else len(names))
    if not rows:
        raise DataError(f"{path.name}: there are no records, not even a header")
    header = list(names or ())
    if names is None:
        line, cells = rows.pop(0)
        header = [cell.strip() for cell in cells]
        if not rows and not may_be_empty:
            raise DataError(f"{path.name}: there are no records below the header")
        _require_header(f"{path.name}: line {line}", header)
    return Sheet(header, [cells for _, cells in rows], [line for line, _ in rows])


def is_number(cell: str) -> bool:
    """As a program writes one; not `nan` or `inf`, which are words, too."""
    return any(form.fullmatch(cell) for form in (_WHOLE, _POINT, _COMMA))


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path.name}: it is not a whole gzip file; pack it again") from error
    if data.startswith(_WORKBOOKS):
        raise DataError(
            f"{path.name}: this is a workbook or an archive, not a text table. In Excel or LibreOffice save the sheet "
            "as 'CSV UTF-8'"
        )
    return data


def _decoded(name: str, data: bytes, encoding: str | None) -> str:
    own = next((found for mark, found in _MARKS.items() if data.startswith(mark)), None)
    chosen = own or encoding or "utf-8"
    try:
        text = data.decode(chosen)
    except LookupError as error:
        raise DataError(f"{name}: {encoding!r} is not the name of an encoding; cp1252 is, for example") from error
    except UnicodeDecodeError as error:
        place = _place(data[: error.start]) if chosen.startswith("utf-8") else "it"
        raise DataError(
            f"{name}: {place} is not written in {chosen.removesuffix('-sig').upper()}. Save the file as 'CSV UTF-8' or "
            "name its encoding with --encoding (from Python: encoding=): cp1252 is that of Windows in Western Europe "
            "and America, cp1250 in Central Europe"
        ) from error
    if "\0" in text:
        place = _place(data[: data.index(0)])
        raise DataError(f"{name}: {place} holds a zero byte, which no text table does. Save the file as 'CSV UTF-8'")
    return text


def _place(before: bytes) -> str:
    """The line and the column in which the bytes before something end."""
    line = before.splitlines()[-1] if before and before[-1:] not in b"\r\n" else b""
    column = 1 + max(line.count(mark.encode()) for mark in _SEPARATORS)
    number = before.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
    return f"line {number}, column {column}"


def _split(name: str, text: str, width: int | None) -> list[tuple[int, list[str]]]:
    """(line, cells) by the one separator that makes all rows equally long."""
    start = text[:_LOOKED_AT]
    likely = sorted((mark for mark in _SEPARATORS if mark in start), key=start.count, reverse=True) or [","]
    tried: dict[str, list[tuple[int, list[str]]]] = {}
    faults: dict[str, csv.Error] = {}
    for mark in likely:
        try:
            tried[mark] = list(_rows(text, mark))
        except csv.Error as error:
            faults[mark] = error
    wanted = {mark: len(rows[0][1]) if width is None else width for mark, rows in tried.items() if rows}
    even = [mark for mark, n in wanted.items() if n > 1 and all(len(cells) == n for _, cells in tried[mark])]
    if len(even) > 1:
        several = " and ".join(_SEPARATORS[mark] for mark in even)
        raise DataError(f"{name}: {several} stand in every line alike; keep one of them, between the cells")
    best = even[0] if even else likely[0]
    if best in faults:
        raise DataError(f"{name}: {faults[best]}") from faults[best]
    if not even and tried[best]:
        _require_even(name, tried[best], width)
    return tried[best]


def _rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    # Strict: a quotation mark that is never closed would swallow the rest of the file as one cell.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    while True:
        before = reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = f"the row that begins in line {before + 1}"
            if "field limit" in str(error):
                long = f"a cell of more than {csv.field_size_limit()} characters"
                raise csv.Error(f"{row} has {long}: is a quotation mark left open?") from error
            raise csv.Error(f"the quotation marks of {row} do not pair") from error
        # Spreadsheets save empty rows below the last one.
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _require_even(name: str, rows: Sequence[tuple[int, list[str]]], width: int | None) -> None:
    """Raises DataError: where the rows differ in length, and what that often comes from."""
    header = len(rows[0][1]) if width is None else width
    body = rows[1:] if width is None else rows
    common = Counter(len(cells) for _, cells in body).most_common(1)
    if width is None and common and common[0][1] == len(body) and common[0][0] != header:
        raise DataError(
            f"{name}: line {rows[0][0]} has {header} cells and every other line {common[0][0]}: is there a header? The "
            "first line must name every column once"
        )
    wrong = [(line, len(cells)) for line, cells in body if len(cells) != header]
    if wrong:
        line, cells = wrong[0]
        raise DataError(
            f"{name}: {len(wrong)} of {len(body)} rows do not have {header} cells; the first is in line {line} and has "
            f"{cells}. A text that holds the separator stands in quotation marks"
        )


def _require_header(where: str, header: Sequence[str]) -> None:
    """Raises DataError: the first line reads like a record."""
    advice = "is there a header? The first line must name the columns, each once"
    numbers = [place for place, cell in enumerate(header, start=1) if is_number(cell) or cell == "?"]
    # 0, 1, 2, …: what pandas calls columns without names.
    if numbers and header != [str(place) for place in range(len(header))]:
        raise DataError(
            f"{where} was read as the names of {len(header)} columns, but {len(numbers)} of them are numbers or "
            f"question marks, the first in column {numbers[0]}: {advice}, with words"
        )
    named = Counter(cell for cell in header if cell)
    twice = [place for place, cell in enumerate(header, start=1) if named[cell] > 1]
    if twice:
        again = header.index(header[twice[0] - 1], twice[0]) + 1
        raise DataError(f"{where} names a column twice (columns {twice[0]} and {again}): {advice}")
    if not named:
        raise DataError(f"{where} names no column: {advice}")
