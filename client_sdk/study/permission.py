"""Whether people at this hospital let a question be answered. Asked before consent, and again in the round: what a
coordinator says of consents is not believed."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.policy import SitePolicy
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import Query, QueryAsked, QueryDocument


@dataclass(frozen=True)
class Permission:
    """Of the questions of one study."""

    study: str
    settings: AnySettings
    policy: SitePolicy
    approvals: Approvals
    ledger: HospitalLedger

    def of(self, query: Query | QueryAsked, *, except_round: int | None = None) -> bool | None:
        """Return the decision of a person here, of the policy for all questions, or of the joining for those in the
        settings. None: a person has to decide first.

        except_round  the round that asks: if it is paid for, it is no other evaluation and no other session
        """
        digest = query.approved_digest
        if self.approvals.denied(digest):
            return False
        if self.policy.statistics.allows(by_hospital=query.document.question.is_by_hospital) or (
            self.approvals.has(digest) and not self.is_used_up(digest, except_round=except_round)
        ):
            return True
        return True if self._is_agreed(query.document, except_round) else None

    def is_used_up(self, digest: str, *, except_round: int | None = None) -> bool:
        """Return whether an approval covers no further session. Each may have been opened, for any report of it."""
        approval = self.approvals.identity(digest)
        sessions = self.ledger.sessions_under(self.study, approval, digest, except_round=except_round)
        return sessions >= self.policy.statistics.max_sessions_per_approval

    def under(self, digest: str) -> str | None:
        """Return the identity of the approval that a session of this question is charged under, or None if it needs
        none."""
        return self.approvals.identity(digest) if self.approvals.has(digest) else None

    def _is_agreed(self, document: QueryDocument, except_round: int | None) -> bool:
        """Whether it stands in the settings that this hospital joined under, and fewer were answered than they ask for.

        A separate approval by a person here takes no place of these.
        """
        evaluation = self.settings.evaluation
        if evaluation is None or not evaluation.schedules(document):
            return False
        due = evaluation.plan().due_by(self.settings.rounds)
        answered = self.ledger.evaluations(self.study, except_round=except_round)
        return sum(not self.approvals.has(digest) for digest in answered) < due
