"""How far the ledger of decisions went, as the ledger of a data set remembers it: a removed decision is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain

if TYPE_CHECKING:
    from client_sdk.guard.decision import Decision
    from client_sdk.guard.policy import ApprovalRule

# Stands where a study's name does, and can be none.
_DECISIONS = "/decisions"


class DecisionMarks(LedgerChain):
    """A ledger of a data set, which keeps a mark of the newest decision that it has seen."""

    def require_decisions(self, decisions: Sequence[Decision], *, accept_loss: bool = False) -> None:
        """Require that the decision of the last mark is still among all decisions of the hospital.

        accept_loss  a person says that decisions are lost. It counts only where one person decided alone

        Raises:
            LedgerDamaged: decisions were removed.
        """
        mark = self._decision_mark()
        if mark is None or any((each.number, each.sha256) == (mark["number"], mark["sha256"]) for each in decisions):
            return
        if not (accept_loss and mark["people"] == 1):
            raise LedgerDamaged(
                f"decisions.db in the hospital's directory lacks decision {mark['number']}, which this data set's "
                "ledger has seen: restore it from the newest backup"
            )

    def mark_decisions(self, decisions: Sequence[Decision], rule: ApprovalRule) -> None:
        """Keep a mark of the newest decision. The same again is no entry. rule: in force now."""
        mark, newest = self._decision_mark() or {}, decisions[-1] if decisions else None
        if newest is not None and newest.sha256 != mark.get("sha256"):
            body = {"number": newest.number, "sha256": newest.sha256, "people": rule.people, "at": self._moment()}
            with self._writing():
                self._append(DECLARED, _DECISIONS, None, body)

    def _decision_mark(self) -> Mapping[str, Any] | None:
        marks = [entry.body for entry in self._of(_DECISIONS)]
        return marks[-1] if marks else None
