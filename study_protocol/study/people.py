"""Messages about people at the coordinator: their API keys, logins and sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from study_protocol.study.roles import Role
from study_protocol.wire.text import Text, visible
from study_protocol.wire.values import Message, Name, Sha256, Whole

MAX_DAYS = 1096
DEFAULT_DAYS = 365
# The length is that of the trimmed name.
PersonName = Annotated[
    Text,
    AfterValidator(visible),
    Field(min_length=1, max_length=100, json_schema_extra={"minLength": 1, "maxLength": 100}),
]


class ApiKeyCreate(Message):
    """A key for one person. It is shown once."""

    role: Role = Field(description="what its holder may do")
    study: Name | None = Field(
        default=None, description="the study it is for, also one that does not exist yet. Null: all"
    )
    name: PersonName = Field(description="the person who holds it. Audit log and ledger show it")
    expires_in_days: Whole = Field(default=DEFAULT_DAYS, ge=1, le=MAX_DAYS, description="days until it opens nothing")

    @model_validator(mode="after")
    def _administers_all(self) -> ApiKeyCreate:
        if self.role == "administrator" and self.study is not None:
            raise ValueError("an administrator has no study: leave study out, or choose the role lead")
        return self


class GivenKey(ApiKeyCreate):
    """A key as the audit log names it."""

    id: str = Field(description="the middle part of the key")
    secret_sha256: Sha256 = Field(description="of the last part of the key")


class ApiKeyView(Message):
    """A key. `key` (`wrk_<id>_<secret>`) is shown once."""

    id: str = Field(description="the middle part of the key")
    role: Role = Field(description="what its holder may do")
    study: str | None = Field(description="in which study. Null: in all")
    name: Text = Field(description="the person who holds it")
    key: str | None = Field(description="shown once, null in lists")
    secret_sha256: Sha256 = Field(description="of the last part of the key, as the audit log has it")
    created_at: AwareDatetime = Field(description="when it was made")
    expires_at: datetime | None = Field(description="from when on it opens nothing. Null: made before keys expired")
    revoked_at: datetime | None = Field(description="when it was revoked")


class ApiKeyList(Message):
    """Keys in the order in which they were made."""

    keys: list[ApiKeyView] = Field(description="in order of their making")


class GrantView(Message):
    """A role of a person."""

    role: Role = Field(description="what the person may do")
    study: str | None = Field(description="in which study. Null: in all")


class PersonView(Message):
    """The person who asks."""

    kind: Literal["key", "session"] = Field(description="known by an API key, or by a login at the identity provider")
    name: Text = Field(description="as audit log and ledger show it")
    grants: list[GrantView] = Field(description="roles of the person")
    csrf_token: str | None = Field(
        description="for a session in a browser's cookie: to be sent as X-CSRF-Token with each request that changes "
        "something. Null otherwise"
    )


class PersonSession(Message):
    """A session of a person who logged in. `token` (`wrs_<id>_<secret>`) is shown once."""

    id: str = Field(description="the middle part of the token")
    subject: Text = Field(description="the person's lasting id at the identity provider")
    name: Text = Field(description="the person, as the identity provider says")
    grants: list[GrantView] = Field(description="roles that the person's groups give now")
    token: str | None = Field(description="shown once, null in lists")
    created_at: AwareDatetime = Field(description="when the person logged in")
    expires_at: AwareDatetime = Field(description="from when on it opens nothing")


class PersonSessions(Message):
    """Sessions that have not expired, in the order of their logins."""

    sessions: list[PersonSession] = Field(description="in order of their logins")


class LoggedOut(Message):
    """A session that its person has ended."""

    logout_address: str | None = Field(description="where a browser logs out at the identity provider, too. Null: none")


class LoginBegun(Message):
    """A login from the command line. The person opens `verification_uri` and writes `user_code` there."""

    token: str = Field(description="`wrl_<id>_<secret>`, with which to ask whether the person has logged in")
    user_code: str = Field(description="what the person writes at the identity provider")
    verification_uri: str = Field(description="the identity provider's page")
    verification_uri_complete: str | None = Field(description="the same page with the code in it. Null: none")
    retry_after_seconds: float = Field(description="when to ask")
    expires_at: AwareDatetime = Field(description="until when the person has to log in")


class LoginPoll(Message):
    """A question whether a person has logged in."""

    token: str = Field(min_length=1, max_length=200, description="as the begun login has it")


class LoginState(Message):
    """How a login from the command line stands."""

    session: PersonSession | None = Field(description="with its token. Null: the person has not logged in yet")
    retry_after_seconds: float | None = Field(description="when to ask again. Null: the person has logged in")
