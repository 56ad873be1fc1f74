"""The subjects that people at this hospital decide about, and their decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from client_sdk.guard.people import Person
from client_sdk.guard.policy import ApprovalRule, SitePolicy

if TYPE_CHECKING:
    from study_protocol.study.queries import Query

NOT_RECORDED = "not recorded"

SubjectKind = Literal["question", "terms", "policy", "roster", "coordinator"]
Verdict = Literal["agree", "decline", "withdraw"]


@dataclass(frozen=True)
class Subject:
    """The subject of a decision.

    kind    a question, the terms of a study, the site policy, a study's roster, or the key of a study's coordinator
    study   name. Empty for the site policy
    sha256  digest (hex) of exactly what is decided about
    words   for people. They are no part of what is compared
    rule    of a site policy: the people whom it asks for. None: of anything else
    """

    kind: SubjectKind
    study: str
    sha256: str
    words: str
    rule: ApprovalRule | None = None

    @classmethod
    def of_policy(cls, policy: SitePolicy) -> Self:
        """Return the subject of a site policy."""
        return cls("policy", "", policy.digest(), "the site policy", policy.approval)

    @classmethod
    def of_question(cls, query: Query) -> Self:
        """Return the subject of a question to this hospital, about its model where it has one."""
        return cls("question", query.study, query.approved_digest, query.document.question.in_words())

    @property
    def has_one_in_force(self) -> bool:
        """Return whether a later one of its kind and study takes its place."""
        return self.kind in ("policy", "roster", "coordinator")

    def is_rival_of(self, subject: Subject) -> bool:
        """Return whether both are of one kind and study, and so one of them is in force at a time."""
        return (self.kind, self.study) == (subject.kind, subject.study)

    def __str__(self) -> str:
        return {
            "question": f"a question of study {self.study}",
            "terms": f"the terms of study {self.study}",
            "policy": "the site policy",
            "roster": f"the roster of study {self.study}",
            "coordinator": f"the coordinator's key of study {self.study}",
        }[self.kind]


@dataclass(frozen=True)
class Decision:
    """One entry: a person agreed, declined, or took an agreement back.

    number   of the entry
    sha256   of the entry, which its chain binds
    person   None: an earlier version did not record it
    at       time of the entry, UTC in ISO 8601
    earlier  name of an earlier version's approval in charges. None: it had none
    """

    number: int
    sha256: str
    subject: Subject
    verdict: Verdict
    person: Person | None
    at: str
    earlier: str | None = None

    @classmethod
    def from_body(cls, number: int, sha256: str, body: Mapping[str, Any]) -> Self:
        """Return the decision of an entry."""
        rule = None if body["rule"] is None else ApprovalRule.model_validate(body["rule"])
        subject = Subject(body["kind"], body["of"], body["sha256"], body["words"], rule)
        person = None if body["person"] is None else Person.from_dict(body["person"])
        return cls(number, sha256, subject, body["verdict"], person, body["at"], body.get("earlier"))

    @property
    def identity(self) -> str | None:
        """Return the name of this approval in charges. None: a very early version wrote it."""
        return self.earlier if self.person is None else self.sha256

    @property
    def person_in_words(self) -> str:
        """Return the person in words."""
        return NOT_RECORDED if self.person is None else str(self.person)
