"""Records named by a snapshot: which file is meant, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, RecordsChanged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.ledger_views import RecordsMark, RecordsOrigin
from client_sdk.study.snapshot_records import find_records, older_than_query, studies_by_snapshot
from tests.factories.snapshots import QUERY, frozen, frozen_folder, recorded


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "kept").mkdir()
    return tmp_path


def test_a_name_means_the_file_of_the_snapshot(home: Path) -> None:
    snapshot = recorded(home, frozen(home / "kept", "icu-1"))
    found = find_records(home, Path("icu-1"))
    assert (found.path, found.patient_column, found.snapshot) == (snapshot.path, "patient", snapshot)
    assert found.origin("m") == RecordsOrigin("icu-1", snapshot.record.sha256, snapshot.record.query_sha256, "m")


def test_other_names_and_paths_are_read_as_they_are(home: Path) -> None:
    recorded(home, frozen(home / "kept", "icu-1"))
    (home / "work" / "images").mkdir()
    for given in ("images", "icu-1.csv", "kept/icu-1", "shard-{0..3}.tar"):
        found = find_records(home, Path(given), "who")
        assert (found.path, found.patient_column, found.snapshot) == (Path(given), "who", None)
    assert find_records(home / "nothing", Path("images")).origin() == RecordsOrigin()


@pytest.mark.parametrize(("directory", "known"), [(".", "icu-1"), ("nothing", "none")])
def test_a_name_of_no_file_and_no_snapshot_is_refused_with_the_places_and_the_cure(
    directory: str, known: str, home: Path
) -> None:
    recorded(home, frozen(home / "kept", "icu-1"))
    with pytest.raises(ConfigurationError) as refused:
        find_records(home / directory, Path("icu-2"))
    for words in (str(Path.cwd()), str(home / directory), f"its snapshots: {known}", "WARDROUND_CLIENT_HOME"):
        assert words in str(refused.value)


@pytest.mark.parametrize("by_link", [False, True])
def test_a_path_of_a_snapshot_is_verified_too(by_link: bool, home: Path) -> None:
    snapshot = recorded(home, frozen(home / "kept", "icu-1"))
    given = Path("../kept/icu-1.parquet")
    if by_link:
        given = Path("link.parquet")
        given.symlink_to(snapshot.path)
    assert find_records(home, given).snapshot == snapshot
    snapshot.path.write_bytes(b"other")
    with pytest.raises(RecordsChanged, match="SHA-256"):
        find_records(home, given)


def test_one_file_of_a_folder_is_verified_with_all_others(home: Path) -> None:
    snapshot = recorded(home, frozen_folder(home / "kept", "icu-2"))
    patients = home / "kept" / "icu-2" / "patients.parquet"
    assert find_records(home, patients).path == patients
    (patients.parent / "visits.parquet").write_bytes(b"other")
    for given in (patients, patients.parent, Path("icu-2")):
        with pytest.raises(RecordsChanged, match=snapshot.record.files["visits.parquet"]):
            find_records(home, given)


def test_a_name_that_is_also_another_file_is_refused(home: Path) -> None:
    recorded(home, frozen(home / "kept", "icu-1"))
    Path("icu-1").write_text("other")
    with pytest.raises(ConfigurationError, match="also another file"):
        find_records(home, Path("icu-1"))
    assert find_records(home, Path("icu-1").absolute()).snapshot is None


def test_a_folder_of_the_name_that_is_the_snapshot_is_no_doubt(home: Path) -> None:
    snapshot = recorded(home, frozen_folder(home / "work", "icu-2"))
    assert find_records(home, Path("icu-2")).snapshot == snapshot


def test_another_patient_column_is_refused(home: Path) -> None:
    recorded(home, frozen(home / "kept", "icu-1"))
    assert find_records(home, Path("icu-1"), "patient").patient_column == "patient"
    with pytest.raises(ConfigurationError, match="in column patient"):
        find_records(home, Path("icu-1"), "who")


def test_a_query_that_changed_makes_the_snapshot_old(home: Path) -> None:
    snapshot = recorded(home, frozen(home / "kept", "icu-1"))
    query = Path(*snapshot.query_files)
    assert older_than_query(snapshot) == ""
    query.write_text(QUERY + " WHERE age > 18")
    assert "icu-1.sql has changed" in older_than_query(snapshot)
    query.unlink()
    assert older_than_query(snapshot) == ""


def test_studies_are_known_from_all_ledgers(home: Path) -> None:
    for dataset, study, snapshot in (("records", "b", "icu-1"), ("icu", "a", "icu-1"), ("icu", "c", "")):
        with HospitalLedger.open(ledger_path(home, dataset)) as ledger:
            mark = RecordsMark("c", "p", 1, 1, origin=RecordsOrigin(snapshot))
            ledger.declare_records(study, mark)
            ledger.declare_records(f"{study}-earlier", replace(mark, origin=None))
    assert studies_by_snapshot(home) == {"icu-1": ["a", "b"]}
