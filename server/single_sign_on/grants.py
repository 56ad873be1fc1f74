"""The file that maps groups of the identity provider to roles: `[[grant]]` with group, role and study."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from server.single_sign_on.errors import SingleSignOnMisconfigured
from study_protocol.study.roles import Grant, Role
from study_protocol.wire.values import NAME_PATTERN
from study_protocol.wire.written import Unreadable, read_toml
from study_protocol.wire.wrong_entries import wrong_entries


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


class GrantsFile(BaseModel):
    """The entries of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    grant: list[GroupGrant] = Field(min_length=1)


def load_group_grants(path: Path) -> tuple[GroupGrant, ...]:
    """Return the grants of a TOML file in its order.

    Raises:
        SingleSignOnMisconfigured: the file cannot be read, or an entry is wrong. The text names the file and the
            entry's number.
    """
    try:
        return tuple(GrantsFile.model_validate(read_toml(path.read_bytes())).grant)
    except OSError as error:
        raise SingleSignOnMisconfigured(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = "; ".join(map(_phrase, wrong_entries(error, GrantsFile)))
        raise SingleSignOnMisconfigured(f"{path}: {problems}") from error
    except Unreadable as error:
        raise SingleSignOnMisconfigured(f"{path}: {error}") from error


def _phrase(line: str) -> str:
    """Return the line with the number that a person counts for an entry, or with the form of the file."""
    entry = re.match(r"grant\.(\d+)[.:] ?", line)
    if entry is None:
        return f"write tables [[grant]] and nothing else. {line}"
    return f"grant {int(entry[1]) + 1}: {line[entry.end() :]}"


def grants_of_groups(grants: Iterable[GroupGrant], groups: Iterable[str]) -> tuple[Grant, ...]:
    """Return what a member of these groups may do. Groups are compared letter by letter."""
    members = frozenset(groups)
    return tuple(dict.fromkeys(Grant(each.role, each.study) for each in grants if each.group in members))
