"""The mark of the newest decision in the ledger of a data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.decision import Subject
from client_sdk.guard.decisions import DECISIONS_FILE, decide, decisions_in
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import ApprovalRule

ADA = DecidingPerson("Ada", account=SystemAccount("1000"))
SUBJECT = Subject("question", "sepsis", "ab" * 32, "one")


def test_a_mark_is_written_once_for_each_newest_decision(tmp_path: Path) -> None:
    with HospitalLedger.open(tmp_path / "ledger.db") as ledger:
        ledger.require_decisions([])
        ledger.mark_decisions([], ApprovalRule())
        assert ledger.entries == ()
        for _ in range(2):
            decide(tmp_path, SUBJECT, "agree", ADA, ApprovalRule())
            for _ in range(2):
                ledger.require_decisions(decisions_in(tmp_path))
                ledger.mark_decisions(decisions_in(tmp_path), ApprovalRule())
        assert [entry.body["number"] for entry in ledger.entries] == [1, 2]


@pytest.mark.parametrize(("people", "accepted"), [(1, True), (2, False)])
def test_a_ledger_from_a_backup_or_a_new_one_is_found(tmp_path: Path, people: int, accepted: bool) -> None:
    rule = ApprovalRule(people=people)
    with HospitalLedger.open(tmp_path / "ledger.db") as ledger:
        decide(tmp_path, SUBJECT, "agree", ADA, rule)
        backup = (tmp_path / DECISIONS_FILE).read_bytes()
        decide(tmp_path, SUBJECT, "decline", ADA, rule)
        ledger.mark_decisions(decisions_in(tmp_path), rule)
        for put_back in (True, False):
            (tmp_path / DECISIONS_FILE).unlink()
            if put_back:
                (tmp_path / DECISIONS_FILE).write_bytes(backup)
            with pytest.raises(LedgerDamaged, match="lacks decision 2"):
                ledger.require_decisions(decisions_in(tmp_path))
        # Where one person decides alone, one person may say that it is lost.
        if accepted:
            ledger.require_decisions([], accept_loss=True)
        else:
            with pytest.raises(LedgerDamaged, match="newest backup"):
                ledger.require_decisions([], accept_loss=True)
