"""How a subject stands: the people who have agreed to it, whether they are enough, and what lacks.

Pure functions over the decisions, in the order of their entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client_sdk.guard.people import count_people
from client_sdk.guard.policy import ApprovalRule

if TYPE_CHECKING:
    from client_sdk.guard.decision import Decision, Subject


@dataclass(frozen=True)
class SubjectStanding:
    """The state of one subject under a rule.

    effective  the agreement with which it took effect. None: it has none, or another one took its place
    agreed     agreements that wait for others
    declined   the newest no. None: there is none, or a person agreed after it
    rule       the people whom it needs
    replaced   it was in force, and another one took its place
    """

    effective: Decision | None
    agreed: tuple[Decision, ...]
    declined: Decision | None
    rule: ApprovalRule
    replaced: bool = False

    @property
    def missing(self) -> int:
        """Return how many people still have to agree. 0: it has taken effect."""
        return 0 if self.effective is not None else self.rule.people - _count(self.agreed, self.rule)

    @property
    def in_words(self) -> str:
        """Return who has decided and what lacks, in one or two sentences."""
        if self.effective is not None:
            return f"approved by {_name_of(self.effective)}"
        if self.declined is not None:
            return f"declined by {_name_of(self.declined)}"
        if not self.agreed and self.replaced:
            return "replaced by a later one"
        if not self.agreed:
            needed = f": {self.rule.people} people have to agree" if self.rule.people > 1 else ""
            return f"not decided{needed}"
        return self.lack_in_words

    @property
    def lack_in_words(self) -> str:
        """Return who of the people that are needed have agreed, and how many lack."""
        count, names = _count(self.agreed, self.rule), "; ".join(each.person_in_words for each in self.agreed)
        shared = "a name or an account" if self.rule.distinct_accounts else "a name"
        joint = f" Those who share {shared} count as one person." if count < len(self.agreed) else ""
        missing = self.rule.people - count
        apart_by = ", from another account" if self.rule.distinct_accounts else ", under another name"
        more = f"{missing} more {'has' if missing == 1 else 'have'} to agree{apart_by}"
        return f"{count} of {self.rule.people} people have agreed ({names}).{joint} {more}"


def standing_of(decisions: Iterable[Decision], subject: Subject, rule: ApprovalRule) -> SubjectStanding:
    """Return how a subject stands. rule: of questions, terms and rosters. A policy also needs that of before."""
    group = _group_of(decisions, subject, rule)
    sha256 = subject.sha256
    agreed, declined = group.agreed.get(sha256, ()), group.declined.get(sha256)
    return SubjectStanding(
        group.effective.get(sha256), agreed, declined, group.rule_of(subject), sha256 in group.replaced
    )


def in_force(decisions: Iterable[Decision], subject: Subject, rule: ApprovalRule) -> str | None:
    """Return the digest that is in force of those of the subject's kind and study, or None before the first."""
    return next(iter(_group_of(decisions, subject, rule).effective), None)


def rule_in_force(decisions: Iterable[Decision]) -> ApprovalRule:
    """Return the rule of the site policy that is in force, or the one of a hospital without any."""
    group = _Group(ApprovalRule())
    for decision in decisions:
        if decision.subject.kind == "policy":
            group.add(decision)
    return group.rule_before


def _group_of(decisions: Iterable[Decision], subject: Subject, rule: ApprovalRule) -> _Group:
    group = _Group(rule)
    for decision in decisions:
        if decision.subject.is_rival_of(subject):
            group.add(decision)
    return group


class _Group:
    """The decisions about subjects of one kind and study, one after the other."""

    def __init__(self, rule: ApprovalRule) -> None:
        self._rule, self.rule_before = rule, ApprovalRule()
        self.effective: dict[str, Decision] = {}
        self.agreed: dict[str, tuple[Decision, ...]] = {}
        self.declined: dict[str, Decision] = {}
        self.replaced: set[str] = set()

    def rule_of(self, subject: Subject) -> ApprovalRule:
        """Return the people whom a subject needs now."""
        # The terms of a study hold the coordinator's key: people agree to it with them.
        if subject.kind == "coordinator":
            return ApprovalRule()
        return self._rule if subject.rule is None else self.rule_before.stricter(subject.rule)

    def add(self, decision: Decision) -> None:
        sha256, agreed = decision.subject.sha256, self.agreed.get(decision.subject.sha256, ())
        match decision.verdict:
            case "agree":
                self.declined.pop(sha256, None)
                self._agree(decision, (*_without(agreed, decision), decision))
            case "decline":
                # All of them agree anew after it.
                self.agreed.pop(sha256, None)
                self.effective.pop(sha256, None)
                self.declined[sha256] = decision
            case "withdraw":
                self.agreed[sha256] = _without(agreed, decision)

    def _agree(self, decision: Decision, agreed: tuple[Decision, ...]) -> None:
        subject = decision.subject
        rule = self.rule_of(subject)
        if _count(agreed, rule) < rule.people:
            self.agreed[subject.sha256] = agreed
            return
        if subject.has_one_in_force:
            self.replaced = (self.replaced | self.effective.keys()) - {subject.sha256}
            self.effective.clear()
            self.agreed.clear()
        self.agreed.pop(subject.sha256, None)
        self.effective[subject.sha256] = decision
        self.rule_before = subject.rule or self.rule_before


def _count(agreed: Sequence[Decision], rule: ApprovalRule) -> int:
    # Alone, an earlier version's approval counts, although it names no person.
    if rule.people == 1:
        return min(1, len(agreed))
    people = (each.person for each in agreed if each.person is not None)
    return count_people(people, distinct_accounts=rule.distinct_accounts)


def _without(agreed: Sequence[Decision], decision: Decision) -> tuple[Decision, ...]:
    """Return the agreements of other people, and of other accounts, than this decision's."""
    person = decision.person
    if person is None:
        return tuple(agreed)
    return tuple(each for each in agreed if each.person is None or not each.person.is_same(person))


def _name_of(decision: Decision) -> str:
    name = "a person who is not recorded," if decision.person is None else str(decision.person)
    return f"{name} on {decision.at[:10]}" if decision.at else name.rstrip(",")
