"""The chain of a hospital's ledger: a rewritten past is noticed, and what cannot be written changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from client_sdk.errors import LedgerDamaged, LedgerNotWritten
from client_sdk.guard.ledger import ChargedRound, HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from tests.client_sdk.guard.test_ledger import CHARGE, MODEL, opened


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '1.0', '9.0') WHERE kind = 'reserved'",
        "DELETE FROM entries WHERE sequence = 2",
        "UPDATE entries SET round = 7 WHERE kind = 'reserved'",
        "UPDATE entries SET kind = 'cancelled' WHERE kind = 'reserved'",
    ],
    ids=["body", "deleted", "round", "kind"],
)
def test_a_rewritten_past_is_noticed(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as ledger:
        ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        ledger.finish_update("sepsis", 1, sha256="d" * 64, size=1, sums=None)
    connection = sqlite3.connect(ledger_path(tmp_path, "icu"))
    with connection:
        assert connection.execute(change).rowcount == 1
    connection.close()
    with pytest.raises(LedgerDamaged):
        HospitalLedger.open(ledger_path(tmp_path, "icu"))
    # A refused ledger is not held: a restored one can be opened at once.
    with pytest.raises(LedgerDamaged):
        HospitalLedger.open(ledger_path(tmp_path, "icu"))


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = ledger_path(tmp_path, "icu")
    path.parent.mkdir()
    path.write_bytes(b"something else" * 100)
    with pytest.raises(LedgerDamaged):
        HospitalLedger.open(path)


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        ledger._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(LedgerNotWritten, match="disk full"):
            ledger.finish_update("sepsis", 1, sha256="d" * 64, size=1, sums=bytes(1 << 20))
        assert ledger.charged_round("sepsis", 1) == ChargedRound(2, MODEL, None)
        assert ledger.sums("sepsis") is None
        ledger._connection.execute("PRAGMA max_page_count = 100000")
        ledger.finish_update("sepsis", 1, sha256="d" * 64, size=1, sums=bytes(1 << 20))
