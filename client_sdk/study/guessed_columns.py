"""Guessed descriptions of a table's columns, for a first simulation: types, rounded ranges, frequent categories.

All numbers are of the records, so no budget covers them. A person replaces them by public knowledge before they leave
the hospital. No single patient's value is among them, and no category of fewer than 10 patients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.study.encoding_hints import without_codes
from private_learning.records import Table
from private_learning.tasks import TaskError
from private_learning.tasks.columns import PREFIX, read_columns
from private_learning.tasks.declared_columns import CategoryColumn, Declared, Floats, NumberColumn
from private_learning.tasks.typical import (
    column_text,
    fitted_column,
    is_roundable,
    known_values,
    number_text,
    rounded_outward,
)
from study_protocol.cells import Column, read_categories, read_days, read_numbers

# Patients that a written category or code has, at least.
MIN_PATIENTS = 10
_MAX_CATEGORIES, _MAX_STEPS, _MAX_CODED = 20, 5, 30
# Shares of the cells: of a type that a column has, of missing ones that leave too little, of listed categories.
_OF_ONE_TYPE, _MOSTLY_MISSING, _LISTED = 0.9, 0.95, 0.5
# Share of rare categories from which groups are advised.
_WORTH_GROUPING = 0.05
_LONG_TEXT, _MAX_STAND_INS = 40, 2
_NEGATIVE_CODES = (-1.0, -9.0, -99.0, -999.0, -9999.0)
# An identifier is another for most rows. One that its name gives away may repeat.
_DISTINCT, _DISTINCT_OF_NAMED, _LONG_NUMBER, _MIN_ROWS = 0.9, 0.2, 1e6, 20
_IDENTIFIER = re.compile(r"(^|[^a-z])(id|ids|nr|no|nbr|num|mrn|pid|uid|guid|key|index|row)$|identifier|patient|subject")
_PATIENT = re.compile(
    r"patient|subject|person|mrn|uniquepid|^(pid|pat)$|paciente|paziente|pseudonym|(fall|case|pat)[^a-z]*(id|nr|nummer)$"
)
# Letters and at least five digits, as CH-002732. Codes of diagnoses have fewer, and times have colons.
_NAMES_A_PATIENT = re.compile(r"(?=.*[^\W\d_])(?:[^\d\s:]*\d){5}[\w-]*")
_NOT_A_PATIENT = re.compile(r"age|sex|weight|height|type|stay|unit|visit|encounter")
_CODED = re.compile(r"(^|[^a-z])(id|code|type|category|group|class|grade|stage)$")

_UNWRITABLE = "its words cannot be written between bars, or are numbers with a separator of thousands"

Codes = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class GuessedColumns:
    """Guessed inputs of a study.

    lines     column -> description, as `read_columns` reads it
    left_out  column -> why it is no input
    remarks   what a person should know of cells that no line describes
    table     the records, in which such cells are empty
    """

    lines: Mapping[str, str] = field(repr=False)
    left_out: Mapping[str, str]
    remarks: tuple[str, ...]
    table: Table = field(repr=False)


class _LeftOut(Exception):
    """A column is no input, for the reason in the text."""


def guess_columns(
    table: Table, targets: Collection[str], left_out: Collection[str] = (), kept: Collection[str] = ()
) -> GuessedColumns:
    """Return descriptions of all columns but the targets, and those that are left out, with a reason for each.

    Args:
        targets: columns that a model would learn to predict. They are neither described nor reported.
        left_out: columns that a person leaves out.
        kept: columns whose numbers are no identifiers, as a person says.
    """
    lines, reasons, remarks = dict[str, str](), dict.fromkeys(left_out, "as you said"), list[str]()
    columns = dict(table.columns)
    people = people_of(table)
    for name, column in table.columns.items():
        if name in targets or name in reasons:
            continue
        try:
            declared = _declared(name, column, people, is_kept=name in kept)
            text = column_text(declared)
            if read_columns({PREFIX + name: text}) != (declared,):
                raise _LeftOut(_UNWRITABLE)
        except TaskError:
            reasons[name] = _UNWRITABLE
        except _LeftOut as reason:
            reasons[name] = str(reason)
        else:
            lines[name] = text
            columns[name], emptied = _emptied(declared, column)
            if emptied:
                why = _why_emptied(declared, emptied / len(column))
                remarks.append(f"column {name}: {emptied:,} of {len(column):,} cells {why}")
            remarks += _of_rare_codes(declared, column)
    return GuessedColumns(lines, reasons, tuple(remarks), replace(table, columns=columns))


def patient_column(table: Table) -> str | None:
    """Return a column that by its name or cells identifies patients of whom some have several rows, or None."""
    for name, column in table.columns.items():
        small = name.casefold()
        if _NOT_A_PATIENT.search(small):
            continue
        words, codes = words_of(column)
        present = codes[codes >= 0]
        distinct: list[int] = np.unique(present).tolist()
        repeats = len(present) * _DISTINCT_OF_NAMED < len(distinct) < len(present)
        if not repeats or len(present) <= len(column) / 2:
            continue
        if _PATIENT.search(small) or all(_NAMES_A_PATIENT.fullmatch(words[code]) for code in distinct):
            return name
    return None


def people_of(table: Table) -> NDArray[np.int64]:
    """Return (n,) a number for the patient of each row."""
    return (
        np.unique(np.array(table.patients, dtype=str), return_inverse=True)[1] if table.named else np.arange(len(table))
    )


def words_of(column: Column) -> tuple[list[str], Codes]:
    """Return the different texts of the cells, and the place of each cell among them: (n,), -1 for a missing one."""
    missing = read_numbers(column).missing
    texts = column.as_texts if column.values.dtype.kind in "bM" or column.is_text else column
    if texts.words is not None:
        words: list[Any] = texts.words.tolist()
        places = np.asarray(texts.values, np.int64)
    else:
        numbers, places = np.unique(np.where(missing, 0.0, read_numbers(column).values), return_inverse=True)
        words = [f"{number:.15g}" for number in numbers.tolist()]
    first = {word: place for place, word in reversed(list(enumerate(words)))}
    first_places = np.array([first[word] for word in words], np.int64)
    return [word or "" for word in words], np.where(missing, -1, first_places[places] if len(first_places) else places)


def patients_of(codes: Codes, people: NDArray[np.int64], count: int) -> Codes:
    """Return (count,) the number of different patients with each code."""
    pairs = np.unique(np.stack([codes, people])[:, codes >= 0], axis=1)
    return np.bincount(pairs[0], minlength=count)


def numeric_share(column: Column, stand_ins: Sequence[str] = ()) -> float:
    """Return the share of numbers among the cells that are not missing or such a word, or 0."""
    numbers = read_numbers(column, stand_ins)
    count = int((~numbers.missing).sum())
    return 0.0 if not count else 1 - int(numbers.wrong.sum()) / count


@np.errstate(over="ignore", invalid="ignore")
def rounded_range(values: Floats) -> tuple[float, float] | None:
    """Return a range that holds nearly all values, rounded outward. None: 98 % are one number, or beyond ±1e300."""
    first, last = np.quantile(values, (0.01, 0.99)).tolist()
    if not is_roundable(first, last):
        return None
    low, high = rounded_outward(first, last)
    # Zero is a natural end of what is never below it.
    return (0.0 if 0 < low < 0.2 * high else low), high


@np.errstate(over="ignore")
def is_identifier(name: str, values: Floats) -> bool:
    """Return whether numbers are names of rows: whole, nearly all different, and named, counted up, or long."""
    if len(values) < _MIN_ROWS or (values % 1 != 0).any():
        return False
    share = len(np.unique(values)) / len(values)
    if _IDENTIFIER.search(name.casefold()) and not _NOT_A_PATIENT.search(name.casefold()):
        return share > _DISTINCT_OF_NAMED
    is_counted_up = bool((values[1:] > values[:-1]).all())
    return share > _DISTINCT and (is_counted_up or float(np.median(np.abs(values))) >= _LONG_NUMBER)


def _declared(name: str, column: Column, people: NDArray[np.int64], *, is_kept: bool) -> Declared:
    """Raises _LeftOut."""
    words, codes = words_of(column)
    _require_different_values(codes)
    odd: list[int] = np.unique(codes[read_numbers(column).wrong]).tolist()
    counts = patients_of(codes, people, len(words))
    stand_ins = [words[code] for code in odd if counts[code] >= MIN_PATIENTS]
    # More words beside numbers are codes of a list, such as one of diagnoses.
    if len(stand_ins) <= _MAX_STAND_INS and _are_numbers(column, stand_ins, len(np.unique(codes[codes >= 0]))):
        values = read_numbers(column, stand_ins).values
        if not is_kept and is_identifier(name, values[~np.isnan(values)]):
            raise _LeftOut("an identifier")
        return _number(name, column, people, stand_ins)
    if 1 - read_days(column).wrong.sum() / (codes >= 0).sum() >= _OF_ONE_TYPE:
        raise _LeftOut("dates")
    return _category(name, words, codes, people)


def _are_numbers(column: Column, stand_ins: list[str], distinct: int) -> bool:
    """Return whether the cells are numbers, beside few words for a missing one, such as "not measured".

    Where such words are many, the numbers have to be too many to be categories.
    """
    if numeric_share(column) >= _OF_ONE_TYPE:
        return True
    are_many = distinct > _MAX_CODED and numeric_share(column) > 1 - _MOSTLY_MISSING
    return are_many and numeric_share(column, stand_ins) >= _OF_ONE_TYPE


def _require_different_values(codes: Codes) -> None:
    """Raises _LeftOut: all or most values are missing, or they are the same."""
    present = codes >= 0
    if not present.any():
        raise _LeftOut("no values")
    if present.mean() < 1 - _MOSTLY_MISSING:
        raise _LeftOut(f"more than {_MOSTLY_MISSING:.0%} are missing")
    if len(np.unique(codes[present])) == 1:
        raise _LeftOut("one value throughout")


def _number(name: str, column: Column, people: NDArray[np.int64], stand_ins: list[str]) -> Declared:
    values = read_numbers(column, stand_ins).values
    stand_ins = [*stand_ins, *map(number_text, _codes_in(values, people))]
    numbers = read_numbers(column, stand_ins)
    present = ~np.isnan(numbers.values)
    values = numbers.values[present]
    absent = bool((~present).any())
    if (steps := _steps(name, values, people[present])) is not None:
        listed = CategoryColumn(name, steps, absent, tuple(stand_ins))
        return fitted_column(listed, known_values(listed, column)) or listed
    values = without_codes(values)[1]
    ends = rounded_range(values) if len(values) else None
    if ends is None:
        raise _LeftOut("one value but for few patients, or numbers beyond 1e300")
    missing = float(np.clip(_rounded(float(np.clip(np.median(values), *ends))), *ends)) if absent else None
    ranged = NumberColumn(name, *ends, missing, tuple(stand_ins))
    return fitted_column(ranged, values) or ranged


def _steps(name: str, values: Floats, people: NDArray[np.int64]) -> tuple[str, ...] | None:
    """Return the different numbers where they are few, whole, and each of enough patients, otherwise None."""
    steps = np.unique(values)
    limit = _MAX_CODED if _CODED.search(name.casefold()) else _MAX_STEPS
    if not 1 < len(steps) <= limit or (steps % 1 != 0).any():
        return None
    counts = patients_of(np.searchsorted(steps, values).astype(np.int64), people, len(steps))
    return tuple(f"{step:.15g}" for step in steps) if (counts >= MIN_PATIENTS).all() else None


def _codes_in(values: Floats, people: NDArray[np.int64]) -> list[float]:
    """Return numbers that say missing for many patients: far from all others, or below 0 as no other is."""
    known = values[~np.isnan(values)]
    codes = [code for code, _ in without_codes(known)[0]]
    lowest = float(known.min()) if len(known) else 0.0
    is_alone = not ((known > lowest) & (known < 0)).any()
    if lowest in _NEGATIVE_CODES and is_alone and len(np.unique(known)) > 2:
        codes.append(lowest)
    return sorted(code for code in set(codes) if len(np.unique(people[values == code])) >= MIN_PATIENTS)


def _of_rare_codes(declared: Declared, column: Column) -> list[str]:
    """Return a remark on each number that may mean missing, and that too few patients have to write it down."""
    codes = without_codes(known_values(declared, column))[0] if isinstance(declared, NumberColumn) else []
    return [
        f"column {declared.name}: {count} cells are one number far from all others, and count as the nearest end of "
        "the range. If it means missing, leave them empty"
        for _, count in codes
    ]


def _category(name: str, words: list[str], codes: Codes, people: NDArray[np.int64]) -> CategoryColumn:
    present = codes[codes >= 0]
    distinct: list[int] = np.unique(present).tolist()
    if len(distinct) > max(_MAX_CODED, len(present) / 2):
        raise _LeftOut("free text or identifiers")
    if sum(len(words[code]) for code in distinct) > _LONG_TEXT * len(distinct):
        raise _LeftOut("free text")
    frequent = _frequent(patients_of(codes, people, len(words)))
    if np.isin(present, frequent).mean() < _LISTED:
        raise _LeftOut("too many categories")
    categories = tuple(sorted(words[code] for code in frequent))
    absent = bool((codes < 0).any()) or len(frequent) < len(distinct)
    column = CategoryColumn(name, categories, absent)
    places = np.array([categories.index(words[code]) for code in present.tolist() if code in frequent], np.float64)
    fitted = fitted_column(column, places)
    return fitted if isinstance(fitted, CategoryColumn) else column


def _frequent(counts: Codes) -> list[int]:
    """Return the codes of the categories with most patients, those first. Raises _LeftOut: fewer than two."""
    frequent = [int(code) for code in np.argsort(-counts, kind="stable") if counts[code] >= MIN_PATIENTS]
    if len(frequent) < 2:
        raise _LeftOut(f"fewer than two categories have {MIN_PATIENTS} patients")
    return frequent[:_MAX_CATEGORIES]


def _emptied(declared: Declared, column: Column) -> tuple[Column, int]:
    """Return the cells without those that the description makes faults of, and how many these are."""
    if isinstance(declared, CategoryColumn):
        wrong = read_categories(column, declared.categories, declared.missing_values).wrong
    else:
        wrong = read_numbers(column, declared.missing_values).wrong
    if not wrong.any():
        return column, 0
    cells = column.as_texts.tolist()
    texts = [None if is_wrong else cell for cell, is_wrong in zip(cells, wrong.tolist(), strict=True)]
    return Column.of_texts(texts, column.spelling, column.name), int(wrong.sum())


def _why_emptied(declared: Declared, share: float) -> str:
    are = "are no numbers" if isinstance(declared, NumberColumn) else "are rare categories"
    cure = "leave them empty" if share < _WORTH_GROUPING else "put them into public groups, or leave them empty"
    return f"{are} and count as missing here. A study refuses them: {cure}"


def _rounded(value: float) -> float:
    """Return the value with two digits."""
    return 0.0 if value == 0 else round(value, 1 - math.floor(math.log10(abs(value))))
