"""The coordinator's whole HTTP side: any body, query and header of a member, an operator or a stranger."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from fastapi.routing import APIRoute

from server.app import ROUTERS, create_app
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.services.people.keys import create_key
from study_protocol.study.people import ApiKeyCreate
from study_protocol.wire.signing import request_token
from tests.harness.fuzzing import example_study
from tests.harness.fuzzing.target import Target

_ORIGIN = "https://study.example.org"
_NAMES = {"study": "sepsis", "client": "mercy", "round": "1", "number": "1", "version": "1", "id": "a" * 16}
# Streams that end only after a while, and pages that read no input.
_SKIPPED = re.compile(r"/events|/static|/docs|/reference|/openapi")


@dataclass(frozen=True)
class _Requests:
    """A coordinator in this process, its addresses and an operator's key."""

    http: httpx.AsyncClient
    loop: asyncio.Runner
    routes: tuple[tuple[str, str], ...]
    operator_key: str

    def send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Send one request and return the answer's status."""
        return self.loop.run(self.http.request(method, target, content=body, headers=headers)).status_code


@cache
def _requests() -> _Requests:
    settings = Settings(home=Path(tempfile.mkdtemp(prefix="wardround-fuzz-")), origin=_ORIGIN, worker=False)
    prepare(settings)
    coordinator = open_coordinator(settings)
    key = create_key(coordinator, ApiKeyCreate(role="administrator", name="fuzz")).key
    assert key is not None
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    targets = sorted((method, _filled(route.path)) for route in routes for method in route.methods or ())
    # An exception that no handler turns into an answer is raised here.
    transport = httpx.ASGITransport(create_app(settings, coordinator=coordinator))
    addresses = tuple(pair for pair in targets if not _SKIPPED.search(pair[1]))
    requests = _Requests(httpx.AsyncClient(transport=transport, base_url=_ORIGIN), asyncio.Runner(), addresses, key)
    created = {"study": "sepsis", "title": "t", "settings": example_study.settings().as_json()}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    assert requests.send("POST", "/v1/studies", json.dumps(created).encode(), headers) == 201
    return requests


def _filled(path: str) -> str:
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: _NAMES.get(match[1], "1"), path)


def _parse_request(data: bytes) -> None:
    """Send a request. The first byte chooses the address, the second who asks, the first line is the query."""
    requests = _requests()
    head, _, body = data[2:].partition(b"\n")
    method, target = requests.routes[(data[0] if data else 0) % len(requests.routes)]
    query = re.sub(r"[^!-~]", "", head.decode("latin-1")).replace("#", "")
    # No waiting for news: it would be idle time.
    target = f"{target}?{query}&wait=0" if query else f"{target}?wait=0"
    headers = {"Authorization": f"Bearer {_credentials(data[1] if len(data) > 1 else 0, method, target, body)}"}
    if data[1:2] >= b"\x80":
        headers["Content-Type"] = "application/json"
    status = requests.send(method, target, body, headers)
    # 503: not ready, or too much under way.
    assert status < 500 or status == 503, f"{method} {target}: {status}"


def _credentials(choice: int, method: str, target: str, body: bytes) -> str:
    if choice % 3 == 0:
        return _requests().operator_key
    if choice % 3 == 1:
        return body.decode("latin-1").encode("ascii", "replace").decode()[:2000].replace("\n", "").replace("\r", "")
    return request_token(
        example_study.KEY,
        client="mercy",
        study="sepsis",
        audience=_ORIGIN,
        method=method,
        url=_ORIGIN + target,
        body_sha256=hashlib.sha256(body).hexdigest(),
        now=time.time(),
        token_id=hashlib.sha256(body + method.encode()).hexdigest()[:32],
    )


def _seeds() -> Iterable[bytes]:
    bodies: dict[str, Any] = dict(example_study.messages())
    for number, (method, _) in enumerate(_requests().routes):
        if method not in ("GET", "HEAD"):
            for body in bodies.values():
                yield bytes([number, 0x80]) + b"\n" + body
        yield bytes([number, 2]) + b"after=1&limit=2\n"


TARGETS: Mapping[str, Target] = {"coordinator": Target(_parse_request, (), _seeds, seconds=30)}
