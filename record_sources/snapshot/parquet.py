"""A table of the workspace as a Parquet file in a defined order of rows, so that equal rows give equal bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from record_sources.working.arrow import pa, pq
from record_sources.working.workspace import Workspace, quoted
from study_protocol.files.private import open_private

# Fixed, because the bytes of a file depend on it, and a digest must not depend on the machine.
ROW_GROUP = 100_000


def write_sorted(workspace: Workspace, table: str, patient_column: str, path: Path, *, one_row_each: bool) -> None:
    """Write a table, sorted by patient as text and then by all columns, with nulls last.

    Args:
        one_row_each: whether the patient alone decides the order.
    """
    kinds = workspace.types(table)
    order = [quoted(patient_column)]
    if not one_row_each:
        order += [quoted(name) for name in kinds if name != patient_column]
        # 0.0 and -0.0 have one place in the order, and two forms.
        order += [f"signbit({quoted(name)})" for name, kind in kinds.items() if kind == "DOUBLE"]
    ordered = ", ".join(f"{term} NULLS LAST" for term in order)
    rows: Any = workspace.connection.sql(f"SELECT * FROM {quoted(table)} ORDER BY {ordered}")  # noqa: S608
    reader = rows.to_arrow_reader(ROW_GROUP)
    # Private from its first byte, and never through a link that was put in its place.
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as file, pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for group in _groups(reader):
            writer.write_table(group, row_group_size=ROW_GROUP)


def _groups(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield tables of `ROW_GROUP` rows, and a last one with the rest."""
    waiting: list[Any] = []
    for batch in batches:
        # DuckDB cuts batches as it likes, and row groups that follow them would change the bytes.
        waiting.append(batch)
        while (rows := sum(map(len, waiting))) >= ROW_GROUP:
            whole = pa.Table.from_batches(waiting)
            yield whole.slice(0, ROW_GROUP)
            waiting: list[Any] = whole.slice(ROW_GROUP).to_batches() if rows > ROW_GROUP else []
    if waiting:
        yield pa.Table.from_batches(waiting)
