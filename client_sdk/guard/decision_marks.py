"""How far the ledger of decisions went, as the ledger of a data set remembers it: a removed decision is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain

if TYPE_CHECKING:
    from client_sdk.guard.decisions import Decision
    from client_sdk.guard.policy import ApprovalRule

# Stands where a study's name does, and can be none.
_DECISIONS = "/decisions"


class DecisionMarks(LedgerChain):
    """A ledger of a data set, which keeps a mark of the newest decision that it has seen."""

    def keep_decisions(
        self, decisions: Sequence[Decision], rule: ApprovalRule, *, accept_loss: bool = False
    ) -> None:
        """Require every decision up to the last mark, and mark the newest. The same again is no entry.

        decisions    all of the hospital, the oldest first
        rule         in force now
        accept_loss  a person says that decisions are lost. It counts only where one person decided alone

        Raises:
            LedgerDamaged: decisions were removed.
        """
        marks = [entry.body for entry in self._of(_DECISIONS)]
        last = marks[-1] if marks else {"number": 0, "sha256": "", "people": 1}
        newest = max(decisions, key=lambda each: each.number, default=None)
        is_known = not marks or any((each.number, each.sha256) == (last["number"], last["sha256"]) for each in decisions)
        if not is_known and not (accept_loss and last["people"] == 1):
            raise LedgerDamaged(
                f"decisions.db in the hospital's directory lacks decision {last['number']}, which this data set's "
                "ledger has seen: restore it from the newest backup"
            )
        if newest is not None and (newest.number, newest.sha256) != (last["number"], last["sha256"]):
            mark = {"number": newest.number, "sha256": newest.sha256, "people": rule.people, "at": self._moment()}
            with self._writing():
                self._append(DECLARED, _DECISIONS, None, mark)
