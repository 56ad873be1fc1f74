"""The file that maps groups of the identity provider to roles: `[[grant]]` with group, role and study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from server.single_sign_on.errors import SingleSignOnMisconfigured
from study_protocol.wire.values import NAME_PATTERN
from study_protocol.wire.written import Unreadable, read_toml

Role = Literal["administrator", "lead", "asker", "viewer", "auditor"]


class GroupGrant(BaseModel):
    """Members of a group have a role. study: None for all studies."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    group: str = Field(min_length=1, max_length=256)
    role: Role
    study: str | None = Field(default=None, pattern=NAME_PATTERN)

    @model_validator(mode="after")
    def _can_be_given(self) -> Self:
        if not self.group.isprintable() or self.group != self.group.strip():
            raise ValueError("write the group as the provider names it, without spaces around it")
        if self.role == "administrator" and self.study is not None:
            raise ValueError("an administrator runs all studies: leave study out, or write the role lead")
        return self


def load_group_grants(path: Path) -> tuple[GroupGrant, ...]:
    """Return the grants of a TOML file in its order.

    Raises:
        SingleSignOnMisconfigured: the file cannot be read, or an entry is wrong. The text names the file and the
            entry's number.
    """
    try:
        content = read_toml(path.read_bytes())
    except OSError as error:
        raise SingleSignOnMisconfigured(f"{path} cannot be read: {error.strerror}") from error
    except Unreadable as error:
        raise SingleSignOnMisconfigured(f"{path}: {error}") from error
    unknown = sorted(content.keys() - {"grant"})
    entries = content.get("grant")
    if unknown or not isinstance(entries, list) or not entries:
        raise SingleSignOnMisconfigured(f"{path}: write one or more tables [[grant]] and nothing else")
    return tuple(_read_entry(path, number, entry) for number, entry in enumerate(cast(list[Any], entries), start=1))


def _read_entry(path: Path, number: int, entry: Any) -> GroupGrant:
    try:
        return GroupGrant.model_validate(entry)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc'])) or 'entry'}: {each['msg'].removeprefix('Value error, ')}"
            for each in error.errors(include_input=False, include_url=False)
        ]
        raise SingleSignOnMisconfigured(f"{path}: grant {number}: {', '.join(problems)}") from error


def grants_of_groups(grants: Iterable[GroupGrant], groups: Iterable[str]) -> tuple[GroupGrant, ...]:
    """Return the grants that a member of these groups has. Groups are compared letter by letter."""
    members = frozenset(groups)
    return tuple(grant for grant in grants if grant.group in members)
