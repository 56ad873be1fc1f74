"""Patients and their events: one table of patients, and tables of events of any length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from private_learning.records.paths import visible_paths
from private_learning.records.proposal import DeclaredParts, Proposal, TextTable, combined, examine
from private_learning.records.records import Array, DataError, Table
from private_learning.records.row_groups import parts_of
from private_learning.records.table_files import read_csv, read_parquet
from private_learning.records.table_format import TableFormat

# The name of the table of patients. Every other table of the folder holds events.
PATIENTS = "patients"
_TEXT, _PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), ".parquet"


@dataclass(frozen=True, repr=False)
class Histories(Table):
    """A table with one row for each patient, and further tables with their events. Made by `Histories.with_events`.

    events: name -> table of events. A patient has any number of them. Events of other patients are allowed.
    """

    events: Mapping[str, Table] = field(default_factory=dict[str, Table])

    @classmethod
    def with_events(cls, patients: Table, events: Mapping[str, Table]) -> Histories:
        """Return histories from a table of patients and tables of events that name their patients alike.

        Raises:
            DataError: a patient stands in two rows, or a table does not name the patients of its rows.
        """
        unnamed = [name for name, table in {PATIENTS: patients, **events}.items() if not table.named]
        if unnamed:
            raise DataError(f"tables {', '.join(unnamed)}: say which column names the patient (patient_column)")
        repeated = len(patients) - len(set(patients.patients))
        if repeated:
            raise DataError(
                f"{PATIENTS}: {repeated} of {len(patients)} rows are of a patient who has another: one row of each is "
                "expected, and everything that happened several times in a table of events"
            )
        return cls(patients.columns, patients.patients, True, patients.lines, dict(events))

    def take(self, rows: Sequence[int] | Array) -> Histories:
        """Return the given patients, in the given order, with their events."""
        subset = super().take(rows)
        return replace(self, columns=subset.columns, patients=subset.patients, lines=subset.lines)

    def digest(self) -> str:
        """Return the digest of the table of patients and the tables of events, by name. Raises as `Table.digest`."""
        each = {name: table.digest() for name, table in sorted(self.events.items())}
        return hashlib.sha256(json.dumps([super().digest(), each]).encode()).hexdigest()

    def owners(self, name: str) -> Array:
        """Return the index of the patient of each row of the table `name`, (rows,). −1: none of these patients.

        Raises:
            DataError: there is no such table.
        """
        if name not in self.events:
            raise DataError(
                f"there is no table of events {name!r}. There are {', '.join(map(repr, sorted(self.events))) or 'none'}"
            )
        place = {patient: row for row, patient in enumerate(self.patients)}
        return np.array([place.get(patient, -1) for patient in self.events[name].patients], dtype=np.int64)


def holds_histories(folder: Path) -> bool:
    """Return whether the folder holds only tables, with one of patients among them."""
    tables = _tables(folder)
    return PATIENTS in tables and len(tables) > 1 and not any(path.is_dir() for path in visible_paths(folder))


def text_histories(folder: Path) -> list[Path]:
    """Return the text tables of a folder of histories."""
    return [path for _, path in sorted(_tables(folder).items()) if not _is_parquet(path)]


def propose_for_histories(tables: Sequence[Path], stated: DeclaredParts) -> Proposal:
    """Return one format for the text tables of a folder. The separator of .tsv files is always the tab."""
    parts = {path: _examined(path, stated) for path in tables}
    return combined(_with_one_separator({path: proposal for path, (proposal, _) in parts.items()}))


def read_histories(
    folder: Path,
    table_format: TableFormat | None = None,
    *,
    patient_column: str | None = None,
    encoding: str | None = None,
) -> Histories:
    """Return histories from a folder with a table `patients`, one row for each, and tables of events.

    The tables are .csv, .tsv or .parquet files.

    table_format    format of the text tables. None: the one that they propose, which all of them share
    patient_column  the column with the patient of a row, in all tables. None: `patient`

    Raises:
        DataError: as for a table. The message names the table.
    """
    column, declared = patient_column or "patient", table_format is not None
    if table_format is None and (texts := text_histories(folder)):
        table_format = propose_for_histories(texts, DeclaredParts(encoding=encoding)).format
    tables: dict[str, Table] = {}
    for name, path in sorted(_tables(folder).items()):
        try:
            tables[name] = _read(path, column, table_format, may_be_empty=name != PATIENTS)
        except DataError as fault:
            text = str(fault)
            raise DataError(text if text.startswith(path.name) else f"{path.name}: {text}") from fault
    return replace(
        Histories.with_events(tables.pop(PATIENTS), tables),
        format=table_format,
        declared=declared or table_format is None,
    )


def _read(path: Path, column: str, table_format: TableFormat | None, may_be_empty: bool) -> Table:
    if not _is_parquet(path):
        file_format = (
            replace(table_format, separator="tab") if table_format is not None and _is_tabbed(path) else table_format
        )
        return read_csv(path, file_format, patient_column=column, may_be_empty=may_be_empty)
    if may_be_empty and not any((parts := parts_of(path)).rows):
        return Table.without_rows(parts.kinds, column)
    return read_parquet(path, table_format, patient_column=column)


def _examined(path: Path, stated: DeclaredParts) -> tuple[Proposal, TextTable]:
    file_stated = replace(stated, separator="tab") if _is_tabbed(path) else stated
    proposal, table = examine(path, file_stated, may_be_empty=True)
    table_name = _stem(path)
    columns = tuple(replace(column, name=f"{table_name} {column.name}") for column in proposal.columns)
    return replace(proposal, columns=columns), table


def _with_one_separator(parts: Mapping[Path, Proposal]) -> list[Proposal]:
    """Return the proposals with one separator: .tsv files take that of the others."""
    separators = [proposal.format.separator for path, proposal in parts.items() if not _is_tabbed(path)]
    mark = separators[0] if separators else "tab"
    return [
        replace(proposal, format=replace(proposal.format, separator=mark)) if _is_tabbed(path) else proposal
        for path, proposal in parts.items()
    ]


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(_PARQUET)


def _is_tabbed(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".tsv")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[0]


def _tables(folder: Path) -> dict[str, Path]:
    """Return the file of each table, by name. Raises DataError: two files have one name."""
    paths: dict[str, Path] = {}
    for path in visible_paths(folder):
        suffix = next((end for end in (*_TEXT, _PARQUET) if path.name.lower().endswith(end)), None)
        if suffix is None or not path.is_file():
            continue
        name = path.name[: -len(suffix)]
        if name in paths:
            raise DataError(f"{folder.name}: two files hold a table {name!r}. Keep one of them")
        paths[name] = path
    return paths
