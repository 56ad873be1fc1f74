"""Who asks: an operator with a key, or a hospital with its signature on every request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import ConfigurationError
from client_sdk.protocol.wire.signing import request_token


class Credentials(Protocol):
    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        """The Authorization header of one attempt at one request."""
        ...


class OperatorKey:
    """`wrk_<id>_<secret>`; its repr shows the id alone.

    Raises:
        ConfigurationError: not of that form.
    """

    def __init__(self, key: str) -> None:
        parts = key.split("_", 2)
        if len(parts) != 3 or parts[0] != "wrk" or not parts[1] or not parts[2] or not key.isascii():
            raise ConfigurationError("an operator key has the form wrk_<id>_<secret>")
        self._key, self.id = key, parts[1]

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        return f"Bearer {self._key}"

    def __repr__(self) -> str:
        return f"OperatorKey(wrk_{self.id}_***)"


@dataclass(frozen=True)
class Signature:
    """A hospital's own signature. `origin` is the coordinator's public origin, whatever address is dialled."""

    key: Ed25519PrivateKey = field(repr=False)
    client: str
    study: str
    origin: str

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        token = request_token(
            self.key,
            client=self.client,
            study=self.study,
            audience=self.origin,
            method=method,
            url=self.origin + target,
            body_sha256=hashlib.sha256(body).hexdigest(),
            now=now,
            token_id=token_id,
        )
        return f"Bearer {token}"
