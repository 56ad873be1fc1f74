"""Snapshots of a database with three patients, and how one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.snapshot.preparation import PreparedSnapshot, prepare
from record_sources.source_file.description import read_description
from tests.record_sources.sql.databases import described

PATIENTS = (
    "CREATE TABLE people (id VARCHAR(9), age INTEGER, weight DOUBLE PRECISION, town VARCHAR(9))",
    "INSERT INTO people VALUES ('b', 61, 70.5, 'Bern'), ('a', 40, NULL, NULL), ('c', 7, 20.25, '50%:x::y')",
)


def taken(folder: Path, url: str, query: str, **entries: object) -> PreparedSnapshot:
    return prepare(read_description(described(folder, url, query, **entries)), None, folder / "icu")


def refusal(folder: Path, url: str, query: str, **entries: object) -> str:
    """The sentence with which a snapshot is refused, of which nothing is left."""
    description = read_description(described(folder, url, query, **entries))
    before = sorted(folder.iterdir())
    with pytest.raises(SourceError) as error:
        prepare(description, None, folder / "icu")
    assert sorted(folder.iterdir()) == before
    # Chained errors would be shown in a traceback.
    assert error.value.__cause__ is None
    return str(error.value)
