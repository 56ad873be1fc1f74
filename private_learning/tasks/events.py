"""Tables of events as sequences of tokens, by public words that travel in a study's parameters.

    events.diagnoses = "code=icd; time=day; codes=I10|E11|N18"

The table `diagnoses` has one row for each event: column icd holds its code, column day its time (numbers in any
unit, or dates). The key codes is the public vocabulary, chosen before the study. All other codes in the column are one
further token, and so is a missing code. No value is fitted to the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from private_learning.records import DataError, Table, WrongRows
from private_learning.records.histories import Histories
from private_learning.tasks.columns import categories_of, require_columns
from private_learning.tasks.task import InputUse, TaskError
from study_protocol.cells import Column, column_name, read_categories, read_days, read_numbers

PREFIX = "events."
_KEYS = ("code", "time", "codes")
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class EventTable:
    """One table of events.

    first: its first token. tokens: the codes', and one for all others.
    """

    name: str
    code: str
    time: str
    codes: tuple[str, ...]
    first: int

    @property
    def tokens(self) -> int:
        return len(self.codes) + 1

    def read(self, table: Table) -> tuple[Array, Array, Array]:
        """Return (rows,) tokens, (rows,) times, and (rows,) booleans of missing codes.

        Raises:
            DataError: a column is not there, a time is missing or neither a number nor a date. The table and the first
                line are named.
        """
        try:
            require_columns([self.code, self.time], table.columns)
            times = self._times(table.columns[self.time])
        except WrongRows as error:
            raise DataError(f"events {self.name}: {error.located(table.first)}") from error
        except DataError as error:
            raise DataError(f"events {self.name}: {error}") from error
        code = read_categories(table.columns[self.code], self.codes)
        return np.where(code.places < 0, len(self.codes), code.places) + self.first, times, code.missing

    def _times(self, column: Column) -> Array:
        """Return (rows,) numbers, or days of dates. Raises WrongRows: neither, or some of each."""
        numbers, days = read_numbers(column), read_days(column)
        wrong = numbers.wrong & days.wrong
        if wrong.any():
            text = f"column {self.time}: {int(wrong.sum())} of {len(column)} events have a time that is none"
            raise WrongRows(text, wrong, f"is {_kind(column.take([int(np.argmax(wrong))]))}")
        if numbers.missing.any():
            text = f"column {self.time}: {int(numbers.missing.sum())} of {len(column)} events have no time"
            raise WrongRows(text, numbers.missing)
        if not days.wrong.all() and not numbers.wrong.all():
            text = f"column {self.time}: {int((~days.wrong).sum())} of {len(column)} times are dates and others numbers"
            raise WrongRows(text, ~days.wrong)
        return np.where(days.wrong, numbers.values, days.values)


def _kind(cell: Column) -> str:
    """Return the kind of a cell that is no time."""
    of_dates = read_days(cell).kind
    return of_dates if of_dates.startswith("a date") else read_numbers(cell).kind


def read_events(parameters: Mapping[str, object]) -> tuple[EventTable, ...]:
    """Return the tables of events among a study's parameters, in the order of their names. Token 0 is no event.

    Raises:
        TaskError: no table, or a description that is not of the form.
    """
    tables: list[EventTable] = []
    for key, text in sorted(item for item in parameters.items() if item[0].startswith(PREFIX)):
        first = 1 if not tables else tables[-1].first + tables[-1].tokens
        tables.append(_read(key.removeprefix(PREFIX), text, first))
    if not tables:
        raise TaskError(f"at least one parameter {PREFIX}<table> is needed")
    return tuple(tables)


def sequences(tables: tuple[EventTable, ...], histories: Histories, length: int) -> Array:
    """Return (patients, length) int64: the newest events of each, oldest first, 0 behind the last.

    Events at one time stand in the order of their tokens, so that the order of rows does not matter.

    Raises:
        DataError: as `EventTable.read`, or a table is not there.
    """
    owners: list[Array] = []
    tokens: list[Array] = []
    times: list[Array] = []
    for table in tables:
        owner = histories.owners(table.name)
        token, time, _ = table.read(histories.events[table.name])
        ours = owner >= 0
        owners.append(owner[ours])
        tokens.append(token[ours])
        times.append(time[ours])
    owner, token, time = (np.concatenate(parts) for parts in (owners, tokens, times))
    order = np.lexsort((token, time, owner))
    owner, token = owner[order], token[order]
    counts = np.bincount(owner, minlength=len(histories))
    # Counted from each patient's last event backwards: 0 is the newest.
    age = np.cumsum(counts)[owner] - 1 - np.arange(len(owner))
    is_recent = age < length
    result = np.zeros((len(histories), length), np.int64)
    result[owner[is_recent], np.minimum(counts, length)[owner[is_recent]] - 1 - age[is_recent]] = token[is_recent]
    return result


def uses(tables: tuple[EventTable, ...], histories: Histories) -> tuple[InputUse, ...]:
    """Return the number of events of each table, for these patients and for others. Raises as `sequences`."""
    input_uses: list[InputUse] = []
    for table in tables:
        ours = histories.owners(table.name) >= 0
        events = histories.events[table.name].take(np.flatnonzero(ours))
        tokens, _, absent = table.read(events)
        is_other = (tokens == table.first + len(table.codes)) & ~absent
        counts = {"missing": int(absent.sum()), "other": int(is_other.sum()), "of_others": int((~ours).sum())}
        input_uses.append(InputUse(f"events {table.name}", len(events), clipped=0, **counts))
    return tuple(input_uses)


def _read(name: str, text: object, first: int) -> EventTable:
    form = f'{PREFIX}{name}: "code=COLUMN; time=COLUMN; codes=A|B|C" is expected'
    if not name or not isinstance(text, str):
        raise TaskError(form)
    settings: dict[str, str] = {}
    lacking = list(_KEYS)
    for part in text.split(";"):
        key, _, value = map(str.strip, part.partition("="))
        if key not in lacking or not value:
            raise TaskError(f"{form}, each of the three once")
        lacking.remove(key)
        settings[key] = value
    if lacking:
        raise TaskError(f"{form}, but {', '.join(lacking)} is missing")
    codes = categories_of(settings["codes"])
    if not codes:
        raise TaskError(f"{PREFIX}{name}: codes must be different words with bars between, and no commas: I10|E11")
    return EventTable(name, column_name(settings["code"]), column_name(settings["time"]), codes, first)
