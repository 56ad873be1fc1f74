"""The tables that a cohort has from an OMOP database, and changes of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from record_sources.omop import omop_source
from record_sources.source_file.description import OmopDescription
from record_sources.working.workspace import Workspace, no_progress
from study_protocol.study.cohort import Cohort
from tests.record_sources.omop.example import cohort


def made(
    folder: Path, description: OmopDescription, asked: Cohort | None = None, progress: Any = no_progress
) -> tuple[dict[str, list[tuple[Any, ...]]], list[str]]:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    for old in work.glob("work.duckdb*"):
        old.unlink()
    with Workspace(work) as workspace:
        contents = omop_source(description, asked or cohort()).fill(workspace, progress)
        tables = {
            name: workspace.connection.execute(f'FROM "{name}" ORDER BY ALL').fetchall() for name in contents.tables
        }
        return tables, list(contents.remarks)


def executed(url: str, *statements: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()
