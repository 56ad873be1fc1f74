"""From several rows of a patient to one, by the rule that a question states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells import Column, read_categories, read_numbers
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.regression.design import Factor
from study_protocol.queries.variables import Condition, Indicator, Patients, Range, Variable, column_of
from study_protocol.wire.values import Message

Reading = Variable | Range | Indicator | Condition | Factor
_Index = NDArray[np.int64]


def one_row_each(question: BaseQuestion, columns: Patients, patients: Sequence[str]) -> Patients:
    """Return the columns that the question reads, one row a patient, in the order of the patients' first rows.

    first, last  the patient's first or last row as it stands, empty cells included
    mean         of a number: the mean of the values that are not missing. Anything else: as `first`
    any          of a number: the largest value that is not missing. Of a category: the value that stands last in the
                 question's first list for that column. Values outside the list come before it, and missing ones before
                 them. Among equals it is the first row

    A column is a number if the question reads it as one anywhere (bins, ranges, bounds). Rows are merged before
    patients are left out: `where` is about the merged row.

    Args:
        patients: the patient of each row.

    Raises:
        UnreadableColumn: a column is missing.
    """
    patient_of, first, last = _places(patients)
    needed = {name: column_of(columns, name) for name in question.columns}
    if not needed:
        # A question without a column still counts all patients.
        return {"": np.zeros(len(first))}
    # Merged also if all patients have one row: a patient with two may not change the result of the others.
    if question.rows in ("first", "last"):
        places = last if question.rows == "last" else first
        return {name: column.take(places) for name, column in needed.items()}
    readings, is_mean = list(readings_of(question)), question.rows == "mean"
    return {
        name: _merged(column, [reading for reading in readings if reading.column == name], patient_of, first, is_mean)
        for name, column in needed.items()
    }


def _merged(
    column: Column, readings: Sequence[Reading], patient_of: _Index, first: _Index, is_mean: bool
) -> Column | NDArray[np.float64]:
    numeric = [reading for reading in readings if _is_number(reading)]
    if numeric:
        codes = tuple(dict.fromkeys(chain.from_iterable(reading.missing_values for reading in numeric)))
        return (_mean if is_mean else _largest)(read_numbers(column, codes).values, patient_of, len(first))
    return column.take(first if is_mean else _last_listed(column, readings, patient_of, len(first)))


def one_value_each(
    rule: Literal["first", "last", "mean", "any"],
    values: NDArray[np.float64],
    patients: Sequence[str],
    *,
    numeric: bool,
) -> NDArray[np.float64]:
    """Return (rows,) values that stand in no column, merged by the same rule, shape (patients,). NaN is missing.

    Args:
        numeric: whether mean and any are of numbers. Otherwise the first row counts.
    """
    patient_of, first, last = _places(patients)
    if rule == "last":
        return values[last]
    if rule == "first" or not numeric:
        return values[first]
    return (_mean if rule == "mean" else _largest)(values, patient_of, len(first))


def _places(patients: Sequence[str]) -> tuple[_Index, _Index, _Index]:
    """Return the patient of every row, counted by first rows, and the first and last row of every patient.

    The shapes are (rows,), (patients,) and (patients,).
    """
    numbering: dict[str, int] = {}
    patient_of = np.fromiter(
        (numbering.setdefault(patient, len(numbering)) for patient in patients), np.int64, len(patients)
    )
    rows = np.arange(len(patient_of))
    first, last = np.full(len(numbering), len(patient_of)), np.full(len(numbering), -1)
    np.minimum.at(first, patient_of, rows)
    np.maximum.at(last, patient_of, rows)
    return patient_of, first, last


def _mean(numbers: NDArray[np.float64], patient_of: _Index, count: int) -> NDArray[np.float64]:
    present = ~np.isnan(numbers)
    times = np.bincount(patient_of[present], minlength=count)
    # Divided before they are added: large numbers do not overflow.
    parts = numbers[present] / times[patient_of[present]]
    return np.where(times > 0, np.bincount(patient_of[present], parts, minlength=count), np.nan)


def _largest(numbers: NDArray[np.float64], patient_of: _Index, count: int) -> NDArray[np.float64]:
    largest = np.full(count, np.nan)
    np.fmax.at(largest, patient_of, numbers)
    return largest


def _last_listed(column: Column, readings: Sequence[Reading], patient_of: _Index, count: int) -> _Index:
    """Return the row that counts, shape (patients,)."""
    lists = [
        reading.categories for reading in readings if not isinstance(reading, Range) and reading.categories is not None
    ]
    codes = tuple(dict.fromkeys(chain.from_iterable(reading.missing_values for reading in readings)))
    cells = read_categories(column, lists[0] if lists else (), codes)
    # Missing ones before other values, those before the listed ones.
    ranks = np.where(cells.missing, 0, cells.places + 2)
    # By patient, then by rank, then earlier rows later: the last of each patient counts.
    order = np.lexsort((-np.arange(len(patient_of)), ranks, patient_of))
    ends = np.cumsum(np.bincount(patient_of, minlength=count)) - 1
    return order[ends]


def _is_number(reading: Reading) -> bool:
    if isinstance(reading, Variable):
        return reading.edges is not None
    return isinstance(reading, Range) or (isinstance(reading, Condition) and reading.categories is None)


def readings_of(value: object) -> Iterator[Reading]:
    """Yield every way in which a question reads a column, in the order of its document."""
    if isinstance(value, Reading):
        yield value
    elif isinstance(value, Message):
        yield from chain.from_iterable(readings_of(getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, tuple):
        yield from chain.from_iterable(map(readings_of, cast("tuple[object, ...]", value)))
