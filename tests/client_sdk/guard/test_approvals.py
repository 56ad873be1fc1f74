"""Decisions of people about questions, in the hospital's ledger."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.decisions import DECISIONS_FILE, DecisionLedger
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import ApprovalRule

DIGEST, OTHER = "ab" * 32, "cd" * 32
ADA, BOB = (
    DecidingPerson("Ada", "privacy officer", account=SystemAccount("1000", "ada")),
    DecidingPerson("Bob", account=SystemAccount("1001")),
)
TWO = ApprovalRule(people=2)


def approvals(home: Path, rule: ApprovalRule | None = None) -> Approvals:
    return Approvals(home, "sepsis", rule)


def earlier_file(home: Path, content: bytes, study: str = "sepsis") -> None:
    folder = home / "outbox" / study / "queries"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{DIGEST}.json").write_bytes(content)


def test_nothing_is_decided_before_a_person_decides(tmp_path: Path) -> None:
    reader = approvals(tmp_path)
    assert (reader.has(DIGEST), reader.denied(DIGEST), reader.identity(DIGEST)) == (False, False, None)
    assert list(tmp_path.iterdir()) == []


def test_a_decision_is_of_one_question_of_one_study_and_the_last_one_counts(tmp_path: Path) -> None:
    approvals(tmp_path).decide(DIGEST, approved=True, words="How many?")
    reader = approvals(tmp_path)
    assert (reader.has(DIGEST), reader.denied(DIGEST)) == (True, False)
    assert (reader.has(OTHER), reader.denied(OTHER)) == (False, False)
    assert not Approvals(tmp_path, "stroke").has(DIGEST)
    first = reader.identity(DIGEST)
    reader.decide(DIGEST, approved=True, words="How many?")
    # Charges tell one approval from the next by it.
    assert reader.identity(DIGEST) not in (None, first)
    reader.decide(DIGEST, approved=False, words="How many?")
    assert (reader.has(DIGEST), reader.denied(DIGEST)) == (False, True)


def test_the_entry_says_who_decided_what_and_when(tmp_path: Path) -> None:
    standing = approvals(tmp_path).decide(DIGEST, approved=True, words="How many?", person=ADA)
    assert standing.effective is not None
    assert (standing.effective.person, standing.effective.subject.words) == (ADA, "How many?")
    assert datetime.fromisoformat(standing.effective.at).utcoffset() is not None
    assert standing.in_words.startswith("approved by Ada (account ada, privacy officer) on 20")


def test_two_people_approve_and_one_declines(tmp_path: Path) -> None:
    reader = approvals(tmp_path, TWO)
    reader.decide(DIGEST, approved=True, words="one", person=ADA)
    assert not reader.has(DIGEST)
    assert reader.standing(DIGEST).in_words == (
        "1 of 2 people have agreed (Ada (account ada, privacy officer)). 1 more has to agree, from another account"
    )
    reader.decide(DIGEST, approved=True, words="one", person=BOB)
    assert reader.has(DIGEST)
    reader.decide(DIGEST, approved=False, words="one", person=BOB)
    assert reader.denied(DIGEST)
    # After a no, all of them agree anew.
    reader.decide(DIGEST, approved=True, words="one", person=BOB)
    assert (reader.has(DIGEST), reader.denied(DIGEST)) == (False, False)


def test_an_approval_of_an_earlier_version_counts_where_one_person_decides(tmp_path: Path) -> None:
    earlier_file(tmp_path, b'{"approved": true, "question": "How many?", "at": "2026-01-01", "id": "0123"}')
    # Before a ledger is there, and after it took the file over.
    for make in (False, True):
        if make:
            DecisionLedger.open_in(tmp_path).close()
        reader = approvals(tmp_path)
        assert (reader.has(DIGEST), reader.identity(DIGEST)) == (True, "0123")
        assert reader.standing(DIGEST).in_words == "approved by a person who is not recorded, on 2026-01-01"
        assert not approvals(tmp_path, TWO).has(DIGEST)


def test_a_file_that_is_put_beside_the_ledger_decides_nothing(tmp_path: Path) -> None:
    approvals(tmp_path).decide(OTHER, approved=True, words="one")
    earlier_file(tmp_path, json.dumps({"approved": True, "question": "", "at": "", "id": "0123"}).encode())
    assert not approvals(tmp_path).has(DIGEST)
    DecisionLedger.open_in(tmp_path).close()
    assert not approvals(tmp_path).has(DIGEST)


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"approved": "yes", "id": 3}', "null", "\xff"])
def test_a_file_that_is_no_decision_decides_nothing(tmp_path: Path, content: str) -> None:
    earlier_file(tmp_path, content.encode("latin-1"))
    reader = approvals(tmp_path)
    assert (reader.has(DIGEST), reader.denied(DIGEST), reader.identity(DIGEST)) == (False, False, None)


def test_a_ledger_that_loses_decisions_while_it_is_read_is_damaged(tmp_path: Path) -> None:
    reader = approvals(tmp_path)
    reader.decide(DIGEST, approved=True, words="one")
    backup = (tmp_path / DECISIONS_FILE).read_bytes()
    reader.decide(DIGEST, approved=False, words="one")
    assert reader.denied(DIGEST)
    (tmp_path / DECISIONS_FILE).write_bytes(backup)
    with pytest.raises(LedgerDamaged, match="restore it"):
        reader.has(DIGEST)
