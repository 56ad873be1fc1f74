"""The source of kind `workbook`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyarrow import parquet

from private_learning.records import Table, load
from record_sources.source_file.description import WorkbookDescription
from record_sources.workbook.source import WorkbookSource
from record_sources.working.workspace import Workspace, no_progress
from tests.record_sources.workbook.workbooks import HEADER, ROWS, written


def test_a_workbook_gives_the_tensors_of_its_csv(tmp_path: Path) -> None:
    path = written(tmp_path / "a.xlsx", [HEADER, *ROWS])
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in [HEADER, *ROWS]]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    description = WorkbookDescription.model_validate({"kind": "workbook", "file": str(path), "sheet": "Cohort"})
    with Workspace(tmp_path) as workspace:
        contents = WorkbookSource(description).fill(workspace, no_progress)
        table = workspace.connection.sql(f"SELECT * FROM {contents.tables[0]} ORDER BY ALL").to_arrow_table()
    parquet.write_table(table, tmp_path / "a.parquet")
    tables = [load(tmp_path / name, patient_column="patient") for name in ("a.csv", "a.parquet")]
    first, second = (table for table in tables if isinstance(table, Table))
    assert first.patients == second.patients
    for name in ("age", "share"):
        np.testing.assert_array_equal(np.asarray(first.columns[name], float), np.asarray(second.columns[name], float))
