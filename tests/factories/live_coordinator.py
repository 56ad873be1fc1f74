"""A coordinator on a real socket, and callers that sign as hospitals and operators do."""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from fastapi import FastAPI

from server.api.watcher import Watcher
from server.app import CoordinatorServer, create_app, server_config
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.db.session import Database, DatabaseClock
from server.domain.change_request import ChangeRequest
from server.services.coordinator import Coordinator, Written
from server.services.people.audit import acting
from server.services.people.keys import create_key
from server.worker import Worker
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins, Randomness
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.audit_log import Actor
from study_protocol.study.messages import Assignment, EnrolmentRequest, Refusal, UpdateReceipt
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.versions import PROTOCOL, PROTOCOL_HEADER, VERSION_HEADER, program_version
from study_protocol.wire.signing import request_token
from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL, Hospital
from tests.factories.settings import settings as study_settings

# Clients sign the public origin, which is not where the socket is.
ORIGIN = "https://study.example.org"
# Headers with which this version enrols.
PROGRAM = {VERSION_HEADER: program_version(), PROTOCOL_HEADER: str(PROTOCOL)}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """(status, code) of an answer that is a problem document."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


@dataclass
class Live:
    """One running coordinator. `skew` is added to the clock that judges request tokens; time_of_day replaces it."""

    url: str
    home: Path
    coordinator: Coordinator
    operator_key: str
    viewer_key: str
    http: httpx.Client
    watcher: Watcher
    skew: float = 0.0
    time_of_day: DatabaseClock | None = None

    def now(self) -> float:
        """What an honest hospital's clock says."""
        return time.time() if self.time_of_day is None else self.time_of_day.now()

    def clock(self) -> float:
        return self.now() + self.skew

    def send(self, method: str, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.http.request(method, path, headers=headers, **options)

    def connect(self) -> socket.socket:
        """A bare connection, for what no HTTP library would send."""
        address = urlsplit(self.url)
        return socket.create_connection((address.hostname or "", address.port or 0), timeout=30)

    def operator(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.send(method, path, self.operator_key, **options)

    def token(self, who: Hospital, method: str, path: str, body: bytes = b"", **changes: Any) -> str:
        """A request token as a hospital signs it; `changes` replace what it says."""
        said: dict[str, Any] = {
            "client": who.name,
            "study": who.study,
            "audience": ORIGIN,
            "method": method,
            "url": ORIGIN + path,
            "body_sha256": hashlib.sha256(body).hexdigest(),
            "now": self.now(),
        }
        return request_token(who.key, **said | changes)

    def signed(
        self,
        who: Hospital,
        method: str,
        path: str,
        body: bytes = b"",
        media_type: str = "application/json",
        more: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> httpx.Response:
        headers = ({"Content-Type": media_type} if body else {}) | dict(more or {})
        return self.send(method, path, self.token(who, method, path, body, **changes), content=body, headers=headers)

    def put_update(self, who: Hospital, round: int, body: bytes, **changes: Any) -> httpx.Response:
        path = f"/v1/studies/{who.study}/rounds/{round}/updates/{who.name}"
        return self.signed(who, "PUT", path, body, "application/octet-stream", **changes)

    def open_study(self, study: str, settings: AnySettings | None = None, *, model: bool = True) -> None:
        chosen = settings or study_settings()
        created = self.operator("POST", "/v1/studies", json={"study": study, "settings": chosen.as_json()})
        assert created.status_code == 201, created.text
        if model:
            stored = self.operator("PUT", f"/v1/studies/{study}/models/0", content=encode(MODEL))
            assert stored.status_code == 201, stored.text

    def invite(self, study: str, name: str) -> str:
        answer = self.operator("POST", f"/v1/studies/{study}/invitations", json={"client": name})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def enrolment(self, who: Hospital, token: str) -> dict[str, str]:
        return who.enrolment(token).model_dump(mode="json")

    def hospital(self, study: str, name: str) -> Hospital:
        """A double that speaks HTTP; not enrolled."""
        return Hospital(OverHttp(self), study, name)

    def enrol(self, study: str, name: str) -> Hospital:
        return self.hospital(study, name).enrol()

    def running(self, study: str, *names: str, settings: StudySettings | None = None) -> list[Hospital]:
        """A study in its first round with these hospitals."""
        self.open_study(study, settings)
        hospitals = [self.enrol(study, name) for name in names]
        assert self.operator("POST", f"/v1/studies/{study}/start").status_code == 200
        self.work()
        return hospitals

    def work(self) -> None:
        """Let the worker do everything that is due."""
        worker = Worker(self.coordinator)
        while worker.step():
            pass


@dataclass(frozen=True)
class OverHttp:
    """A hospital's way through the coordinator's API; whatever is not accepted is a failure of the test."""

    here: Live

    def invite(self, study: str, client: str) -> str:
        return self.here.invite(study, client)

    def enrol(self, request: EnrolmentRequest) -> None:
        answer = self.here.send("POST", "/v1/enrolments", json=request.model_dump(mode="json"), headers=PROGRAM)
        assert answer.status_code == 201, answer.text

    def assignment(self, who: Hospital) -> Assignment | None:
        answer = self.here.signed(who, "GET", f"/v1/studies/{who.study}/assignment")
        assert answer.status_code in (200, 204), answer.text
        return Assignment.model_validate_json(answer.content) if answer.status_code == 200 else None

    def send(self, who: Hospital, round: int, body: bytes) -> Written[UpdateReceipt]:
        answer = self.here.put_update(who, round, body)
        assert answer.status_code in (200, 201), answer.text
        return Written(UpdateReceipt.model_validate_json(answer.content), created=answer.status_code == 201)

    def refuse(self, who: Hospital, round: int, refusal: Refusal) -> Written[Refusal]:
        path = f"/v1/studies/{who.study}/rounds/{round}/refusals/{who.name}"
        answer = self.here.signed(who, "PUT", path, refusal.model_dump_json().encode())
        assert answer.status_code in (200, 201), answer.text
        return Written(Refusal.model_validate_json(answer.content), created=answer.status_code == 201)


def described(document: dict[str, Any]) -> Callable[[httpx.Response], None]:
    """Asserts that a problem is one that the OpenAPI document lists for the operation that was asked."""
    templates = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), found) for path, found in document["paths"].items()]

    def check(answer: httpx.Response) -> None:
        if answer.headers.get("content-type") != "application/problem+json" or answer.status_code == 405:
            return
        address, method = answer.request.url.path, answer.request.method.lower()
        operation = next((found.get(method) for path, found in templates if path.fullmatch(address)), None)
        if operation is not None:
            listed = operation["responses"][str(answer.status_code)]["content"]["application/problem+json"]
            answer.read()
            assert answer.json()["code"] in listed["examples"], f"{operation['operationId']}: {answer.text}"

    return check


