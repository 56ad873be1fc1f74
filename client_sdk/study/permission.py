"""Whether people at this hospital let a question be answered. Asked before consent, and again in the round: what a
coordinator says of consents is not believed."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.policy import SitePolicy
from client_sdk.protocol.study.any_settings import AnySettings
from client_sdk.protocol.study.queries import QueryDocument


@dataclass(frozen=True)
class Permission:
    """Of the questions of one study."""

    study: str
    settings: AnySettings
    policy: SitePolicy
    approvals: Approvals
    ledger: HospitalLedger

    def of(self, document: QueryDocument, *, besides: int | None = None) -> bool | None:
        """What a person here has decided, or the policy for all questions, or whoever joined for those that stand in
        the settings; None: a person has to decide first.

        besides  the round that asks: if it is paid for, it is no other evaluation
        """
        digest = document.digest()
        if self.approvals.denied(digest):
            return False
        if self.policy.statistics.queries == "allow" or self.approvals.has(digest):
            return True
        return True if self._is_agreed(document, besides) else None

    def _is_agreed(self, document: QueryDocument, besides: int | None) -> bool:
        """Whether it stands in the settings that this hospital joined under, and fewer were answered than they ask for.

        What a person here has approved by itself takes no place of these.
        """
        evaluation = self.settings.evaluation
        if evaluation is None or not evaluation.schedules(document):
            return False
        due = evaluation.plan().due_by(self.settings.rounds)
        answered = self.ledger.evaluations(self.study, besides=besides)
        return sum(not self.approvals.has(digest) for digest in answered) < due
