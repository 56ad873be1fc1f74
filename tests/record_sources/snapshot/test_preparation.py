"""A snapshot is there whole or not at all, and unchanged rows give one digest."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from private_learning.records.histories import read_histories
from record_sources.errors import SourceError
from record_sources.snapshot.preparation import digests_of, finish_interrupted, prepare
from record_sources.source_file.description import SourceDescription
from tests.record_sources.snapshot.clinic import QUERIES, of_people, of_tables


def test_a_name_that_is_taken_is_refused(tmp_path: Path, description: SourceDescription) -> None:
    (tmp_path / "icu.parquet").write_text("mine")
    with pytest.raises(SourceError, match="never replaces anything"):
        prepare(of_people(tmp_path), None, tmp_path / "icu.parquet")
    prepared = prepare(of_people(tmp_path), None, tmp_path / "ward")
    (tmp_path / "ward.parquet").write_text("mine")
    with pytest.raises(SourceError, match="never replaces anything"):
        prepared.publish()
    prepared.discard()
    assert (tmp_path / "ward.parquet").read_text() == (tmp_path / "icu.parquet").read_text() == "mine"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["icu.csv", "icu.XLSX", "icu.db"])
def test_a_path_with_the_ending_of_another_format_is_refused(
    tmp_path: Path, description: SourceDescription, name: str
) -> None:
    with pytest.raises(SourceError, match=r"end its path with \.parquet"):
        prepare(description, None, tmp_path / name)


@pytest.mark.parametrize("name", [".hidden", "a b", "x" * 101, "ä"])
def test_names_are_plain(tmp_path: Path, description: SourceDescription, name: str) -> None:
    with pytest.raises(SourceError, match="at most 100 letters"):
        prepare(description, None, tmp_path / name)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk of the snapshot is full"),
        (OSError(errno.EIO, "Input/output error"), "cannot be written: input/output error"),
    ],
)
def test_a_full_disk_leaves_nothing(
    tmp_path: Path, description: SourceDescription, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("record_sources.snapshot.preparation.write_sorted", fail)
    with pytest.raises(SourceError, match=words):
        prepare(description, None, tmp_path / "icu")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("last", QUERIES)
def test_a_person_who_stops_it_leaves_nothing(tmp_path: Path, description: SourceDescription, last: str) -> None:
    def stop(rows: int, expected: int | None, table: str) -> None:
        assert expected == {"patients": 3, "visits": 4}[table]
        if table == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(description, None, tmp_path / "icu", stop)
    assert not list(tmp_path.glob(".*"))


def test_several_rows_are_allowed_where_the_hospital_says_so(tmp_path: Path, description: SourceDescription) -> None:
    twice = {"patients": "SELECT person AS patient FROM visits", "visits": QUERIES["visits"]}
    with pytest.raises(SourceError, match="table patients: 1 of 4 rows are of a patient who has another row"):
        prepare(of_tables(tmp_path, twice), None, tmp_path / "icu")
    one = of_people(tmp_path, "several_rows = true")
    (tmp_path / "people.sql").write_text("SELECT person AS patient FROM visits")
    assert prepare(one, None, tmp_path / "icu").record.tables["records"].rows == 4


def test_an_empty_table_of_events_is_read(tmp_path: Path, description: SourceDescription) -> None:
    queries = QUERIES | {"visits": "SELECT person AS patient, day FROM visits WHERE day > 100"}
    path = prepare(of_tables(tmp_path, queries), None, tmp_path / "icu").publish()
    assert len(read_histories(path).events["visits"]) == 0


@pytest.mark.quick("snapshot.after-write")
@pytest.mark.parametrize("name", ["snapshot.after-fill", "snapshot.after-write", "snapshot.after-rename"])
def test_a_killed_snapshot_is_finished_or_taken_again(
    tmp_path: Path, description: SourceDescription, name: str
) -> None:
    record = (reference := prepare(description, None, tmp_path / "icu")).record
    reference.discard()
    program = (
        "import sys; from pathlib import Path; from record_sources.snapshot.preparation import prepare\n"
        "from record_sources.source_file.description import read_description\n"
        "prepare(read_description(Path('source.toml')), None, Path('icu')).publish()"
    )
    environment = {"WARDROUND_FAILPOINT": name, "PYTHONPATH": str(Path(__file__).parents[3])}
    died = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=False)
    assert died.returncode == 86
    assert (tmp_path / ".icu.part").is_dir()
    assert finish_interrupted(tmp_path / "icu", record) == (name != "snapshot.after-fill")
    if name == "snapshot.after-fill":
        prepare(description, None, tmp_path / "icu").publish()
    assert digests_of(tmp_path / "icu") == record.files
    assert not (tmp_path / ".icu.part").exists()