_CHECKS: list[Callable[[httpx.Response], None]] = []


def _check_of(app: FastAPI) -> Callable[[httpx.Response], None]:
    """`described` of any coordinator: all have the same operations, and to list them takes most of a start."""
    if not _CHECKS:
        _CHECKS.append(described(app.openapi()))
    return _CHECKS[0]


@contextmanager
def live(
    home: Path, *, time_of_day: DatabaseClock | None = None, randomness: Randomness | None = None, **settings: Any
) -> Iterator[Live]:
    """A coordinator under `home` on a free port; its worker moves only when asked.

    time_of_day  stands for everybody's clock: the database's, by which deadlines pass, and the one of request tokens
    randomness   of its coins and noise; None: cryptographic, as in service
    """
    # No worker inside: a test decides what has happened before it looks.
    ours: dict[str, Any] = {"home": home, "origin": ORIGIN, "port": 0, "worker": False, "watch_seconds": 0.02}
    chosen = Settings.model_validate(ours | settings)
    prepare(chosen)
    coordinator = open_coordinator(chosen)
    if time_of_day is not None:
        coordinator.database.dispose()
        coordinator = replace(coordinator, database=Database(chosen.database(), clock=time_of_day))
    if randomness is not None:
        coins, noise = AddressedCoins(randomness), DiscreteGaussianNoise(randomness)
        coordinator = replace(coordinator, coins=coins, noise=noise)
    # As on the machine, with an entry in the audit log.
    machine = acting(coordinator, ChangeRequest(Actor(kind="machine", name="root"), None, "create_key"))
    keys = [create_key(machine, ApiKeyCreate(role=role, name="Ada")).key or "" for role in ("administrator", "viewer")]
    # The app wants its clock before there is a `Live` whose skew it could read.
    here: list[Live] = []
    app = create_app(chosen, coordinator=coordinator, clock=lambda: here[0].clock())
    server = CoordinatorServer(server_config(app, chosen), app.state.context.watcher)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        # A proxy of this machine must not stand between the tests and their own socket.
        hooks: dict[str, list[Any]] = {"response": [_check_of(app)]}
        # No connection is kept: a pool that threads share may close one that another thread has just begun to use.
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(base_url=url, timeout=30, trust_env=False, event_hooks=hooks, limits=limits) as http:
            here.append(Live(url, home, coordinator, *keys, http, app.state.context.watcher, time_of_day=time_of_day))
            yield here[0]
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
        assert not thread.is_alive(), "the server does not stop"
        coordinator.database.dispose()
