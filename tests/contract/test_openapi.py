"""The API keeps what its own description says: every operation answers 2xx once, and nothing that fits the
description, or just misses it, makes the coordinator fail. Requests are signed as hospitals and operators sign them."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import requests
import requests.auth
import schemathesis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, seed, settings
from pydantic import BaseModel
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from server.api.description import describe
from server.app import ROUTERS
from study_protocol.secure_sum.messages import MANIFEST_HEADER
from study_protocol.study.messages import LedgerHead
from study_protocol.study.settings import StudySettings
from study_protocol.study.witness import sign_head
from study_protocol.wire.signing import ENROLMENT, encode_public_key, request_token, sign_document, to_base64url
from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL, Hospital, update
from tests.factories.live_coordinator import ORIGIN, PROGRAM, Live
from tests.factories.logins import provider_and_coordinator
from tests.factories.masked_studies import STEPS, MaskedHospital, body_of
from tests.factories.settings import settings as study_settings
from tests.factories.settings import settings_json, statistics_settings
from tests.harness.dashboard_states import open_synthesis

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 20
# Of each operation of a secure sum: how many of its steps everybody has taken before.
STEPS_BEFORE = {
    "session": 0,
    "put_keys": 0,
    "put_left": 0,
    "get_keys": 1,
    "put_shares": 1,
    "get_shares": 2,
    "put_masked": 2,
    "get_survivors": 3,
    "put_consistency": 3,
    "get_consistency": 4,
    "put_unmask": 4,
    "get_result": 5,
}
QUERIES = {"ask_query", "forecast_query", "list_queries", "show_query", "query_json", "put_consent"}
BY_CLIENTS = {
    "next_assignment",
    "put_update",
    "put_refusal",
    "put_witness",
    "rotate_key",
    "withdraw",
    "put_lacking_columns",
}
OF_NO_STUDY = {
    *("show_version", "livez", "readyz", "list_studies", "list_keys", "all_studies_json"),
    *("read_coordinator_audit_log", "show_person", "list_sessions", "log_out", "begin_login"),
}
OCTETS = "application/octet-stream"
AUDITOR = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


class Signed(requests.auth.AuthBase):
    """Signs the finished request, whatever was generated."""

    def __init__(self, here: Live, who: Hospital | None) -> None:
        self.here, self.who = here, who

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token(request)}"
        return request

    def _token(self, request: requests.PreparedRequest) -> str:
        if self.who is None:
            return self.here.operator_key
        body = request.body or b""
        return request_token(
            self.who.key,
            client=self.who.name,
            study=self.who.study,
            audience=ORIGIN,
            method=request.method or "",
            url=ORIGIN + request.path_url,
            body_sha256=hashlib.sha256(body if isinstance(body, bytes) else str(body).encode()).hexdigest(),
            now=time.time(),
            token_id=secrets.token_hex(16),
        )


@dataclass
class Good:
    """A request that must succeed."""

    path: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    media_type: str | None = None
    query: dict[str, Any] = field(default_factory=dict)
    who: Hospital | None = None
    headers: dict[str, str] = field(default_factory=dict)


def _new_key(who: Hospital) -> dict[str, str]:
    new = Ed25519PrivateKey.generate()
    public = encode_public_key(new.public_key())
    proof = sign_document(new, ENROLMENT, {"client": who.name, "study": who.study, "key": public})
    return {"public_key": public, "proof": proof}


def _signed_head(here: Live, who: Hospital) -> dict[str, Any]:
    head = LedgerHead.model_validate(here.operator("GET", f"/v1/studies/{who.study}/ledger").json()["head"]["head"])
    return {"head": head.model_dump(mode="json"), "signature": sign_head(who.key, who.name, head).signature}


def _good(here: Live, operation: str) -> Good:
    """A study of its own for this operation, in the state where it succeeds."""
    study = operation.replace("_", "-")
    path: dict[str, Any] = {"study": study}
    if operation in OF_NO_STUDY:
        return Good()
    if operation == "end_session":
        return Good({"session": "0a"})
    if operation == "poll_login":
        begun = here.send("POST", "/v1/logins").json()
        return Good(body={"token": begun["token"]}, media_type="application/json")
    if operation == "create_study":
        return Good(body={"study": study, "settings": settings_json()}, media_type="application/json")
    if operation == "create_key":
        return Good(body={"role": "viewer", "name": "second"}, media_type="application/json")
    if operation == "revoke_key":
        return Good(
            path={"key": here.operator("POST", "/v1/api-keys", json={"role": "viewer", "name": "Ada"}).json()["id"]}
        )
    if operation == "put_initial_model":
        here.open_study(study, model=False)
        return Good(path, encode(MODEL), OCTETS)
    if operation in ("start_study", "delete_study", "enrol", "invite"):
        here.open_study(study)
        for name in ("east", "west"):
            here.enrol(study, name)
        enrolment = here.enrolment(here.hospital(study, "north"), here.invite(study, "north"))
        bodies = {"enrol": enrolment, "invite": {"client": "south"}}
        headers = PROGRAM if operation == "enrol" else {}
        return Good({} if operation == "enrol" else path, bodies.get(operation), "application/json", headers=headers)
    if operation in STEPS_BEFORE:
        return _good_in_a_secure_sum(here, operation, path)
    if operation in ("synthesis_json", "synthesis_shares_json"):
        open_synthesis(here, study, 1)
        return Good(path, query={"column": "age"} if operation == "synthesis_shares_json" else {})
    return _good_query(here, operation, path) if operation in QUERIES else _good_in_a_round(here, operation, path)


def _good_query(here: Live, operation: str, path: dict[str, Any]) -> Good:
    study = path["study"]
    settings = statistics_settings(masked=False, epsilon=15.0)
    created = here.operator("POST", "/v1/studies", json={"study": study, "settings": settings.as_json()})
    assert created.status_code == 201, created.text
    north = here.enrol(study, "north")
    document = {"question": {"kind": "count", "noise_multiplier": 5.0}}
    if operation in ("ask_query", "forecast_query"):
        return Good(path, document, "application/json")
    assert here.operator("POST", f"/v1/studies/{study}/queries", json=document).status_code == 201
    if operation == "put_consent":
        return Good(path | {"query": 1, "client": "north"}, {"allowed": True}, "application/json", who=north)
    return Good(path | ({"query": 1} if operation in ("show_query", "query_json") else {}))


def _good_in_a_secure_sum(here: Live, operation: str, path: dict[str, Any]) -> Good:
    chosen = study_settings(masked=True)
    hospitals = here.running(path["study"], "north", "south", "east", "west", settings=chosen)
    update = {name: np.full_like(array, 0.01) for name, array in MODEL.items()}
    turns = [MaskedHospital(who, update).session(here.coordinator, chosen, 1) for who in hospitals]
    for turn in turns:
        turn.now = int(time.time())
    for step in STEPS[: STEPS_BEFORE[operation]]:
        for turn in turns:
            turn.take(step)
    here.work()
    north = turns[0]
    parts = {"client": "north", "round": 1}
    template = next(p for p, _, name in _operations() if name == operation)
    path |= {name: value for name, value in parts.items() if f"{{{name}}}" in template}
    if operation == "put_masked":
        upload = north.upload()
        manifest = to_base64url(upload.manifest.model_dump_json().encode())
        return Good(path, body_of(upload), OCTETS, who=hospitals[0], headers={MANIFEST_HEADER: manifest})
    messages: dict[str, Callable[[], BaseModel]] = {
        "put_keys": north.keys_message,
        "put_shares": north.shares_message,
        "put_consistency": north.consistency_message,
        "put_unmask": north.unmask_message,
    }
    if operation not in messages:
        return Good(path, who=hospitals[0])
    return Good(path, messages[operation]().model_dump(mode="json"), "application/json", who=hospitals[0])


def _with_an_auditor() -> StudySettings:
    key = encode_public_key(AUDITOR.public_key())
    return study_settings(schedule={"witnesses": [{"name": "auditor", "public_key": key}]})


def _signed_by_auditor(here: Live, study: str) -> dict[str, Any]:
    head = LedgerHead.model_validate(here.operator("GET", f"/v1/studies/{study}/ledger").json()["head"]["head"])
    signed = sign_head(AUDITOR, "auditor", head)
    return {"head": head.model_dump(mode="json"), "signature": signed.signature}


def _good_in_a_round(here: Live, operation: str, path: dict[str, Any]) -> Good:
    north, _ = here.running(path["study"], "north", "south", settings=_with_an_auditor())
    if operation == "resume_study":
        here.operator("POST", f"/v1/studies/{path['study']}/pause")
    bodies: dict[str, Any] = {
        "put_update": update(),
        "put_refusal": {"code": "site-policy"},
        "put_witness": _signed_head(here, north),
        "put_outside_witness": _signed_by_auditor(here, path["study"]),
        "rotate_key": _new_key(north),
        "put_lacking_columns": {"columns": []},
        "put_metrics": {"evaluation_set": "held-out", "values": {"accuracy": 0.5}},
    }
    parts = {"client": "north", "round": 1, "version": 0, "name": "auditor"}
    template = next(p for p, _, name in _operations() if name == operation)
    path |= {name: value for name, value in parts.items() if f"{{{name}}}" in template}
    media_type = OCTETS if operation == "put_update" else "application/json"
    body = bodies.get(operation)
    return Good(path, body, media_type if body is not None else None, who=north if operation in BY_CLIENTS else None)


@cache
def _document() -> dict[str, Any]:
    from fastapi import FastAPI

    app = FastAPI(title="Wardround", version="1", docs_url=None, redoc_url=None, generate_unique_id_function=_name)
    for router in ROUTERS:
        app.include_router(router)
    return json.loads(json.dumps(describe(app)))


def _name(route: Any) -> str:
    return str(route.name)


@cache
def _operations() -> list[tuple[str, str, str]]:
    paths = _document()["paths"].items()
    return [(path, method, op["operationId"]) for path, methods in paths for method, op in methods.items()]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("home")
    settings = {"long_poll_seconds": 0.0, "event_stream_seconds": 0.0, "body_idle_seconds": 5.0}
    with provider_and_coordinator(home, **settings) as (_, coordinator):
        yield coordinator


@pytest.fixture(scope="module")
def schema(here: Live) -> Any:
    assert here.send("GET", "/openapi.json").json()["paths"] == _document()["paths"]
    return schemathesis.openapi.from_dict(_document())


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as shared:
        shared.trust_env = False
        yield shared


@pytest.mark.quick("create_key", "poll_login", "put_consent", "put_initial_model", "read_budget")
@pytest.mark.parametrize(("path", "method", "operation"), _operations(), ids=[name for _, _, name in _operations()])
def test_every_operation_succeeds_once_and_never_fails(
    here: Live, schema: Any, session: requests.Session, path: str, method: str, operation: str
) -> None:
    good = _good(here, operation)
    described = schema[path][method.upper()]

    def send(case: Any, who: Hospital | None) -> int:
        response = case.call(base_url=here.url, session=session, auth=Signed(here, who))
        case.validate_response(response, checks=CHECKS)
        return int(response.status_code)

    chosen = {"path_parameters": good.path, "query": good.query, "headers": good.headers}
    if good.body is not None:
        chosen |= {"body": good.body, "media_type": good.media_type}
    assert 200 <= send(described.Case(**chosen), good.who) < 300

    _explore(described.as_strategy(path_parameters=good.path or None), send, good.who)
    _explore(described.as_strategy(), send, good.who)
    if {"parameters", "requestBody"} & set(_document()["paths"][path][method]):
        _explore(described.as_strategy(generation_mode=GenerationMode.NEGATIVE), send, good.who)


def _explore(strategy: Any, send: Callable[[Any, Hospital | None], int], who: Hospital | None) -> None:
    @seed(20_240_229)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def explore(case: Any) -> None:
        assert send(case, who) < 500

    explore()
