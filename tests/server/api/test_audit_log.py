"""Every operation that changes something leaves one entry in the audit log, with the right actor. Others leave none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.routing import APIRoute
from sqlalchemy import text

from server.app import ROUTERS
from server.services.people.keys import create_key
from study_protocol.study.audit_log import AuditEntry, AuditPage, verify_entries
from study_protocol.study.messages import LedgerPage, SignedLedgerHead
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.roles import LOGGED_WITH_ITS_ROUND, OPERATIONS, Role
from study_protocol.study.witness import sign_head
from study_protocol.wire.signing import encode_public_key
from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL, Hospital, update
from tests.factories.live_coordinator import PROGRAM, Live
from tests.factories.settings import TASK_PARAMETERS, settings

STUDY = "logged"
MAY_LACK = TASK_PARAMETERS | {"column.rate": "0..10; missing=1; site-may-lack"}
COUNT = {"question": {"kind": "count", "noise_multiplier": 5.0}}
ROUTES = {route.name: route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)}
CHANGING = {name for name, route in ROUTES.items() if not route.methods <= {"GET", "HEAD"}} - LOGGED_WITH_ITS_ROUND
# They begin and end sessions: tests/server/web/test_login.py.
LOGINS = {"begin_login", "poll_login", "log_out"}


@dataclass
class Logged:
    """Sends requests, and compares what each adds to the logs."""

    here: Live
    keys: dict[Role, tuple[str, str]] = field(default_factory=dict[Role, tuple[str, str]])
    done: set[str] = field(default_factory=set[str])

    def key(self, role: Role) -> tuple[str, str]:
        """Return id and text of a key of this role."""
        if role not in self.keys:
            study = None if role == "administrator" else STUDY
            made = create_key(self.here.coordinator, ApiKeyCreate(role=role, study=study, name=f"Ada, {role}"))
            self.keys[role] = made.id, made.key or ""
        return self.keys[role]

    def entries(self, study: str | None) -> list[AuditEntry]:
        path = "/v1/audit" if study is None else f"/v1/studies/{study}/audit"
        answer = self.here.operator("GET", path)
        if answer.status_code == 404:
            return []
        page = AuditPage.model_validate_json(answer.content)
        assert page.fault is None
        verify_entries(page.entries, study)
        return page.entries

    def by(self, role: Role, operation: str, path: str, body: bytes = b"") -> httpx.Response:
        """Send as a person, and compare the entry."""
        id, key = self.key(role)
        return self._compare(
            operation,
            path,
            body,
            lambda method: self.here.send(method, path, key, content=body, headers=_typed(body)),
            {"kind": "key", "id": id, "name": f"Ada, {role}", "role": role},
        )

    def by_hospital(self, who: Hospital, operation: str, path: str, body: bytes = b"", **more: Any) -> httpx.Response:
        return self._compare(
            operation,
            path,
            body,
            lambda method: self.here.signed(who, method, path, body, **more),
            {"kind": "hospital", "id": "", "name": who.name, "role": None},
        )

    def _compare(
        self, operation: str, path: str, body: bytes, send: Callable[[str], httpx.Response], actor: dict[str, Any]
    ) -> httpx.Response:
        (method,) = ROUTES[operation].methods
        of_study = "{study}" in ROUTES[operation].path or operation == "enrol"
        log = ("deleted" if "/deleted" in path else STUDY) if of_study else None
        before = self.entries(log)
        answer = send(method)
        assert answer.status_code in (200, 201, 204), answer.text
        after = self.entries(log)
        assert after[: len(before)] == before
        (entry,) = after[len(before) :]
        assert entry.event.actor.model_dump() == actor
        assert (entry.event.action, entry.event.address) == (operation, path.partition("?")[0])
        assert entry.event.request_id == answer.headers["x-request-id"]
        if entry.event.body_sha256 is not None:
            assert entry.event.body_sha256 == hashlib.sha256(body).hexdigest()
        self.done.add(operation)
        return answer


def _typed(body: bytes) -> dict[str, str]:
    return {"Content-Type": "application/json" if body.startswith(b"{") else "application/octet-stream"}


def _json(**values: Any) -> bytes:
    return json.dumps(values).encode()


def _invited(logged: Logged, name: str) -> Hospital:
    path, who = f"/v1/studies/{STUDY}", logged.here.hospital(STUDY, name)
    token = logged.by("lead", "invite", f"{path}/invitations", _json(client=name)).json()["token"]
    body = json.dumps(logged.here.enrolment(who, token)).encode()
    logged._compare(
        "enrol",
        "/v1/enrolments",
        body,
        lambda _: logged.here.http.post("/v1/enrolments", content=body, headers=PROGRAM | _typed(body)),
        {"kind": "hospital", "id": "", "name": name, "role": None},
    )
    return who


def _opened(logged: Logged, witness: Ed25519PrivateKey) -> list[Hospital]:
    outside = {"name": "archive", "public_key": encode_public_key(witness.public_key())}
    chosen = settings(
        statistics={"max_queries": 9, "max_cells": 99},
        training={"task_parameters": MAY_LACK},
        schedule={"witnesses": [outside]},
    )
    path, opened = f"/v1/studies/{STUDY}", settings().as_json()
    logged.by("administrator", "create_study", "/v1/studies", _json(study=STUDY, settings=chosen.as_json()))
    logged.here.operator("POST", "/v1/studies", json={"study": "deleted", "settings": opened})
    logged.by("administrator", "delete_study", "/v1/studies/deleted")
    logged.by("lead", "put_initial_model", f"{path}/models/0", encode(MODEL))
    hospitals = [_invited(logged, name) for name in ("north", "south", "west")]
    logged.by_hospital(
        hospitals[0], "put_lacking_columns", f"{path}/clients/north/lacking-columns", _json(columns=["rate"])
    )
    return hospitals


def _asked(logged: Logged, hospitals: list[Hospital]) -> None:
    path = f"/v1/studies/{STUDY}"
    logged.by("lead", "start_study", f"{path}/start?questions_first=true")
    logged.by("asker", "ask_query", f"{path}/queries", json.dumps(COUNT).encode())
    consents = f"{path}/queries/1/consents"
    logged.by_hospital(hospitals[0], "put_consent", f"{consents}/north", _json(allowed=True))


def _changed_keys(logged: Logged, hospitals: list[Hospital]) -> None:
    path = f"/v1/studies/{STUDY}"
    who, old = hospitals[0], hospitals[0].key
    who.key = Ed25519PrivateKey.generate()
    body = who.rotation().model_dump_json().encode()
    new, who.key = who.key, old
    logged.by_hospital(who, "rotate_key", f"{path}/clients/north/key", body, token_id="once-and-never-again")
    who.key = new
    made = logged.by("lead", "create_key", "/v1/api-keys", _json(role="viewer", study=STUDY, name="Grace")).json()
    logged.by("lead", "revoke_key", f"/v1/api-keys/{made['id']}")
    for entry, action in zip(logged.entries(STUDY)[-2:], ("create_key", "revoke_key"), strict=True):
        # Both are in the study's log as well, which its auditor reads.
        assert (entry.event.action, entry.event.actor.name) == (action, "Ada, lead")
    given = logged.entries(STUDY)[-2].event.key
    assert given is not None
    assert (given.id, given.role, given.study, given.name) == (made["id"], "viewer", STUDY, "Grace")


def _ended(logged: Logged, hospitals: list[Hospital], witness: Ed25519PrivateKey) -> None:
    path = f"/v1/studies/{STUDY}"
    for action in ("train", "pause", "resume"):
        logged.by("administrator", f"{action}_study", f"{path}/{action}")
    metrics = _json(evaluation_set="held out", values={"auc": 0.7})
    logged.by("lead", "put_metrics", f"{path}/models/0/metrics", metrics)
    page = LedgerPage.model_validate_json(logged.here.operator("GET", f"{path}/ledger").content)
    signed = sign_head(witness, "archive", page.head.head)
    body = SignedLedgerHead(head=signed.head, signature=signed.signature).model_dump_json().encode()
    logged.by("viewer", "put_outside_witness", f"{path}/outside-witnesses/archive", body)
    logged.here.work()
    before = logged.entries(STUDY)
    assert logged.here.put_update(hospitals[0], 1, update()).status_code == 201
    assert logged.here.operator("POST", f"{path}/queries/forecast", json=COUNT).status_code == 200
    # The round keeps who sent an update, and a forecast changes nothing.
    assert logged.entries(STUDY) == before
    logged.by_hospital(hospitals[1], "withdraw", f"{path}/clients/south/withdrawn")
    logged.by("lead", "revoke", f"{path}/clients/west/revoked")
    logged.by("lead", "stop_study", f"{path}/stop")
    logged.by("administrator", "end_session", "/v1/sessions/ffff")


@pytest.fixture(scope="module")
def logged(here: Live) -> Logged:
    return Logged(here)


@pytest.mark.slow
def test_every_changing_operation_has_one_entry_with_its_actor(logged: Logged) -> None:
    witness = Ed25519PrivateKey.generate()
    hospitals = _opened(logged, witness)
    _asked(logged, hospitals)
    _changed_keys(logged, hospitals)
    _ended(logged, hospitals, witness)
    assert logged.done == CHANGING - LOGINS
    # What people did is in the ledger, too, with the same names.
    page = LedgerPage.model_validate_json(logged.here.operator("GET", f"/v1/studies/{STUDY}/ledger").content)
    operated = [(entry.body["action"], entry.body["actor"]) for entry in page.entries if entry.kind == "operated"]
    assert operated == [
        ("create", "Ada, administrator"),
        *[("invite", "Ada, lead")] * 3,
        ("start-asking", "Ada, lead"),
        ("ask", "Ada, asker"),
        *[(action, "Ada, administrator") for action in ("train", "pause", "resume")],
        ("revoke", "Ada, lead"),
        ("stop", "Ada, lead"),
    ]


def test_what_is_refused_leaves_no_entry(logged: Logged) -> None:
    study = "refused-here"
    logged.here.open_study(study, model=False)
    before, own = logged.entries(study), logged.entries(None)
    for method, path, body in (
        ("POST", f"/v1/studies/{study}/start", b""),
        ("POST", f"/v1/studies/{study}/invitations", b"{"),
        ("POST", f"/v1/studies/{study}/invitations", _json(client="North!")),
        ("PUT", f"/v1/studies/{study}/models/0", b"no tensors"),
        ("PUT", f"/v1/studies/{study}/clients/nobody/revoked", b""),
        ("POST", f"/v1/studies/{study}/queries", json.dumps(COUNT).encode()),
        ("POST", "/v1/api-keys", _json(role="administrator", study=study, name="Grace")),
        ("DELETE", "/v1/api-keys/ffff", b""),
        ("POST", "/v1/studies", _json(study=study, settings=settings(noise_multiplier=2.0).as_json())),
    ):
        assert logged.here.operator(method, path, content=body, headers=_typed(body)).status_code >= 400, path
    assert logged.entries(study) == before
    assert logged.entries(None) == own


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_a_request_under_way_does_nothing_once_its_key_has_ended(logged: Logged, end: str) -> None:
    """A body may come in slowly, and the key was good when the request began."""
    here, study = logged.here, f"slowly-{end}"
    here.open_study(study)
    made = create_key(here.coordinator, ApiKeyCreate(role="lead", study=study, name="Eve"))
    before, body = logged.entries(study), _json(client="north")
    head = (
        f"POST /v1/studies/{study}/invitations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {made.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    with here.connect() as connection:
        connection.sendall(head.encode())
        # The caller is known before a byte of the body is asked for.
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        if end == "revoked":
            assert here.operator("DELETE", f"/v1/api-keys/{made.id}").status_code == 200
        else:
            past = text("UPDATE api_keys SET created_at = 1, expires_at = 2 WHERE id = :id")
            here.coordinator.database.write("expire", lambda tx: tx.session.execute(past, {"id": made.id}))
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"401" in answer.split(b"\r\n")[0], answer
    assert b"bad-token" in answer
    # The revocation is there, and no invitation.
    assert [entry.event.action for entry in logged.entries(study)[len(before) :]] in ([], ["revoke_key"])


def test_no_header_changes_the_address_in_the_log(logged: Logged) -> None:
    here = logged.here
    made, other = (create_key(here.coordinator, ApiKeyCreate(role="viewer", name=name)) for name in ("Eve", "Ada"))
    host = f"x/v1/api-keys/{other.id}?"
    answer = here.operator("DELETE", f"/v1/api-keys/{made.id}", headers={"Host": host})
    assert answer.status_code == 200, answer.text
    assert logged.entries(None)[-1].event.address == f"/v1/api-keys/{made.id}"


WAYS_AROUND = [
    ("HEAD", "/v1/studies/{study}/budget"),
    ("HEAD", "/v1/studies/{study}/audit"),
    ("OPTIONS", "/v1/studies/{study}/audit"),
    ("GET", "/v1/studies/{study}/audit/"),
    ("GET", "/v1//studies/{study}/audit"),
    ("GET", "//v1/studies/{study}/audit"),
    ("GET", "/v1/studies/{study}%2Faudit"),
    ("GET", "/v1/studies/%2e%2e/{study}/audit"),
    ("GET", "/v1/studies/nowhere/../{study}/audit"),
    ("GET", "/v1/studies/{study}/%61udit"),
    ("GET", "/%76%31/studies/{study}/audit"),
    ("GET", "/v1/studies/{study}/audit;x=1"),
    ("GET", "/v1/studies/{study}/audit%00"),
    ("GET", "/v1/studies/{study}/AUDIT"),
    ("GET", "/static/../v1/studies/{study}/audit"),
    ("POST", "/v1/studies/{study}/audit"),
    ("POST", "/v1/studies/{study}/stop/"),
    ("POST", "/v1/studies/{study}%2Fstop"),
    ("PATCH", "/v1/studies/{study}"),
    ("GET", "/v1/studies/{study}/stop"),
    ("POST", "/v1/studies/{study}/stop?_method=GET"),
    ("GET", "/dashboard/{study}.json/"),
    ("GET", "/dashboard/{study}%2ejson"),
]


@pytest.mark.parametrize(("method", "path"), WAYS_AROUND)
def test_no_spelling_of_an_address_goes_past_the_table(logged: Logged, method: str, path: str) -> None:
    """Sent as they are: an HTTP library would mend them."""
    study = "spelled"
    if not logged.entries(study):
        logged.here.open_study(study)
    key = create_key(logged.here.coordinator, ApiKeyCreate(role="viewer", study="elsewhere", name="Eve")).key
    before = logged.entries(study)
    with logged.here.connect() as connection:
        target, headers = path.format(study=study), f"Host: x\r\nAuthorization: Bearer {key}\r\nConnection: close"
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{headers}\r\nX-HTTP-Method-Override: GET\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 403, 404, 405, 422), answer[:300]
    # A part of every log and ledger.
    assert b"sha256" not in answer
    assert logged.entries(study) == before


def test_every_operation_but_open_ones_knows_its_caller_first(here: Live) -> None:
    from server.api.auth import SignedRoute

    closed = {name for name, callers in OPERATIONS.items() if "anyone" not in callers}
    assert all(isinstance(ROUTES[name], SignedRoute) for name in closed)
