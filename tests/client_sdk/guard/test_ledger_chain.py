"""The chain of a hospital's ledger: a rewritten past is noticed, and what cannot be written changes nothing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged, LedgerInUse, LedgerNotWritten
from client_sdk.guard.ledger import ChargedRound, HospitalLedger
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain
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


def test_each_entry_hangs_on_the_one_before_by_its_digest(tmp_path: Path) -> None:
    """SHA-256 of canonical JSON, computed here from the rows of the file alone."""
    path = ledger_path(tmp_path, "icu")
    with LedgerChain.open(path) as chain:
        assert chain.next_sequence == 1
        with chain._writing():
            for study in ("sepsis", "stroke", "sepsis"):
                chain._append(DECLARED, study, None, {"text": "ä"})
        assert chain.next_sequence == 4
        assert [entry.sequence for entry in chain._of("sepsis")] == [1, 3]
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT sequence, kind, round, body, previous, sha256 FROM entries ORDER BY sequence")
    before = None
    for *content, sha256 in rows.fetchall():
        fields = dict(zip(("sequence", "kind", "round", "body", "previous"), content, strict=True))
        fields["body"] = json.loads(fields["body"])
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == sha256
        assert before in (None, fields["previous"])
        before = sha256
    connection.close()


def _write_until_interrupted(chain: LedgerChain) -> None:
    with chain._writing():
        chain._append(DECLARED, "sepsis", None, {})
        raise KeyboardInterrupt


def test_an_interruption_leaves_no_part_of_what_is_written_together(tmp_path: Path) -> None:
    path = ledger_path(tmp_path, "icu")
    with LedgerChain.open(path) as chain:
        with chain._writing():
            chain._append(DECLARED, "sepsis", None, {})
        entries = chain.entries
        with pytest.raises(KeyboardInterrupt):
            _write_until_interrupted(chain)
        assert chain.entries == entries
        # The next entry takes the place of the one that was given up.
        with chain._writing():
            chain._append(DECLARED, "stroke", None, {})
        written = chain.entries
    with LedgerChain.open(path) as again:
        assert again.entries == written
    assert [(entry.sequence, entry.body["study"]) for entry in written] == [(1, "sepsis"), (2, "stroke")]


def test_one_process_writes_and_others_read_beside_it(tmp_path: Path) -> None:
    path = ledger_path(tmp_path, "icu")
    with pytest.raises(ConfigurationError):
        LedgerChain.open(path, read_only=True)
    assert not path.exists()
    with LedgerChain.open(path) as chain:
        with chain._writing():
            chain._append(DECLARED, "sepsis", None, {})
        with pytest.raises(LedgerInUse):
            LedgerChain.open(path)
        with LedgerChain.open(path, read_only=True) as reader:
            assert reader.entries == chain.entries
            with pytest.raises(LedgerNotWritten), reader._writing():
                reader._append(DECLARED, "sepsis", None, {})
            assert reader.entries == chain.entries
    # A closed one lets the next process have it.
    LedgerChain.open(path).close()


def test_moments_are_those_of_the_clock_in_whole_seconds(tmp_path: Path) -> None:
    moment = datetime(2026, 3, 29, 1, 30, 0, 999_999, tzinfo=UTC)
    with LedgerChain.open(ledger_path(tmp_path, "icu"), now=lambda: moment) as chain:
        assert chain._moment() == "2026-03-29T01:30:00+00:00"
