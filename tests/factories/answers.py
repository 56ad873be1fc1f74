"""A client whose coordinator answers from a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api.client import Client, Signature
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from tests.factories.coordinator_in_process import ORIGIN

# Not ORIGIN: what is dialled and what is signed may differ.
CONNECTION = Connection(url="https://dialled.example", patience_seconds=100.0)


ROSTER = {"study": "sepsis", "members": [], "fingerprint": "0" * 64}


KEY = Ed25519PrivateKey.generate()


MERCY = Signature(KEY, "mercy", "sepsis", ORIGIN)


Answerer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answerer, credentials: Any = MERCY, **options: Any) -> tuple[Client, list[float]]:
    slept: list[float] = []
    transport = Transport(CONNECTION, handler=httpx.MockTransport(answer))
    return Client(CONNECTION, credentials, transport=transport, sleep=slept.append, **options), slept


def script(*answers: httpx.Response | type[Exception]) -> tuple[Answerer, list[httpx.Request]]:
    """One answer after another; the last one for ever."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        given = answers[min(len(seen), len(answers)) - 1]
        if isinstance(given, httpx.Response):
            # A new one each time: httpx reads a response once.
            return httpx.Response(given.status_code, content=given.content, headers=given.headers)
        raise given("network")

    return answer, seen


def claims(request: httpx.Request) -> dict[str, Any]:
    token = request.headers["authorization"].removeprefix("Bearer ")
    return jwt.decode(token, KEY.public_key(), algorithms=["EdDSA"], audience=ORIGIN)


GOOD = httpx.Response(200, json=ROSTER)
