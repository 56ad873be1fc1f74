"""A person who asks the coordinator, known by an API key or by a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from study_protocol.study.audit_log import Actor
from study_protocol.study.roles import Grant, Role, acting_role, roles_in


@dataclass(frozen=True)
class Person:
    """The holder of a valid API key or session.

    id       public part of the key or the session
    grants   roles of this person. A key gives one
    subject  of a session: the person's lasting id at the identity provider
    """

    id: str
    name: str
    grants: tuple[Grant, ...]
    kind: Literal["key", "session"] = "key"
    subject: str = ""

    @property
    def lane(self) -> str:
        """Return the holder's name among callers. No study has a name that begins like this."""
        return f"_{self.id}"

    @property
    def studies(self) -> frozenset[str] | None:
        """The studies in which this person has a role. None: all."""
        studies = frozenset(grant.study for grant in self.grants if grant.study is not None)
        return None if any(grant.study is None for grant in self.grants) else studies

    def roles_in(self, study: str | None) -> frozenset[Role]:
        """Return the roles in a study. study: None for what belongs to no study."""
        return roles_in(self.grants, study)

    def acting_as(self, operation: str, study: str | None) -> Actor:
        """Return this person as the audit log names it when it calls an operation that it may call."""
        role = acting_role(self.grants, operation, study)
        return Actor(kind=self.kind, id=self.subject or self.id, name=self.name, role=role)
