"""The subjects that people at this hospital decide about, and their decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import ApprovalRule, SitePolicy

if TYPE_CHECKING:
    from study_protocol.study.queries import Query

NOT_RECORDED = "not recorded"

SubjectKind = Literal["question", "terms", "policy", "roster", "coordinator"]
Verdict = Literal["agree", "decline", "withdraw"]


class _SubjectPart(BaseModel):
    # A field that is not understood could change the meaning.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _AccountPart(_SubjectPart):
    identifier: str
    name: str


class _PersonPart(_SubjectPart):
    name: str
    role: str
    reason: str
    account: _AccountPart


class _DecisionBody(_SubjectPart):
    """The body of an entry."""

    study: str
    kind: SubjectKind
    of: str
    sha256: str
    words: str
    rule: ApprovalRule | None
    verdict: Verdict
    person: _PersonPart | None
    at: str
    earlier: str | None = None


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
    person: DecidingPerson | None
    at: str
    earlier: str | None = None

    @classmethod
    def from_body(cls, number: int, sha256: str, body: Mapping[str, Any]) -> Self:
        """Return the decision of an entry. Raises LedgerDamaged: this version knows no such decision."""
        try:
            entry = _DecisionBody.model_validate(dict(body))
            person = None if entry.person is None else DecidingPerson.from_dict(entry.person.model_dump())
        # Without their texts, which quote the entry.
        except (ValidationError, ConfigurationError):
            raise LedgerDamaged(
                f"entry {number} of decisions.db is no decision that this version knows. If a newer version wrote it, "
                "use that one. Else restore the file from the newest backup"
            ) from None
        subject = Subject(entry.kind, entry.of, entry.sha256, entry.words, entry.rule)
        return cls(number, sha256, subject, entry.verdict, person, entry.at, entry.earlier)

    @property
    def identity(self) -> str | None:
        """Return the name of this approval in charges. None: a very early version wrote it."""
        return self.earlier if self.person is None else self.sha256

    @property
    def person_in_words(self) -> str:
        """Return the person in words."""
        return NOT_RECORDED if self.person is None else str(self.person)
