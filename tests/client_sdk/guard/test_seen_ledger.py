"""The coordinator's ledger as a hospital keeps it: durable, whole, and only ever longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry, append
from client_sdk.errors import LedgerDamaged
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger, OwnRound
from client_sdk.guard.seen_ledger import LedgerStep, SeenHead
from study_protocol.study.messages import LedgerHead, WitnessedHead
from study_protocol.study.witness import sign_head

KEY = Ed25519PrivateKey.generate()
PRICE = Charge("instance", 1.0, 0.5, 1)


def chain(count: int, note: str = "") -> list[Entry]:
    made: list[Entry] = []
    for _ in range(count):
        made.append(append(made[-1] if made else None, "roster", None, {"note": note}))
    return made


def step(entries: list[Entry], *ahead: WitnessedHead, account: int = 0) -> LedgerStep:
    head = SeenHead(entries[-1].sequence, entries[-1].sha256, 1)
    return LedgerStep(entries, head, {"label": "x"}, {"n": account}, ahead)


def ahead(number: int, client: str = "grace") -> WitnessedHead:
    return sign_head(KEY, client, LedgerHead(study="sepsis", entries=number, sha256="ab" * 32))


def test_what_was_seen_is_there_after_a_restart(tmp_path: Path) -> None:
    entries = chain(5)
    with HospitalLedger.open(tmp_path / "icu.db") as ledger:
        seen = ledger.seen_ledger("sepsis")
        assert (seen.head, seen.account, seen.signed, seen.entries()) == (SeenHead(), None, None, [])
        seen.extend(step(entries[:2], ahead(4), ahead(9), account=1))
        seen.extend(step(entries[2:], account=2))
    with HospitalLedger.open(tmp_path / "icu.db", read_only=True) as ledger:
        seen = ledger.seen_ledger("sepsis")
        assert seen.head == SeenHead(5, entries[-1].sha256, 1)
        assert (seen.entries(), seen.account, seen.signed) == (entries, {"n": 2}, {"label": "x"})
        assert [seen.hash_of(number) for number in (1, 5, 6)] == [entries[0].sha256, entries[4].sha256, None]
        # What was come to is forgotten.
        assert seen.heads_ahead() == [ahead(9)]
        assert ledger.seen_ledger("stroke").head == SeenHead()


@pytest.mark.parametrize("what", ["gap", "other past", "shorter", "other head"])
def test_nothing_is_stored_that_does_not_extend_what_was_stored(tmp_path: Path, what: str) -> None:
    entries = chain(5)
    with HospitalLedger.open(tmp_path / "icu.db") as ledger:
        seen = ledger.seen_ledger("sepsis")
        seen.extend(step(entries[:2]))
        wrong = {
            "gap": step(entries[3:]),
            "other past": step(chain(5, "other")[2:]),
            "shorter": step(entries[:1]),
            "other head": LedgerStep(entries[2:4], SeenHead(5, entries[4].sha256, 1), {}, {}, ()),
        }[what]
        with pytest.raises(LedgerDamaged, match="not continued"):
            seen.extend(wrong)
        assert (seen.head.sequence, seen.entries()) == (2, entries[:2])


def test_the_own_part_in_a_round_is_known_from_receipts(tmp_path: Path) -> None:
    with HospitalLedger.open(tmp_path / "icu.db") as ledger:
        assert ledger.own_round("sepsis", 1) == OwnRound(False, False, None)
        for round in (1, 2, 3):
            ledger.charge("sepsis", round, PRICE, (), "0" * 64)
            told = {"distance": 0.5}
            ledger.finish_update("sepsis", round, sha256=str(round) * 64, size=5, sums=None, reported=told)
        ledger.mark_answered("sepsis", 1, "1" * 64, "accepted", accepted=True)
        # Its shares were taken, and then the session failed: something may have been seen.
        ledger.mark_answered("sepsis", 2, "2" * 64, "session-failed", accepted=True)
        ledger.mark_answered("sepsis", 3, "3" * 64, "round-closed")
        assert [ledger.own_round("sepsis", n).accepted for n in (1, 2, 3)] == [True, True, False]
        assert ledger.own_round("sepsis", 3) == OwnRound(False, True, {"distance": 0.5})
        assert ledger.own_round("stroke", 1) == OwnRound(False, False, None)
