"""The window of days in which a patient's first record lies: by that patient's own dates alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from study_protocol.cells import Column, read_days
from study_protocol.queries.variables import ColumnName, column_of
from study_protocol.wire.values import Message

_EPOCH = date(1970, 1, 1)
_FIRST, _LAST = date(1900, 1, 1), date(2200, 1, 1)


def _plain_day(value: object) -> object:
    """Pass a day. A text has the one form YYYY-MM-DD, and a moment is none."""
    if isinstance(value, str):
        if len(value) != len("2027-01-01"):
            raise ValueError("a day such as 2027-01-01 is expected")
        return date.fromisoformat(value)
    if type(value) is not date:
        raise ValueError("a day such as 2027-01-01 is expected")
    return value


Day = Annotated[date, BeforeValidator(_plain_day), Field(ge=_FIRST, le=_LAST)]


class FirstRecord(Message):
    """Patients whose first record lies in these days. A patient is in at most one of several disjoint windows."""

    column: ColumnName = Field(description="the date of each row")
    first_day: Day = Field(description="the first day of the window")
    end: Day = Field(description="the first day after it")

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.first_day < self.end:
            raise ValueError("end: is after first_day")
        return self

    def holds(self, columns: Mapping[str, Column], patients: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether each row belongs to a patient of this window, shape (rows,).

        Raises:
            UnreadableColumn: the table has no such column.
        """
        days = first_days(columns, self.column, patients)
        # A time of day belongs to its day: windows begin and end at midnight.
        return (days >= days_since_epoch(self.first_day)) & (days < days_since_epoch(self.end))

    def in_words(self) -> str:
        return f"whose first record ({self.column}) is from {self.first_day} on and before {self.end}"


def days_since_epoch(day: date) -> int:
    """Return days from 1 January 1970."""
    return (day - _EPOCH).days


def first_days(columns: Mapping[str, Column], column: str, patients: Sequence[str]) -> NDArray[np.float64]:
    """Return the day of the first record of each row's patient, in days from 1 January 1970, shape (rows,).

    NaN for a patient with any row whose date is missing or no date: which row is the first is not known. Another
    patient's rows do not count.

    Raises:
        UnreadableColumn: the table has no such column.
    """
    days = read_days(column_of(columns, column)).values
    places: dict[str, int] = {}
    place = np.array([places.setdefault(patient, len(places)) for patient in patients], np.int64)
    first = np.full(len(places), np.inf)
    # An unknown day comes before all others of its patient.
    np.minimum.at(first, place, np.where(np.isnan(days), -np.inf, days))
    return np.where(np.isfinite(first), first, np.nan)[place]
