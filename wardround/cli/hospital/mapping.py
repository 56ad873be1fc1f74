"""The option --columns: a hospital's mapping of names, codes and units, and what it made of the records."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.shared.shared import say, table

if TYPE_CHECKING:
    from private_learning.records import MappingCounts, Records

ColumnsFile = Annotated[
    Path | None,
    typer.Option(
        "--columns", help="mapping of this hospital's names, codes and units to the study's, TOML (columns.toml)"
    ),
]
_LOG = logging.getLogger(__name__)


def apply_mapping(
    records: Records, file: Path | None, patient_column: str | None
) -> tuple[Records, tuple[MappingCounts, ...]]:
    """Return the records with the mapping of a file, and what it made of each column. Without a file, as they are.

    Raises:
        DataError: the file cannot be read, or does not fit the records.
    """
    from private_learning.records import TableMapping

    if file is None:
        return records, ()
    mapping = TableMapping.read(file)
    return mapping.applied(records, patient_column), mapping.counts(records, patient_column)


def mapping_digest(records: Records) -> str:
    """Return the SHA-256 of the mapping that was applied to the records. Empty: none was."""
    from private_learning.records import Table

    return records.mapping_sha256 if isinstance(records, Table) else ""


def report_mapping(records: Records, counts: Sequence[MappingCounts]) -> dict[str, Any]:
    """Return what the mapping made of each column, as JSON. Empty: there is none."""
    sha256 = mapping_digest(records)
    columns = [dataclasses.asdict(column) for column in counts]
    return {"mapping": {"sha256": sha256, "columns": columns}} if sha256 else {}


def mapping_words(records: Records, counts: Sequence[MappingCounts]) -> tuple[str, str] | None:
    """Return the digest of the mapping, and what it made of the records, in one line. None: no mapping was applied."""
    unmapped = sum(column.unmapped for column in counts)
    line = f"{len(counts)} columns mapped, {unmapped} of {sum(column.cells for column in counts)} cells unmapped"
    return (mapping_digest(records), line) if mapping_digest(records) else None


def show_mapping(records: Records, counts: Sequence[MappingCounts]) -> None:
    """Print what the mapping made of each column, in counts alone."""
    if not counts:
        return
    heads = ["table", "column", "local column", "what", "cells", "mapped", "unmapped", "missing"]
    rows = [
        [
            *(column.table, column.column, column.local, column.action),
            *map(str, (column.cells, column.mapped, column.unmapped, column.missing)),
        ]
        for column in counts
    ]
    first = 0 if any(column.table for column in counts) else 1
    table("What the mapping made of these records", heads[first:], [row[first:] for row in rows])
    say(f"SHA-256 of the mapping: {mapping_digest(records)}")


def warn_of_unmapped(counts: Sequence[MappingCounts]) -> None:
    """Print a warning for each column with cells that the mapping could not map."""
    for column in counts:
        if column.unmapped:
            say(f"warning: {_unmapped(column)}", err=True)


def require_mapped(counts: Sequence[MappingCounts]) -> None:
    """Require that every cell is mapped or missing. Raises DataError: counts the others, column by column."""
    from private_learning.records import DataError

    unmapped = [_unmapped(column) for column in counts if column.unmapped]
    if unmapped:
        raise DataError(f"{'; '.join(unmapped)}. Add the codes to `map`, or to `missing`")


def log_mapping(records: Records, counts: Sequence[MappingCounts]) -> None:
    """Log what the mapping made of each column, for `join`."""
    for column in counts:
        name = f"{column.table} {column.column}".strip()
        _LOG.info(
            "mapping: %s from %s (%s): %d cells, %d mapped, %d unmapped, %d missing",
            *(name, column.local, column.action, column.cells, column.mapped, column.unmapped, column.missing),
        )
        if column.unmapped:
            _LOG.warning("mapping: %s", _unmapped(column))
    if counts:
        _LOG.info("mapping: SHA-256 %s", mapping_digest(records))


def _unmapped(counts: MappingCounts) -> str:
    name = f"events {counts.table}, column {counts.column}" if counts.table else f"column {counts.column}"
    return (
        f"{name}: {counts.unmapped} of {counts.cells} cells have a code that the mapping does not know, or no number "
        "or date where one is needed"
    )
