"""The proposed format of a text table, found in the whole file. A person confirms or corrects it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from private_learning.records.delimited import PLURALS, Sheet, read_sheet, remarks_on, split
from private_learning.records.paths import require_there
from private_learning.records.records import DataError
from private_learning.records.table_format import SEPARATORS, Dates, Separator, TableFormat
from private_learning.records.text_encoding import bytes_of, decode, propose_encoding
from study_protocol.cells import AS_WRITTEN, MISSING, Column, Spelling
from study_protocol.cells.spelling import Decimal, cleaned

# Characters that are used to rule separators out. The others are tried on every row.
_SAMPLED = 1 << 16
# The first form that fits counts. 1.234 and 1,234 may both be a thousand.
_FORM = re.compile(
    # A number that a German spreadsheet rounded does not show the decimal mark of measured values.
    r"(?P<other>[+-]?[0-9],[0-9]{2}E[+-][0-9]{2,3})"
    r"|(?P<whole>[+-]?[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<point_thousands>[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+)"
    r"|(?P<comma_thousands>[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+)"
    r"|(?P<point>[+-]?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[+-]?[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+)"
    r"|(?P<comma>[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?|[+-]?[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+)"
    r"|(?P<year_first>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T].*)?)"
    r"|(?P<date>[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{4}(?:[ T].*)?)"
)
Doubt = Literal["decimal", "dates"]
_TWO_NUMBERS = re.compile(r"([0-9]+)[-./]([0-9]+)")


@dataclass(frozen=True)
class ColumnForms:
    """The numbers of cells of one column in each form.

    cells                             cells that are not empty
    whole                             numbers without a mark
    point, comma                      numbers with this decimal mark
    point_thousands, comma_thousands  numbers in which the mark may separate thousands
    day_first, month_first            dates with a sure order, because a number is above 12
    day_or_month                      dates in which either may come first
    year_first                        dates that need no order
    missing                           words that mean a missing value in every study
    """

    name: str
    cells: int = 0
    whole: int = 0
    point: int = 0
    comma: int = 0
    point_thousands: int = 0
    comma_thousands: int = 0
    day_first: int = 0
    month_first: int = 0
    day_or_month: int = 0
    year_first: int = 0
    missing: int = 0

    @classmethod
    def of(cls, name: str, column: Column) -> ColumnForms:
        """Return the counts for a column of texts."""
        words = cast("list[str | None]", [] if column.words is None else column.words.tolist())
        often = cast("list[int]", np.bincount(column.values, minlength=len(words)).tolist() if words else [])
        counts = {form_field.name: 0 for form_field in fields(cls)[1:]}
        for word, times in zip(words, often, strict=True):
            if word is None:
                continue
            counts["cells"] += times
            if (form := "missing" if word in MISSING else _form(word)) is not None:
                counts[form] += times
        return cls(name, **counts)

    @property
    def thousands(self) -> int:
        """Return the number of cells that may be written with thousands."""
        return self.point_thousands + self.comma_thousands

    def __str__(self) -> str:
        described_counts = (
            (self.whole, "whole numbers"),
            (self.point, "with a decimal point"),
            (self.comma, "with a decimal comma"),
            (self.point_thousands, "with a point that may mean thousands"),
            (self.comma_thousands, "with a comma that may mean thousands"),
            (self.day_first, "dates with the day first"),
            (self.month_first, "dates with the month first"),
            (self.day_or_month, "dates whose day or month may be first"),
            (self.year_first, "dates with the year first"),
            (self.missing, "missing"),
        )
        descriptions = [f"{count} {words}" for count, words in described_counts if count]
        rest = self.cells - sum(count for count, _ in described_counts)
        return ", ".join([*descriptions, *([f"{rest} other texts"] if rest else [])]) or "no cells"


@dataclass(frozen=True, repr=False)
class TextTable:
    """Columns of texts with a name. patients: the patient column, apart from the others. lines: as in `Sheet`."""

    columns: Mapping[str, Column]
    lines: Sequence[int]
    patients: Mapping[str, NDArray[np.object_]] = field(default_factory=dict[str, "NDArray[np.object_]"])

    @classmethod
    def of(cls, sheet: Sheet, spelling: Spelling = AS_WRITTEN, patient_column: str | None = None) -> TextTable:
        """Return all columns of the sheet with the declared spelling."""
        cells = zip(*sheet.rows, strict=True) if sheet.rows else [()] * len(sheet.names)
        columns = {name: each for name, each in zip(sheet.names, cells, strict=True) if name}
        patient = None if patient_column is None else cleaned(patient_column)
        # Each identifier stands in few rows: as words of a column they would cost time.
        identifiers = {
            name: np.array([*map(cleaned, columns.pop(name))], object) for name in [patient] if name in columns
        }
        texts = {name: Column.of_texts(each, spelling, name) for name, each in columns.items()}
        return cls(texts, sheet.lines, identifiers)

    def spelled(self, spelling: Spelling) -> TextTable:
        """Return the same cells with another spelling."""
        return replace(
            self, columns={name: replace(column, spelling=spelling) for name, column in self.columns.items()}
        )


@dataclass(frozen=True)
class Proposal:
    """A proposed format for a file, and the reasons for it.

    reasons  field of the format -> reason in words
    columns  the forms of the cells of each column
    doubts   fields with two possible answers, which a person must declare
    remarks  texts that a person should read
    """

    format: TableFormat
    reasons: Mapping[str, str]
    columns: tuple[ColumnForms, ...] = field(repr=False)
    doubts: tuple[Doubt, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def doubtful(self) -> str:
        """Return the doubts in words with counts of cells, or an empty text if there are none."""
        words: list[str] = []
        for doubt in self.doubts:
            doubtful_columns = [column for column in self.columns if _is_doubtful(column, doubt)]
            examples = "; ".join(f"column {column.name}: {column}" for column in doubtful_columns[:3])
            more = f" and {len(doubtful_columns) - 3} more columns" if len(doubtful_columns) > 3 else ""
            options = "--decimal point or comma" if doubt == "decimal" else "--dates dmy or mdy"
            words.append(f"{self.reasons[doubt]} ({examples}{more}): declare {options}")
        return ". ".join(words)


@dataclass(frozen=True)
class DeclaredParts:
    """The declared parts of a format. The others are proposed."""

    separator: Separator | None = None
    encoding: str | None = None
    decimal: Decimal | None = None
    dates: Dates | None = None


def examine(
    path: Path,
    stated: DeclaredParts,
    names: Sequence[str] | None = None,
    may_be_empty: bool = False,
    patient_column: str | None = None,
) -> tuple[Proposal, TextTable]:
    """Return the proposal for one file without its spelling, and the table read with it. Raises as `propose_format`."""
    require_there(path)
    data, reasons = bytes_of(path), dict[str, str]()
    encoding, reasons["encoding"] = stated.encoding or "", "declared"
    if not encoding:
        encoding, reasons["encoding"] = propose_encoding(path.name, data)
    text = decode(path.name, data, encoding)
    separator, reasons["separator"] = stated.separator, "declared"
    if separator is None:
        separator, reasons["separator"] = _separator(path.name, text, None if names is None else len(names))
    sheet = read_sheet(path.name, text, separator, names=names, may_be_empty=may_be_empty)
    reasons["header"] = f"{len(sheet.names)} different names, none of them a number" if names is None else "no header"
    table = TextTable.of(sheet, patient_column=patient_column)
    forms = tuple(ColumnForms.of(name, column) for name, column in table.columns.items())
    table_format = TableFormat(separator, encoding, names is None, stated.decimal, stated.dates)
    return Proposal(table_format, reasons, forms, (), remarks_on(path.name, sheet)), table


def combined(parts: Sequence[Proposal]) -> Proposal:
    """Return one proposal for all tables of a data set, with decimal mark and order of dates from all cells.

    Raises:
        DataError: the tables differ in separator or encoding.
    """
    first = parts[0].format
    for proposal in parts[1:]:
        if (proposal.format.separator, proposal.format.encoding) != (first.separator, first.encoding):
            raise DataError(
                f"the tables of one data set need one format, and these differ: one has {first}, another has "
                f"{proposal.format}. Save them with one separator and in one encoding"
            )
    columns = tuple(chain.from_iterable(proposal.columns for proposal in parts))
    reasons, doubts = dict(parts[0].reasons), list[Doubt]()
    decimal, dates = first.decimal, first.dates
    if decimal is None:
        decimal, reasons["decimal"], doubtful = _decimal(columns)
        if doubtful:
            doubts.append("decimal")
    if dates is None:
        dates, reasons["dates"], doubtful = _dates(columns)
        if doubtful:
            doubts.append("dates")
    reasons = {"decimal": "declared", "dates": "declared"} | reasons
    remarks = tuple(chain.from_iterable(proposal.remarks for proposal in parts))
    return Proposal(replace(first, decimal=decimal, dates=dates), reasons, columns, tuple(doubts), remarks)


def _form(word: str) -> str | None:
    match = _FORM.fullmatch(word)
    if match is None or match.lastgroup == "other":
        return None
    if match.lastgroup != "date":
        return match.lastgroup
    first, second = map(int, cast("re.Match[str]", _TWO_NUMBERS.match(word)).groups())
    if not (1 <= first <= 31 and 1 <= second <= 31 and min(first, second) <= 12):
        return None
    return "day_first" if first > 12 else "month_first" if second > 12 else "day_or_month"


def _is_doubtful(column: ColumnForms, doubt: Doubt) -> bool:
    if doubt == "decimal":
        return bool(column.point or column.comma or column.thousands)
    return bool(column.day_first or column.month_first or column.day_or_month)


def _totals(columns: Sequence[ColumnForms], *forms: str) -> list[int]:
    return [sum(getattr(column, form) for column in columns) for form in forms]


def _decimal(columns: Sequence[ColumnForms]) -> tuple[Decimal | None, str, bool]:
    """Return (mark, reason, whether the file leaves a doubt)."""
    points, commas, thousands = _totals(columns, "point", "comma", "thousands")
    if points and commas:
        return None, f"{points} cells are numbers with a decimal point, and {commas} with a decimal comma", True
    if points or commas:
        mark: Decimal = "point" if points else "comma"
        unsure = f", {thousands} cells may be written with thousands" if thousands else ""
        return mark, f"{points or commas} cells are numbers with a decimal {mark}, none with the other{unsure}", False
    if thousands:
        return None, f"{thousands} cells may be decimal numbers or thousands, and no cell shows which", True
    return None, "no cell has a decimal mark", False


def _dates(columns: Sequence[ColumnForms]) -> tuple[Dates | None, str, bool]:
    days, months, either = _totals(columns, "day_first", "month_first", "day_or_month")
    if days and months:
        return None, f"{days} cells are dates with the day first, and {months} with the month first", True
    if days or months:
        order, first = cast("tuple[Dates, str]", ("dmy", "day") if days else ("mdy", "month"))
        return order, f"{days or months} dates have a {first} first that allows no other order", False
    if either:
        return None, f"{either} cells are dates whose day or month may be first, and no cell shows which", True
    return None, "no cell is a date whose year is last", False


def _separator(file: str, text: str, width: int | None) -> tuple[Separator, str]:
    """Return (the separator that makes all rows equally long, reason).

    Raises:
        DataError: several separators do, or quotation marks do not pair.
    """
    start = text[: 1 << 14]
    present: list[Separator] = [separator for separator in SEPARATORS if SEPARATORS[separator] in start]
    likely: list[Separator] = sorted(present, key=lambda separator: -start.count(SEPARATORS[separator]))
    if not likely:
        return "comma", "one column: no separator stands in the file"
    even, faults = _even_separators(file, text, width, likely)
    if len(even) > 1:
        names = " and ".join(PLURALS[separator] for separator in even)
        raise DataError(
            f"{file}: {names} stand in every line alike: keep one of them, or declare which stands between the cells "
            "(--separator)"
        )
    if even:
        return even[0], f"{PLURALS[even[0]]} make all rows equally long"
    if likely[0] in faults:
        raise faults[likely[0]]
    return likely[0], f"{PLURALS[likely[0]]} stand in the file most often"


def _even_separators(
    file: str, text: str, width: int | None, likely: list[Separator]
) -> tuple[list[Separator], dict[Separator, DataError]]:
    sampled: list[Separator] = [each for each in likely if _is_even(_sample(text, each), width)] or likely
    if len(sampled) == 1:
        return sampled, {}
    even, faults = list[Separator](), dict[Separator, DataError]()
    for separator in sampled:
        try:
            if _is_even(split(file, text, separator)[0], width):
                even.append(separator)
        except DataError as fault:
            faults[separator] = fault
    return even, faults


def _sample(text: str, separator: Separator) -> list[list[str]]:
    """Return the first rows."""
    reader = csv.reader(
        io.StringIO(text[:_SAMPLED], newline=""), delimiter=SEPARATORS[separator], skipinitialspace=True
    )
    try:
        rows = [cells for cells in reader if any(map(str.strip, cells))]
    except csv.Error:
        return []
    # The last row may be cut.
    return rows if len(text) <= _SAMPLED else rows[:-1]


def _is_even(rows: Sequence[list[str]], width: int | None) -> bool:
    """Return whether all rows have as many cells as the first, and more than one."""
    cell_count = len(rows[0]) if rows and width is None else width
    return bool(rows) and cell_count is not None and cell_count > 1 and all(len(cells) == cell_count for cells in rows)
