"""Tokens of people: `<prefix>_<id>_<secret>`. The id is public, and only the hash of the secret is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from server.services.coordinator import Coordinator

_ID = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True)
class NewToken:
    """A token that is shown once. text: the whole of it."""

    id: str
    text: str
    secret_sha256: str


def new_token(coordinator: Coordinator, prefix: str) -> NewToken:
    """Return a token that was never given before."""
    id, secret = coordinator.coins.token(8).hex(), coordinator.coins.token(32).hex()
    return NewToken(id, f"{prefix}_{id}_{secret}", _hashed(secret))


def id_of(token: str, prefix: str) -> str | None:
    """Return the public part, or None for another kind of token, or for one that was never given."""
    kind, _, rest = token.partition("_")
    id = rest.partition("_")[0]
    # A database is not asked for texts that it cannot hold: one such question fails those of others beside it.
    return id if kind == prefix and _ID.fullmatch(id) else None


def is_secret_of(token: str, secret_sha256: object) -> bool:
    """Return whether the token holds the secret, in the same time for every token. None fits no token."""
    secret = token.partition("_")[2].partition("_")[2]
    # As text: the column may hold any value.
    return hmac.compare_digest(_hashed(secret).encode(), str(secret_sha256 or "").encode(errors="replace"))


def _hashed(secret: str) -> str:
    # A 256-bit random secret needs no slow hash.
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
