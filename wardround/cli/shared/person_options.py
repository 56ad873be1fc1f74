"""The options --as, --role and --reason of every command by which a person decides for a hospital."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from client_sdk.guard.people import DecidingPerson

As = Annotated[
    str | None, typer.Option("--as", help="your name. Default: your account, which is kept beside it anyway")
]
Role = Annotated[str, typer.Option("--role", help="your role here, for example privacy officer")]
Reason = Annotated[str, typer.Option("--reason", help="why, in a sentence. It stays here")]
_ARGUMENT = "person"


@dataclass(frozen=True)
class PersonOptions:
    """A person's own words about themselves. name: None is the account of the operating system."""

    name: str | None = None
    role: str = ""
    reason: str = ""

    def acting(self) -> DecidingPerson:
        """Return the person. Raises ConfigurationError: a name, role or reason is not valid."""
        from client_sdk.guard.people import DecidingPerson

        return DecidingPerson.acting(self.name, self.role, self.reason)

    def attending(self, *, is_asked: bool) -> DecidingPerson | None:
        """Return the person who has a name or is asked at a terminal, or None: an unattended program. Raises likewise.

        Otherwise one person could agree twice: by hand, and by a service that agrees without a question.
        """
        person = self.acting()
        return person if is_asked or self.name is not None else None


def with_person(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the three options, which it takes as one argument `person: PersonOptions`."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    typed = [each.replace(annotation=hints[each.name]) for each in parameters if each.name != _ARGUMENT]
    defaults: dict[str, tuple[Any, Any]] = {"as_name": (As, None), "role": (Role, ""), "reason": (Reason, "")}
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, keyword, annotation=kind, default=value) for name, (kind, value) in defaults.items()
    ]

    @functools.wraps(command)
    def with_options(*, as_name: str | None = None, role: str = "", reason: str = "", **arguments: Any) -> None:
        command(**arguments, person=PersonOptions(as_name, role, reason))

    with_options.__annotations__ = {each.name: each.annotation for each in (*typed, *options)}
    with_options.__dict__["__signature__"] = inspect.Signature([*typed, *options])
    # Otherwise the signature of the command itself is read.
    del with_options.__dict__["__wrapped__"]
    return with_options
