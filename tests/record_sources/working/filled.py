"""Parquet files of rows that went through a workspace."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from record_sources.snapshot.parquet import write_sorted
from record_sources.working.workspace import Workspace

DAY, ZONED = datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 12, 0, 0, 250_000, datetime.UTC)


NOON = ZONED.replace(tzinfo=None)


def filled(folder: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """A Parquet file of these rows."""
    folder.mkdir(exist_ok=True)
    with Workspace(folder) as workspace:
        assert workspace.fill("t", columns, iter(rows), patient="patient") == len(rows)
        write_sorted(workspace, "t", "patient", folder / "t.parquet", one_row_each=False)
    return folder / "t.parquet"


def column(folder: Path, *cells: Any) -> list[Any]:
    path = filled(folder, ["patient", "x"], [(place, cell) for place, cell in enumerate(cells)])
    return pq.read_table(path).column("x").to_pylist()
