"""A snapshot is there whole or not at all, and unchanged rows give one digest."""

from __future__ import annotations

import errno
import hashlib
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from private_learning.records.histories import read_histories
from record_sources.errors import SourceError
from record_sources.snapshot.part_folder import PartFolder
from record_sources.snapshot.preparation import digests_of, finish_interrupted, prepare
from record_sources.source_file.description import SourceDescription, read_description

QUERIES = {
    "patients": "SELECT id AS patient, age FROM people",
    "visits": "SELECT person AS patient, day FROM visits",
}


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


def of_tables(folder: Path, queries: dict[str, str]) -> SourceDescription:
    for name, query in queries.items():
        (folder / f"{name}.sql").write_text(query)
    tables = "\n".join(f'{name} = "{name}.sql"' for name in queries)
    path = folder / "source.toml"
    path.write_text(f'[source]\nkind = "sql"\nurl = "sqlite:///clinic.db"\n[source.tables]\n{tables}\n')
    return read_description(path)


def of_people(folder: Path, extra: str = "") -> SourceDescription:
    (folder / "people.sql").write_text("SELECT id AS patient, age FROM people")
    path = folder / "one.toml"
    path.write_text(f'[source]\nkind = "sql"\nurl = "sqlite:///clinic.db"\nquery = "people.sql"\n{extra}\n')
    return read_description(path)


def test_histories_become_a_folder_that_is_read(tmp_path: Path, description: SourceDescription) -> None:
    prepared = prepare(description, None, tmp_path / "icu")
    assert not (tmp_path / "icu").exists()
    path = prepared.publish()
    assert path == tmp_path / "icu"
    assert not (tmp_path / ".icu.part").exists()
    histories = read_histories(path)
    assert histories.patients == ("a", "b", "c")
    assert histories.owners("visits").tolist() == [0, 1, 1, -1]
    record = prepared.record
    assert {name: (table.rows, table.patients) for name, table in record.tables.items()} == {
        "patients": (3, 3),
        "visits": (4, 3),
    }
    assert record.files == digests_of(path)
    assert record.queries["visits"].text == QUERIES["visits"]
    assert record.queries["visits"].sha256 == hashlib.sha256(QUERIES["visits"].encode()).hexdigest()
    assert (record.kind, record.place, record.patient_column) == ("sql", "sqlite clinic.db", "patient")


def test_one_table_becomes_one_private_file_with_one_digest(tmp_path: Path, description: SourceDescription) -> None:
    one = of_people(tmp_path)
    first, second = (prepare(one, None, tmp_path / f"{name}.parquet") for name in ("x", "y"))
    assert first.publish() == tmp_path / "x.parquet"
    assert second.publish() == tmp_path / "y.parquet"
    assert first.record.sha256 == second.record.sha256
    assert first.record.sha256 == hashlib.sha256((tmp_path / "x.parquet").read_bytes()).hexdigest()
    assert stat.S_IMODE((tmp_path / "x.parquet").stat().st_mode) == 0o600


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


def test_two_processes_do_not_take_one_name(tmp_path: Path, description: SourceDescription) -> None:
    prepared = prepare(description, None, tmp_path / "icu")
    with pytest.raises(SourceError, match="another process takes the snapshot icu"):
        prepare(description, None, tmp_path / "icu")
    prepared.discard()
    prepare(description, None, tmp_path / "icu").discard()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, description: SourceDescription) -> None:
    remnant = tmp_path / ".icu.part" / "written"
    remnant.mkdir(parents=True)
    (remnant / "icu.parquet").write_text("half")
    assert prepare(description, None, tmp_path / "icu").publish().is_dir()
    assert not remnant.exists()


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


def test_another_snapshot_is_not_finished_in_its_place(tmp_path: Path, description: SourceDescription) -> None:
    prepared = prepare(description, None, tmp_path / "icu")
    prepared.part.close()
    other = prepared.record.model_copy(update={"files": {"patients.parquet": "0" * 64}})
    assert not finish_interrupted(tmp_path / "icu", other)
    assert finish_interrupted(tmp_path / "icu", prepared.record)
    assert PartFolder.reopen(tmp_path, "icu") is None
