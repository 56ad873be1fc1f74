"""The ledger of snapshots: entries that stay, and files that are held against them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged, LedgerInUse, RecordsChanged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.snapshots import LEDGER_FILE, SnapshotLedger, snapshots_in
from tests.factories.snapshots import frozen, frozen_folder, recorded


def test_a_snapshot_is_read_as_it_was_written_while_another_process_holds_the_ledger(tmp_path: Path) -> None:
    assert snapshots_in(tmp_path) == []
    first, second = recorded(tmp_path, frozen(tmp_path, "icu-1")), recorded(tmp_path, frozen_folder(tmp_path, "icu-2"))
    with SnapshotLedger.open_in(tmp_path):
        assert snapshots_in(tmp_path) == [first, second]
    assert first.at
    assert (second.record.rows, second.record.patients, len(second.record.files)) == (7, 3, 2)


def test_an_entry_waits_for_another_one_and_for_no_study(tmp_path: Path) -> None:
    with HospitalLedger.open(ledger_path(tmp_path, "records")):
        recorded(tmp_path, frozen(tmp_path, "icu-1"))
    with SnapshotLedger.open_in(tmp_path), pytest.raises(LedgerInUse):
        SnapshotLedger.wait_for(tmp_path / LEDGER_FILE, patience=0.2)


@pytest.mark.parametrize(
    ("content", "patients", "said"), [(b"a", 5, "still gives the same records"), (b"b", 6, "5 → 6 patients")]
)
def test_a_name_is_taken_once(content: bytes, patients: int, said: str, tmp_path: Path) -> None:
    snapshot = recorded(tmp_path, frozen(tmp_path, "icu-1", b"a"))
    with pytest.raises(ConfigurationError, match=f"snapshots are frozen. .*{said}"):
        recorded(tmp_path, frozen(tmp_path, "icu-1", content, patients))
    assert snapshots_in(tmp_path) == [snapshot]


@pytest.mark.parametrize("field", ["record", "person", "path"])
def test_an_entry_that_was_written_over_is_noticed(field: str, tmp_path: Path) -> None:
    recorded(tmp_path, frozen(tmp_path, "icu-1"))
    with sqlite3.connect(tmp_path / LEDGER_FILE) as connection:
        body = json.loads(connection.execute("SELECT body FROM entries").fetchone()[0])
        connection.execute("UPDATE entries SET body = ?", (json.dumps(body | {field: "other"}),))
    with pytest.raises(LedgerDamaged):
        snapshots_in(tmp_path)


@pytest.mark.parametrize(
    "change", ["UPDATE entries SET body = '{'", "UPDATE entries SET body = x'ff00'", "ALTER TABLE entries ADD more"]
)
def test_an_entry_that_is_none_is_noticed(change: str, tmp_path: Path) -> None:
    recorded(tmp_path, frozen(tmp_path, "icu-1"))
    with sqlite3.connect(tmp_path / LEDGER_FILE) as connection:
        connection.execute(change)
    with pytest.raises(LedgerDamaged):
        snapshots_in(tmp_path)


def test_a_changed_file_is_refused_with_both_digests(tmp_path: Path) -> None:
    snapshot = recorded(tmp_path, frozen(tmp_path, "icu-1"))
    path, before = snapshot.path, snapshot.path.read_bytes()
    snapshot.require_unchanged()
    path.write_bytes(before[:-1] + b"?")
    assert snapshot.state() == "there"
    with pytest.raises(RecordsChanged) as changed:
        snapshot.require_unchanged()
    for content in (before, path.read_bytes()):
        assert hashlib.sha256(content).hexdigest() in str(changed.value)
    path.write_bytes(before + b"?")
    assert snapshot.state() == "changed size"
    path.unlink()
    assert snapshot.state() == "missing"
    with pytest.raises(RecordsChanged, match=f"missing.*{hashlib.sha256(before).hexdigest()}"):
        snapshot.require_unchanged()


@pytest.mark.parametrize(("change", "state"), [("added", "changed size"), ("removed", "missing"), ("swapped", "there")])
def test_every_file_of_a_folder_counts(change: str, state: str, tmp_path: Path) -> None:
    snapshot = recorded(tmp_path, frozen_folder(tmp_path, "icu-2"))
    one, other = (snapshot.path / f"{name}.parquet" for name in ("patients", "visits"))
    if change == "added":
        (snapshot.path / "more.parquet").write_bytes(b"more")
    elif change == "removed":
        other.unlink()
    else:
        one.write_bytes(one.read_bytes()[::-1])
    assert snapshot.state() == state
    with pytest.raises(RecordsChanged):
        snapshot.require_unchanged()
