"""A coordinator on a real socket, and callers that sign as hospitals and operators do."""

from __future__ import annotations

import hashlib
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.protocol.study.messages import OperatorKeyCreate
from client_sdk.protocol.wire.signing import ENROLMENT, encode_public_key, request_token, sign_document
from client_sdk.protocol.wire.tensors import UPDATE, encode
from server.app import CoordinatorServer, create_app
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.db.session import Clock, Database
from server.services.coordinator import Coordinator
from server.services.studies.operators import create_key
from server.worker import Worker

# Clients sign the public origin, which is not where the socket is.
ORIGIN = "https://study.example.org"
MODEL = {"weight": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float32)}


def settings_of(**privacy: Any) -> dict[str, Any]:
    """A small study: classical limit at instance level, every client in every round."""
    chosen: dict[str, Any] = {
        "scheme": "parallel",
        "limits": [{"level": "instance", "definition": "classical", "epsilon": 8.0, "delta": 1e-5}],
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "sampling_rate": 0.1,
        "expected_batch_size": 10.0,
        "client_sampling_rate": 1.0,
        "expected_clients": 2.0,
        "max_steps": 50,
        "classical_order": 8.0,
        "bayesian": None,
        "disclosure": "plain",
        "masking": None,
        "client_clip_norm": None,
        "histogram_noise": None,
        "accounting_sample": None,
    }
    return {
        "training": {"task": "logistic", "algorithm": "fedsgd", "local_steps": 1},
        "privacy": chosen | privacy,
        "schedule": {"min_clients": 2, "round_deadline_seconds": 600.0},
    }


def update_body(value: float = 0.01) -> bytes:
    """An update of the shapes of `MODEL`."""
    return encode({UPDATE + name: np.full_like(array, value) for name, array in MODEL.items()})


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """(status, code) of an answer that is a problem document."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


@dataclass
class Hospital:
    study: str
    name: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)


@dataclass
class Live:
    """One running coordinator. `skew` is added to the clock that judges request tokens."""

    url: str
    home: Path
    coordinator: Coordinator
    operator_key: str
    viewer_key: str
    http: httpx.Client
    skew: float = 0.0

    def clock(self) -> float:
        return time.time() + self.skew

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
            "now": time.time(),
        }
        return request_token(who.key, **said | changes)

    def signed(
        self,
        who: Hospital,
        method: str,
        path: str,
        body: bytes = b"",
        media_type: str = "application/json",
        **changes: Any,
    ) -> httpx.Response:
        headers = {"Content-Type": media_type} if body else {}
        return self.send(method, path, self.token(who, method, path, body, **changes), content=body, headers=headers)

    def put_update(self, who: Hospital, round: int, body: bytes, **changes: Any) -> httpx.Response:
        path = f"/v1/studies/{who.study}/rounds/{round}/updates/{who.name}"
        return self.signed(who, "PUT", path, body, "application/octet-stream", **changes)

    def open_study(self, study: str, settings: Mapping[str, Any] | None = None, *, model: bool = True) -> None:
        created = self.operator("POST", "/v1/studies", json={"study": study, "settings": settings or settings_of()})
        assert created.status_code == 201, created.text
        if model:
            stored = self.operator("PUT", f"/v1/studies/{study}/models/0", content=encode(MODEL))
            assert stored.status_code == 201, stored.text

    def invite(self, study: str, name: str) -> str:
        answer = self.operator("POST", f"/v1/studies/{study}/invitations", json={"client": name})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def enrolment(self, who: Hospital, token: str) -> dict[str, str]:
        public = encode_public_key(who.key.public_key())
        proof = sign_document(who.key, ENROLMENT, {"invitation": token.split("_")[1], "key": public})
        return {"token": token, "public_key": public, "proof": proof}

    def enrol(self, study: str, name: str) -> Hospital:
        who = Hospital(study, name)
        answer = self.send("POST", "/v1/enrolments", json=self.enrolment(who, self.invite(study, name)))
        assert answer.status_code == 201, answer.text
        return who

    def running(self, study: str, *names: str, settings: Mapping[str, Any] | None = None) -> list[Hospital]:
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


@contextmanager
def live(home: Path, *, time_of_day: Clock | None = None, **settings: Any) -> Iterator[Live]:
    """A coordinator under `home` on a free port; its worker moves only when asked.

    time_of_day  stands for the database's clock, by which deadlines pass; requests are signed by this machine's
    """
    chosen = Settings(home=home, origin=ORIGIN, port=0, worker=False, watch_seconds=0.02, **settings)
    prepare(chosen)
    coordinator = open_coordinator(chosen)
    if time_of_day is not None:
        coordinator.database.dispose()
        coordinator = replace(coordinator, database=Database(chosen.database(), clock=time_of_day))
    keys = [create_key(coordinator, OperatorKeyCreate(role=role)).key or "" for role in ("operator", "viewer")]
    here: list[Live] = []
    app = create_app(chosen, coordinator=coordinator, clock=lambda: here[0].clock())
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False)
    server = CoordinatorServer(config, app.state.context.watcher)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
            here.append(Live(url, home, coordinator, keys[0], keys[1], http))
            yield here[0]
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
        assert not thread.is_alive(), "the server does not stop"
        coordinator.database.dispose()
