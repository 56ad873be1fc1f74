"""Decisions of people about questions, a file each."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from client_sdk.guard.approvals import Approvals

DIGEST, OTHER = "ab" * 32, "cd" * 32


def test_nothing_is_decided_before_a_person_decides(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    assert (approvals.has(DIGEST), approvals.denied(DIGEST), approvals.identity(DIGEST)) == (False, False, None)
    assert list(tmp_path.iterdir()) == []


def test_a_decision_is_of_one_question_and_the_last_one_counts(tmp_path: Path) -> None:
    Approvals(tmp_path).decide(DIGEST, approved=True, words="How many?")
    approvals = Approvals(tmp_path)
    assert (approvals.has(DIGEST), approvals.denied(DIGEST)) == (True, False)
    assert (approvals.has(OTHER), approvals.denied(OTHER)) == (False, False)
    first = approvals.identity(DIGEST)
    approvals.decide(DIGEST, approved=True, words="How many?")
    # Charges tell one approval from the next by it.
    assert approvals.identity(DIGEST) not in (None, first)
    approvals.decide(DIGEST, approved=False, words="How many?")
    assert (approvals.has(DIGEST), approvals.denied(DIGEST)) == (False, True)


def test_the_file_says_what_was_decided_and_when(tmp_path: Path) -> None:
    Approvals(tmp_path).decide(DIGEST, approved=True, words="How many?")
    written = json.loads((tmp_path / "queries" / f"{DIGEST}.json").read_text())
    assert (written["approved"], written["question"]) == (True, "How many?")
    assert datetime.fromisoformat(written["at"]).utcoffset() is not None
    assert len(written["id"]) == 16


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"approved": "yes", "id": 3}', "null", "\xff"])
def test_a_file_that_is_no_decision_decides_nothing(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / f"{DIGEST}.json").write_bytes(content.encode("latin-1"))
    approvals = Approvals(tmp_path)
    assert (approvals.has(DIGEST), approvals.denied(DIGEST), approvals.identity(DIGEST)) == (False, False, None)
