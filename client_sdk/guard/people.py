"""The people at this hospital who decide: name, role and reason, and the account of the operating system beside them.

How many people have agreed is counted by name and, where the site policy wants it, by account.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from client_sdk.errors import ConfigurationError
from study_protocol.wire.text import visible

MAX_NAME_LENGTH, MAX_REASON_LENGTH = 100, 500
_LOGIN_UID_FILE = Path("/proc/self/loginuid")
# An unset login user, as the kernel writes it.
_UNSET_UIDS = (-1, 2**32 - 1)
_LIST_MARKS = re.compile(r"[()\[\]{};]")


@dataclass(frozen=True)
class SystemAccount:
    """An account of the operating system.

    identifier  number of the user, or on Windows the name. Accounts are compared by it
    name        for people. Empty where the machine knows no name, as in many containers
    """

    identifier: str
    name: str = ""

    @classmethod
    def current(cls) -> Self:
        """Return the account that logged in or, where no login is known, the one that this process runs under.

        The kernel tells it. Variables such as USER and SUDO_USER are not read, because each person can set them.
        """
        if os.name == "nt":
            return cls(os.getlogin().casefold(), os.getlogin())
        # Linux keeps the login user through `sudo` and `su`, so that people who share an account stay apart.
        uid = _login_uid()
        uid = os.getuid() if uid is None else uid
        return cls(str(uid), _user_name(uid))

    def __str__(self) -> str:
        return self.name or f"user {self.identifier}"


@dataclass(frozen=True)
class DecidingPerson:
    """A person who decides for this hospital.

    name     1 to 100 visible characters without brackets and semicolons, kept in the form NFC
    role     such as "privacy officer", in free words of at most 100 characters. Empty: not given
    reason   free words of at most 500 characters. Empty: not given
    account  of the operating system. A given name does not replace it

    Raises:
        ConfigurationError: the name, the role or the reason has other characters or is too long.
    """

    name: str
    role: str = ""
    reason: str = ""
    account: SystemAccount = field(default_factory=SystemAccount.current)

    def __post_init__(self) -> None:
        # A reason may be pasted with line ends.
        reason = " ".join(self.reason.split())
        object.__setattr__(self, "name", _title(self.name, "name"))
        object.__setattr__(self, "role", _title(self.role, "role") if self.role else "")
        object.__setattr__(self, "reason", _visible(reason, "reason", MAX_REASON_LENGTH) if reason else "")

    @classmethod
    def acting(cls, name: str | None = None, role: str = "", reason: str = "") -> Self:
        """Return the person who runs this process. name: None is the name of the account."""
        account = SystemAccount.current()
        default = _LIST_MARKS.sub("_", str(account))
        return cls(default if name is None else name, role, reason, account)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """Return the person of an entry."""
        account = SystemAccount(body["account"]["identifier"], body["account"]["name"])
        return cls(body["name"], body["role"], body["reason"], account)

    def to_dict(self) -> dict[str, Any]:
        """Return the body of an entry."""
        account = {"identifier": self.account.identifier, "name": self.account.name}
        return {"name": self.name, "role": self.role, "reason": self.reason, "account": account}

    @property
    def key(self) -> str:
        """Return the form in which names are compared: compatibility caseless matching of Unicode, one blank a gap."""
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFD", self.name).casefold())
        return " ".join(unicodedata.normalize("NFKC", folded.casefold()).split())

    def is_same(self, person: DecidingPerson) -> bool:
        """Return whether both have one name and one account."""
        return self.key == person.key and self.account.identifier == person.account.identifier

    def __str__(self) -> str:
        role = f", {self.role}" if self.role else ""
        return f"{self.name} (account {self.account}{role})"


def count_people(people: Iterable[DecidingPerson], *, distinct_accounts: bool) -> int:
    """Return how many different people these are.

    One name is one person. With `distinct_accounts` one account is one person, too, also under several names.
    """
    groups: list[set[str]] = []
    for person in people:
        marks = {f"name {person.key}", *([f"account {person.account.identifier}"] if distinct_accounts else [])}
        linked = [group for group in groups if group & marks]
        groups = [group for group in groups if not group & marks] + [marks.union(*linked)]
    return len(groups)


def _title(text: str, subject: str) -> str:
    """Return a name or a role as `_visible`, which cannot imitate an account or a second person in a list."""
    title = _visible(text, subject, MAX_NAME_LENGTH)
    # Wide and small forms look alike.
    if mark := _LIST_MARKS.search(unicodedata.normalize("NFKC", title)):
        raise ConfigurationError(f"a person's {subject} has no {mark.group()!r}: leave it out")
    return title


def _visible(text: str, subject: str, max_length: int) -> str:
    """Return the text with one blank a gap and in the form NFC. Raises ConfigurationError as `DecidingPerson`."""
    try:
        plain = visible(text)
    except ValueError as error:
        raise ConfigurationError(f"a person's {subject} {error}") from error
    if len(plain) > max_length:
        raise ConfigurationError(f"a person's {subject} has 1 to {max_length} characters, and {len(plain)} were given")
    return plain


def _login_uid() -> int | None:
    try:
        uid = int(_LOGIN_UID_FILE.read_text())
    except (OSError, ValueError):
        return None
    return None if uid in _UNSET_UIDS else uid


def _user_name(uid: int) -> str:
    # Absent from Windows, and an image without a list of users has no entry.
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return ""
