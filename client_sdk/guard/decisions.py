"""The ledger of what people at this hospital decided: who agreed to or declined what, when, in which role and why.

It is one file for the hospital, beside the ledgers of its data sets. So a person can decide while a study runs. It
never leaves the hospital.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, cast

from client_sdk.errors import ConfigurationError
from client_sdk.guard.decision import Decision, Subject, Verdict
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import ApprovalRule
from client_sdk.guard.standing import SubjectStanding, rule_in_force, standing_of

DECISIONS_FILE = "decisions.db"
# Stands where a study's name does in the ledger of a data set.
_DECISION = "/decision"


class DecisionLedger(LedgerChain):
    """The decisions of a hospital. It is opened for one entry at a time."""

    @classmethod
    def open_in(cls, home: Path) -> Self:
        """Return the ledger in the hospital's directory. A new one takes over the approvals of earlier versions.

        Raises:
            LedgerInUse, LedgerDamaged, LedgerNotWritten: as `LedgerChain.wait_for`.
        """
        ledger = cls.wait_for(home / DECISIONS_FILE)
        try:
            if not ledger.entries:
                with ledger._writing():
                    for body in _earlier_approvals(home):
                        ledger._append(DECLARED, _DECISION, None, body)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def decisions(self) -> list[Decision]:
        """Return all decisions, the oldest first."""
        return [Decision.from_body(entry.sequence, entry.sha256, entry.body) for entry in self._of(_DECISION)]

    def decide(self, subject: Subject, verdict: Verdict, person: DecidingPerson, rule: ApprovalRule) -> SubjectStanding:
        """Write a decision, and return how the subject stands now. It is durable when this returns.

        rule  of the site policy at hand. The stricter of it and of the policy in force counts

        Raises:
            ConfigurationError: a reason is missing, or no agreement waits that it declines or takes back.
            LedgerNotWritten: the ledger is unchanged.
        """
        decisions = self.decisions()
        rule = rule.stricter(rule_in_force(decisions))
        if rule.needs_reason and verdict != "withdraw" and not person.reason:
            raise ConfigurationError("the site policy asks for a reason (needs_reason): add --reason with one sentence")
        _require_open(standing_of(decisions, subject, rule), subject, verdict, person)
        body = {
            "kind": subject.kind,
            "of": subject.study,
            "sha256": subject.sha256,
            "words": subject.words,
            "rule": None if subject.rule is None else subject.rule.model_dump(mode="json"),
            "verdict": verdict,
            "person": person.to_dict(),
            "at": self._moment(),
        }
        with self._writing():
            self._append(DECLARED, _DECISION, None, body)
        return standing_of(self.decisions(), subject, rule)


def decisions_in(home: Path) -> list[Decision]:
    """Return the decisions at a hospital, the oldest first, also while another process writes.

    Raises:
        LedgerDamaged: not a ledger, or its chain is broken.
        LedgerNotWritten: the file cannot be read.
    """
    decisions: list[Decision] = []
    if (home / DECISIONS_FILE).exists():
        with DecisionLedger.open(home / DECISIONS_FILE, read_only=True) as ledger:
            decisions = ledger.decisions()
    # A process may have ended before it took them over.
    return decisions or [Decision.from_body(0, "", body) for body in _earlier_approvals(home)]


def decide(
    home: Path, subject: Subject, verdict: Verdict, person: DecidingPerson, rule: ApprovalRule
) -> SubjectStanding:
    """Write one decision into the ledger of a hospital. Raises as `DecisionLedger.decide` and `open_in`."""
    with DecisionLedger.open_in(home) as ledger:
        return ledger.decide(subject, verdict, person, rule)


def decision_numbered(decisions: list[Decision], number: int) -> Decision:
    """Return the decision with this number. Raises ConfigurationError: there is none."""
    decision = next((each for each in decisions if each.number == number), None)
    if decision is None:
        raise ConfigurationError(f"there is no decision {number}: `wardround decision list` shows their numbers")
    return decision


def _require_open(standing: SubjectStanding, subject: Subject, verdict: Verdict, person: DecidingPerson) -> None:
    """Require that the verdict can still change something. Raises ConfigurationError."""
    if verdict == "withdraw" and not any(each.person and each.person.is_same(person) for each in standing.agreed):
        raise ConfigurationError(
            f"{person.name} (account {person.account}) has no agreement to {subject} that waits for others: nothing "
            "was written"
        )
    # A question is asked again and again. The others are in force once, and what ends them is another act.
    if verdict == "decline" and standing.effective is not None and subject.kind != "question":
        leave = f"`wardround withdraw {subject.study}` leaves the study"
        ends = {"terms": leave, "coordinator": leave, "policy": "change the site policy"}
        raise ConfigurationError(
            f"{subject} has taken effect already: {ends.get(subject.kind, 'pin another one in its place')}"
        )


def _earlier_approvals(home: Path) -> Iterator[dict[str, Any]]:
    """Yield the body of an entry for each approval of an earlier version: a file, named after the question's digest."""
    for path in sorted(home.glob("outbox/*/queries/*.json")):
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        decision = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
        if not isinstance(approved := decision.get("approved"), bool):
            continue
        identity = decision.get("id")
        yield {
            "study": _DECISION,
            "kind": "question",
            "of": path.parent.parent.name,
            "sha256": path.stem,
            "words": str(decision.get("question", "")),
            "rule": None,
            "verdict": "agree" if approved else "decline",
            "person": None,
            "earlier": identity if isinstance(identity, str) else None,
            "at": str(decision.get("at", "")),
        }
