"""Messages about people at the coordinator: their API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

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
