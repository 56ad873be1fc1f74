"""The mapping of a hospital: from the names, codes and units of its tables to those of a study.

    [columns]                       # of a single table, or of the table `patients` of histories
    ward = "station"                                                      # another name alone
    sex = { from = "gender", map = { M = "male", F = "female" } }         # other codes
    glucose = { from = "glu_mmol", multiply = 18.016, missing = ["-9"] }  # another unit
    temperature = { from = "temp_f", add = -32, multiply = 0.5555555555555556 }
    admitted = { from = "admit_date", days_from = "index_date" }          # a date as days

    [events.diagnoses]              # of the table of events `diagnoses`, in the same forms
    code = { from = "icd", map = { "I10.0" = "I10" } }

A number x becomes (x + add) * multiply. A date becomes whole days after the date in the column of days_from: days
before it are negative. Each cell is mapped by itself, so the result does not depend on how the table is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from private_learning.records.histories import Histories
from private_learning.records.in_memory import Records
from private_learning.records.lazy_table import LazyTable, StoredColumns
from private_learning.records.mapped_column import ColumnMapping, MappedCells
from private_learning.records.mapping_file import parsed_mapping
from private_learning.records.records import AppliedMapping, Array, DataError, Table, like
from study_protocol.cells import Column, column_name
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.written import Unreadable, read_toml

# A file of a code system with 100,000 entries is smaller.
_MAX_BYTES = 1 << 24


@dataclass(frozen=True)
class MappingCounts:
    """What a mapping made of the cells of one column, for the hospital's own eyes.

    Attributes:
        table: the table of events. Empty: a single table, or the table of patients.
        column, local: the study's name and the hospital's.
        action: what the mapping does, in words.
        cells: number of all cells.
        mapped: cells with a value.
        unmapped: cells with a code that the mapping does not know, or with no number or date where one is needed.
        missing: cells that are empty, a word for missing, or a code of `missing`.
    """

    table: str
    column: str
    local: str
    action: str
    cells: int
    mapped: int
    unmapped: int
    missing: int


@dataclass(frozen=True, repr=False)
class TableMapping:
    """A mapping, made by `read`.

    columns: of a single table, or of the table of patients. events: of each table of events.
    """

    columns: tuple[ColumnMapping, ...]
    events: Mapping[str, tuple[ColumnMapping, ...]]

    @classmethod
    def read(cls, path: str | Path) -> TableMapping:
        """Return the mapping in a file. Raises DataError: it cannot be read, or an entry is wrong. Names the entry."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise DataError(f"{path.name}: this file of the mapping cannot be read ({type(error).__name__})") from error
        if len(content) > _MAX_BYTES:
            raise DataError(f"{path.name}: it has more than {_MAX_BYTES >> 20} MiB. A mapping names columns and codes")
        try:
            return cls(*parsed_mapping(read_toml(content)))
        except (Unreadable, DataError) as error:
            raise DataError(f"{path.name}: {error}") from error

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical JSON of all entries, 64 hex digits. Order, comments and spaces do not count."""
        each = {name: [entry.to_dict() for entry in entries] for name, entries in self.events.items()}
        document = {"columns": [entry.to_dict() for entry in self.columns], "events": each}
        return hashlib.sha256(b"wardround columns 1\n" + canonical_json(document)).hexdigest()

    def applied(self, records: Records, patient_column: str | None = None) -> Records:
        """Return the records with the study's names, codes and units. A table that is read on demand stays so.

        The date of days_from may stand in the table of patients. Events of other patients are then left out.

        patient_column: the column that names the patients, which no entry may take or make.

        Raises:
            DataError: the records are no table, lack a column or a table of events, or would have two columns of one
                name.
        """
        table = self._checked(records, patient_column)
        mapped = self._mapped("[columns]", self.columns, table)
        if not isinstance(table, Histories) or not isinstance(mapped, Histories):
            return mapped
        events = dict(table.events)
        for name, entries in self.events.items():
            with_dates, added = _with_dates(table, name, entries)
            events[name] = self._mapped(f"[events.{name}]", entries, with_dates).without_columns(added)
        return replace(mapped, events=events)

    def counts(self, records: Records, patient_column: str | None = None) -> tuple[MappingCounts, ...]:
        """Return what the mapping makes of each column of these local records. Raises as `applied`."""
        table = self._checked(records, patient_column)
        counts = _counts("", self.columns, table)
        for name, entries in sorted(self.events.items()):
            if isinstance(table, Histories):
                counts += _counts(name, entries, _with_dates(table, name, entries)[0])
        return tuple(counts)

    def _checked(self, records: Records, patient_column: str | None) -> Table:
        """Return the records as a table. Raises DataError: they are none, or no entry may be applied to them."""
        if not isinstance(records, Table):
            raise DataError("the mapping (columns.toml) is of columns of a table, and these records are none")
        if records.mapping is not None:
            raise DataError("a mapping is already applied to these records. Read them again with one mapping")
        _require_tables(self.events, records.events if isinstance(records, Histories) else {})
        patient = "patient" if patient_column is None and isinstance(records, Histories) else patient_column
        sections = {"[columns]": self.columns, **{f"[events.{name}]": each for name, each in self.events.items()}}
        for section, entries in sections.items():
            _require_other_columns(section, entries, patient)
        return records

    def _mapped(self, section: str, entries: Sequence[ColumnMapping], table: Table) -> Table:
        names = list(table.columns)
        _require_columns(section, entries, names)
        local_names = {entry.local for entry in entries}
        other_names = [name for name in names if name not in local_names]
        twice = sorted({entry.column for entry in entries} & set(other_names))
        if twice:
            raise DataError(
                f"the mapping: {section} {twice[0]}: the table has a column of this name, too. Map it to another name"
            )
        origins = {entry.column: entry.sources for entry in entries}
        applied = AppliedMapping(self.digest, origins)
        if isinstance(table, LazyTable):
            stored = _MappedColumns(table.columns.stored, tuple(entries), tuple(other_names))
            return replace(table, columns=replace(table.columns, stored=stored), mapping=applied)
        columns = {name: table.columns[name] for name in other_names}
        columns |= {entry.column: _applied(entry, table.columns).column for entry in entries}
        return replace(table, columns=columns, mapping=applied)


@dataclass(frozen=True, repr=False)
class _MappedColumns:
    """Stored columns of a table that is read on demand, each mapped as it is read. kept: names that stay."""

    stored: StoredColumns
    entries: tuple[ColumnMapping, ...]
    kept: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.kept, *(entry.column for entry in self.entries))

    @property
    def row_bytes(self) -> int:
        return self.stored.row_bytes

    def __len__(self) -> int:
        return len(self.stored)

    def read(self, name: str, rows: Array) -> Column:
        entry = next((entry for entry in self.entries if entry.column == name), None)
        if entry is None:
            return self.stored.read(name, rows)
        return _applied(entry, {source: self.stored.read(source, rows) for source in entry.sources}).column

    def place(self, row: int) -> str:
        return self.stored.place(row)


def _applied(entry: ColumnMapping, columns: Mapping[str, Column]) -> MappedCells:
    return entry.apply(columns[entry.local], columns[entry.days_from] if entry.days_from else None)


def _counts(table_name: str, entries: Sequence[ColumnMapping], table: Table) -> list[MappingCounts]:
    section = f"[events.{table_name}]" if table_name else "[columns]"
    _require_columns(section, entries, list(table.columns))
    counts: list[MappingCounts] = []
    for entry in entries:
        missing = unmapped = 0
        for part in _parts(table):
            cells = _applied(entry, part.columns)
            missing, unmapped = missing + int(cells.missing.sum()), unmapped + int(cells.unmapped.sum())
        mapped = len(table) - missing - unmapped
        counts.append(
            MappingCounts(table_name, entry.column, entry.local, entry.action, len(table), mapped, unmapped, missing)
        )
    return counts


def _parts(table: Table) -> Iterator[Table]:
    return table.parts() if isinstance(table, LazyTable) else iter([table])


def _with_dates(histories: Histories, name: str, entries: Sequence[ColumnMapping]) -> tuple[Table, Collection[str]]:
    """Return a table of events with the columns of `days_from` that stand in the table of patients, and their names."""
    table = histories.events[name]
    needed = {entry.days_from for entry in entries} & set(histories.columns) - set(table.columns)
    if not needed:
        return table, ()
    owners = histories.owners(name)
    ours = table.take(np.flatnonzero(owners >= 0))
    dates = {each: histories.columns[each].take(owners[owners >= 0]) for each in sorted(needed)}
    return replace(ours, columns={**ours.columns, **dates}), needed


def _require_tables(names: Iterable[str], tables: Mapping[str, Table]) -> None:
    for name in names:
        if name not in tables:
            hint = f". Did you mean {near!r}?" if (near := like(name, tables)) else ""
            raise DataError(f"the mapping: [events.{name}]: the records have no table of events {name!r}{hint}")


def _require_columns(section: str, entries: Sequence[ColumnMapping], names: Collection[str]) -> None:
    for entry in entries:
        for source in entry.sources:
            if source not in names:
                near = like(source, names)
                hint = f". Did you mean {near!r}?" if near else ""
                raise DataError(f"the mapping: {section} {entry.column}: the table has no column {source!r}{hint}")


def _require_other_columns(section: str, entries: Sequence[ColumnMapping], patient_column: str | None) -> None:
    patient = None if patient_column is None else column_name(patient_column)
    for entry in entries:
        if patient in (entry.column, *entry.sources):
            raise DataError(
                f"the mapping: {section} {entry.column}: the column of patients {patient!r} cannot be mapped. Say "
                "which column it is when the records are read"
            )
