"""A chain whose lock is held for one entry at a time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from client_sdk.errors import LedgerDamaged, LedgerInUse
from client_sdk.guard.ledger_file import take_lock
from wardround.flower import shared_chain
from wardround.flower.run_ledger import RunLedger
from wardround.flower.run_limit import charge_of

ROUND = charge_of("client", 8.0)


def opened(path: Path) -> RunLedger:
    return RunLedger(path, epsilon=2.0, delta=1e-5)


def test_two_open_ledgers_see_each_other(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as one, opened(tmp_path / "runs.db") as other:
        reservation = one.reserve(ROUND, "one")
        assert other.steps() == {ROUND: 1}
        other.reserve(ROUND, "other")
        one.settle(reservation)
        assert one.epsilon() == other.epsilon()
        assert [entry.kind for entry in other.entries()] == ["opened", "reserved", "reserved", "settled"]


def test_an_older_copy_in_its_place_is_found_by_a_running_process(tmp_path: Path) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    with opened(path) as ledger:
        ledger.reserve(ROUND, "run")
        with opened(copy):
            pass
        copy.replace(path)
        with pytest.raises(LedgerDamaged, match="replaced"):
            ledger.reserve(ROUND, "run")


def test_an_entry_that_changed_meanwhile_is_found_by_a_running_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with opened(path) as ledger:
        ledger.reserve(ROUND, "run")
        connection = sqlite3.connect(path)
        connection.execute("UPDATE entries SET body = replace(body, '8.0', '80.0') WHERE sequence = 2")
        connection.commit()
        connection.close()
        with pytest.raises(LedgerDamaged, match="entry 2: is another one than before"):
            ledger.reserve(ROUND, "run")


def test_a_process_that_keeps_the_lock_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_chain, "_PATIENCE_SECONDS", 0.05)
    path = tmp_path / "runs.db"
    with opened(path) as ledger:
        lock = take_lock(path)
        with pytest.raises(LedgerInUse):
            ledger.reserve(ROUND, "run")
        lock.release()
        ledger.reserve(ROUND, "run")
        assert ledger.steps() == {ROUND: 1}
