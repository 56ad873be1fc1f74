"""A table of a snapshot as a Parquet file: its order of rows and its row groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from record_sources.snapshot.parquet import write_sorted
from record_sources.working.workspace import Workspace


def test_row_groups_have_a_fixed_length(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.fill("t", ["patient", "x"], ((n % 1000, n) for n in range(250_000)), patient="patient")
        write_sorted(workspace, "t", "patient", tmp_path / "t.parquet", one_row_each=False)
    metadata = pq.ParquetFile(tmp_path / "t.parquet").metadata
    assert [metadata.row_group(group).num_rows for group in range(3)] == [100_000, 100_000, 50_000]
    table = pq.read_table(tmp_path / "t.parquet")
    rows = list(zip(table["patient"].to_pylist(), table["x"].to_pylist(), strict=True))
    assert rows == sorted((str(n % 1000), n) for n in range(250_000))
