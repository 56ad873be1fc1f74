"""Whether people at this hospital let a question be answered. Asked before consent, and again in the round: what a
coordinator says of consents is not believed."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk.errors import PolicyRefused
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.standing import rule_in_force
from client_sdk.study.synthesis import NOT_BY_RULE, SynthesisRule
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.monitoring import window_in
from study_protocol.study.queries import Query, QueryAsked, QueryDocument

NOT_A_WINDOW = "not-a-window"


@dataclass(frozen=True)
class Permission:
    """Of the questions of one study."""

    study: str
    settings: AnySettings
    policy: SitePolicy
    approvals: Approvals
    ledger: HospitalLedger
    rule: SynthesisRule | None = None

    def require_by_rule(self, query: Query | QueryAsked, *, except_round: int | None = None) -> None:
        """Require of a question in the form of the study's synthesis that its rule asks it, and no other in its place.

        A person's approval of this very question stands above the rule.

        Raises:
            PolicyRefused: the signed answers lead to another one, or another one was answered in its place. Of a
                question about later patients: it is no window of the settings, or its window was asked about before.
        """
        document, digest = query.document, query.approved_digest
        if window_in(document) is not None:
            self._require_window(document, digest, except_round)
            return
        stage = self._stage(document)
        if self.rule is None or stage is None or self.approvals.has(digest):
            return
        earlier = self.ledger.subjects_under(self.study, stage, except_round=except_round)
        if any(subject != digest for subject in earlier):
            raise PolicyRefused(NOT_BY_RULE, "this hospital has answered another question of synthesis in its place")
        self.rule.require(document)

    def _require_window(self, document: QueryDocument, digest: str, except_round: int | None) -> None:
        # No approval stands above this: windows that overlap would cost one patient twice.
        stage = self._stage(document)
        if stage is None:
            raise PolicyRefused(NOT_A_WINDOW, "the question is about no window of the study's section monitoring")
        earlier = self.ledger.subjects_under(self.study, stage, except_round=except_round)
        if any(subject != digest for subject in earlier):
            raise PolicyRefused(NOT_A_WINDOW, "another question was answered about this window: each has one")

    def of(self, query: Query | QueryAsked, *, except_round: int | None = None) -> bool | None:
        """Return the decision of a person here, of the policy for all questions, or of the joining for those in the
        settings. None: a person has to decide first.

        except_round  the round that asks: if it is paid for, it is no other evaluation and no other session
        """
        digest = query.approved_digest
        if self.approvals.denied(digest):
            return False
        stage = self._stage(query.document)
        if stage is not None and window_in(query.document) is not None and self._used(stage, except_round):
            return False
        if self.policy.statistics.allows(by_hospital=query.document.question.is_by_hospital) or (
            self.approvals.has(digest) and not self._is_used_up(query, except_round)
        ):
            return True
        return True if self._is_agreed(query.document, except_round) else None

    def keep_decisions(self) -> None:
        """Mark the newest decision in the data set's ledger. Raises LedgerDamaged: one was removed."""
        decisions = self.approvals.reader.read()
        self.ledger.require_decisions(decisions)
        self.ledger.mark_decisions(decisions, rule_in_force(decisions))

    def _is_used_up(self, query: Query | QueryAsked, except_round: int | None) -> bool:
        """Return whether an approval covers no further session. Each may have been opened, for any report of it.

        Of a question in steps it covers as many sessions of each step. The later steps depend on answers, and are
        approved with the first: one patient changes each sum by at most the same, for any coefficients.
        """
        approval = self._approval(query)
        subjects = self.ledger.subjects_under(self.study, approval, except_round=except_round)
        # Charges of earlier versions name their subject alone.
        sessions = len(subjects) if approval is not None else subjects.count(query.charged_digest)
        return sessions >= self.policy.statistics.max_sessions_per_approval

    def under(self, query: QueryAsked) -> str | None:
        """Return the identity of the approval that a session of this question is charged under, or None if it needs
        none."""
        stage = self._stage(query.document)
        if stage is not None and window_in(query.document) is not None:
            return stage
        return self._approval(query) if self.approvals.has(query.approved_digest) else stage

    def _approval(self, query: Query | QueryAsked) -> str | None:
        """Return the name in charges of the approval of this question, at a step after the first with that step."""
        identity, step = self.approvals.identity(query.approved_digest), query.document.step
        return identity if identity is None or step == 1 else f"{identity}, step {step}"

    def _is_agreed(self, document: QueryDocument, except_round: int | None) -> bool:
        """Whether it stands in the settings that this hospital joined under, and fewer were answered than they ask for.

        A separate approval by a person here takes no place of these.
        """
        if (stage := self._stage(document)) is not None:
            return not self._used(stage, except_round)
        evaluation = self.settings.evaluation
        if evaluation is None or not evaluation.schedules(document):
            return False
        due = evaluation.plan().due_by(self.settings.rounds)
        answered = self.ledger.evaluations(self.study, except_round=except_round)
        return sum(not self.approvals.has(digest) for digest in answered) < due

    def _used(self, stage: str, except_round: int | None) -> bool:
        sums = self.ledger.subjects_under(self.study, stage, except_round=except_round)
        return len(sums) >= self.policy.statistics.max_sessions_per_approval

    def _stage(self, document: QueryDocument) -> str | None:
        """Return the name under which sums of this question are charged. None: no window, and not of the synthesis."""
        monitoring = self.settings.monitoring
        window = None if monitoring is None else monitoring.window_of(document)
        if window is not None:
            return f"window-{window}"
        synthesis = self.settings.synthesis
        stage = None if synthesis is None else synthesis.stage_of(document)
        return None if stage is None else f"synthesis-{stage}"
