"""The file of a hospital's ledger: its mode, its lock, the disk it lies on."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, LedgerInUse, LedgerNotWritten
from client_sdk.guard import ledger_file
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import (
    OF_AUDITOR,
    connect,
    is_of_the_disk,
    ledger_path,
    none_at,
    seen_in,
    take_lock,
)
from study_protocol.files.private import exposure


def opened(tmp_path: Path) -> HospitalLedger:
    ledger = HospitalLedger.open(ledger_path(tmp_path, "icu"))
    ledger.open_study("sepsis", {"settings_sha256": "s"})
    return ledger


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert {exposure(path) for path in (tmp_path / "ledgers").iterdir()} == {None}


def test_a_second_process_is_refused_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    path = ledger_path(tmp_path, "icu")
    program = f"""
from pathlib import Path
from client_sdk.guard.ledger import HospitalLedger
HospitalLedger.open(Path({str(path)!r}))
print("open", flush=True)
input()
"""
    opened(tmp_path).close()
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(LedgerInUse, match="another process"):
        HospitalLedger.open(path)
    with HospitalLedger.open(path, read_only=True) as looking:
        assert len(looking.entries) == 1
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    HospitalLedger.open(path).close()


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no ledger"):
        HospitalLedger.open(ledger_path(tmp_path, "icu"), read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.posix
def test_a_ledger_that_the_disk_has_no_room_for_is_not_called_damaged(tmp_path: Path) -> None:
    """No file may grow in the other process, as on a full disk."""
    program = f"""
import resource, signal
from pathlib import Path
from client_sdk.errors import LedgerNotWritten
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    HospitalLedger.open(ledger_path(Path({str(tmp_path)!r}), "icu"))
except LedgerNotWritten as error:
    print(error)
"""
    (tmp_path / "ledgers").mkdir()
    said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "is the disk full or read-only?" in said
    opened(tmp_path).close()


@pytest.mark.parametrize("name", ["icu.db", "icu.lock"])
def test_a_file_that_cannot_be_opened_is_said_and_nothing_stays_locked(tmp_path: Path, name: str) -> None:
    in_its_place = tmp_path / "ledgers" / name
    in_its_place.mkdir(parents=True)
    with pytest.raises(LedgerNotWritten, match=r"(Is a directory|Permission denied).*is the disk full or read-only\?"):
        opened(tmp_path)
    in_its_place.rmdir()
    opened(tmp_path).close()


@pytest.mark.parametrize("name", ["../x", "a/b", "", "Ward 7", ".."])
def test_a_data_set_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="dataset"):
        ledger_path(tmp_path, name)


def test_a_name_is_a_file_beside_the_others(tmp_path: Path) -> None:
    assert ledger_path(tmp_path, "icu-2") == tmp_path / "ledgers" / "icu-2.db"
    for name in ("icu", "ward"):
        HospitalLedger.open(ledger_path(tmp_path, name)).close()
    assert none_at(ledger_path(tmp_path, "er")).endswith("--dataset names another one: icu, ward")
    assert "--dataset" not in none_at(tmp_path / "elsewhere" / "er.db")


def test_an_auditor_s_ledger_is_meant_where_there_is_one(tmp_path: Path) -> None:
    assert seen_in(tmp_path) == "records"
    HospitalLedger.open(ledger_path(tmp_path, OF_AUDITOR)).close()
    assert seen_in(tmp_path) == OF_AUDITOR


def test_every_commit_is_synced_and_a_reader_writes_nothing(tmp_path: Path) -> None:
    """SQLite's documentation: WAL with synchronous FULL (2) keeps a commit through a power cut."""
    path = tmp_path / "a.db"
    with contextlib.closing(connect(path, read_only=False)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    with contextlib.closing(connect(path, read_only=True)) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM entries")


def test_a_round_is_charged_once_and_entries_without_a_round_repeat(tmp_path: Path) -> None:
    with contextlib.closing(connect(tmp_path / "a.db", read_only=False)) as connection:
        row = "INSERT INTO entries (kind, study, round, body, previous, sha256) VALUES (?, 's', ?, '', '', '')"
        for kind, number in (("opened", None), ("opened", None), ("reserved", 1), ("settled", 1)):
            connection.execute(row, (kind, number))
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            connection.execute(row, ("reserved", 1))


def test_one_lock_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ledgers" / "a.db"
    lock = take_lock(path)
    with pytest.raises(LedgerInUse, match="another process uses the ledger"):
        take_lock(path)
    lock.release()
    lock.release()
    take_lock(path).release()


def test_only_errors_of_the_disk_are_no_evidence_about_the_file(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError) as missing:
        connect(tmp_path / "none.db", read_only=True).execute("SELECT 1 FROM entries")
    assert is_of_the_disk(missing.value)
    other = tmp_path / "other.db"
    other.write_bytes(b"something else" * 100)
    with pytest.raises(sqlite3.DatabaseError) as damaged:
        connect(other, read_only=False)
    assert not is_of_the_disk(damaged.value)
    assert not is_of_the_disk(OSError("full"))


def test_a_process_that_ends_while_it_makes_a_ledger_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: Path) -> None:
        raise KeyboardInterrupt

    path = ledger_path(tmp_path, "icu")
    with monkeypatch.context() as patched:
        patched.setattr(ledger_file, "move_durably", ended)
        with pytest.raises(KeyboardInterrupt):
            HospitalLedger.open(path)
    assert not path.exists()
    with pytest.raises(ConfigurationError, match="there is no ledger"):
        HospitalLedger.open(path, read_only=True)
    opened(tmp_path).close()
    assert [file.name for file in path.parent.glob("icu.new*")] == []


def test_what_a_removed_ledger_left_is_no_part_of_a_new_one(tmp_path: Path) -> None:
    path = ledger_path(tmp_path, "icu")
    with opened(tmp_path):
        log = Path(f"{path}-wal").read_bytes()
    assert log
    path.unlink()
    Path(f"{path}-wal").write_bytes(log)
    with HospitalLedger.open(path) as ledger:
        assert ledger.entries == ()
    # An empty file is none, too.
    path.write_bytes(b"")
    opened(tmp_path).close()
