"""The person of a token: the holder of an API key or of a session."""

from __future__ import annotations

from collections.abc import Sequence

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people import keys, sessions
from server.services.people.person import Person

PREFIXES = (f"{keys.PREFIX}_", f"{sessions.PREFIX}_")


def authenticate(coordinator: Coordinator, token: str) -> Person:
    """Return the person of a key or a session. Raises Rejected `bad-token`."""
    if token.startswith(f"{sessions.PREFIX}_"):
        return sessions.authenticate_session(coordinator, token)
    return keys.authenticate(coordinator, token)


def authenticate_each(coordinator: Coordinator, tokens: Sequence[str]) -> list[Person | Exception]:
    """As `authenticate`, of several tokens in their order."""

    def authenticate_one(token: str) -> Person | Exception:
        try:
            return authenticate(coordinator, token)
        except Rejected as rejected:
            return rejected

    return [authenticate_one(token) for token in tokens]


def require_valid(coordinator: Coordinator, person: Person) -> None:
    """Raises Rejected `bad-token` once the person's key or session has ended, or gives other roles."""
    if person.kind == "session":
        sessions.require_session(coordinator, person)
    else:
        keys.require_key(coordinator, person)
