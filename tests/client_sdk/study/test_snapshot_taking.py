"""A snapshot is taken once under its name, and its entry and its files belong together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.snapshots import snapshots_in
from client_sdk.study.snapshot_taking import TakenSnapshot, finish, take_snapshot
from record_sources.errors import SourceError
from record_sources.snapshot.record import digests_of
from record_sources.working.workspace import no_progress
from tests.factories.clinics import clinic


def taken(here: Path, name: str = "icu-1") -> TakenSnapshot:
    return take_snapshot(here / "home", here / "source.toml", here / f"{name}.parquet", None, "ada", no_progress)


def test_the_entry_has_the_digests_of_the_files_in_place(tmp_path: Path) -> None:
    clinic(tmp_path)
    found = taken(tmp_path)
    assert found.is_new
    assert snapshots_in(tmp_path / "home") == [found.snapshot]
    assert found.snapshot.record.files == digests_of(tmp_path / "icu-1.parquet")
    assert found.snapshot.query_files.keys() == {str(tmp_path / "cohort.sql")}
    assert not finish(found.snapshot)


def test_a_name_is_taken_once_and_files_that_are_gone_are_put_back_if_they_are_the_same(tmp_path: Path) -> None:
    clinic(tmp_path)
    first = taken(tmp_path).snapshot
    with pytest.raises(ConfigurationError, match="still gives the same records"):
        taken(tmp_path)
    first.path.unlink()
    again = taken(tmp_path)
    assert (again.is_new, again.snapshot) == (False, first)
    assert digests_of(first.path) == first.record.files
    clinic(tmp_path, 60)
    with pytest.raises(ConfigurationError, match="take another name"):
        taken(tmp_path)
    assert digests_of(first.path) == first.record.files


def test_a_source_that_cannot_be_read_leaves_no_file_and_no_entry(tmp_path: Path) -> None:
    clinic(tmp_path)
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        connection.execute("DROP TABLE icu")
    connection.close()
    with pytest.raises(SourceError, match="names a table icu that is not there"):
        taken(tmp_path)
    assert snapshots_in(tmp_path / "home") == []
    assert not list(tmp_path.glob("*icu-1*"))
