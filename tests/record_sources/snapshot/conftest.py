"""A hospital's database with histories."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from record_sources.source_file.description import SourceDescription
from tests.record_sources.snapshot.clinic import QUERIES, of_tables


@pytest.fixture
def description(tmp_path: Path) -> SourceDescription:
    """Of histories in SQLite. One visit is of a patient who is not there."""
    database = sqlite3.connect(tmp_path / "clinic.db")
    database.executescript(
        "CREATE TABLE people (id, age); INSERT INTO people VALUES ('b', 1), ('a', 2), ('c', 3);"
        "CREATE TABLE visits (person, day); INSERT INTO visits VALUES ('b', 5), ('b', 5), ('a', NULL), ('z', 1);"
    )
    database.close()
    return of_tables(tmp_path, QUERIES)
