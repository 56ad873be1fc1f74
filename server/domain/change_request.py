"""A change that a person or a hospital asks for, as the audit log keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from study_protocol.study.audit_log import Actor
from study_protocol.study.people import GivenKey


@dataclass(frozen=True)
class ChangeRequest:
    """A request under way.

    study        the log that it belongs to. None: the coordinator's
    action       operation of the API, or a command
    body_sha256  None: the body is streamed, or there is none
    key          that is made
    session      id of the session that asks. None: no session asks, or it begins by this
    """

    actor: Actor
    study: str | None
    action: str
    address: str = ""
    request_id: str = ""
    body_sha256: str | None = None
    key: GivenKey | None = None
    session: str | None = None
