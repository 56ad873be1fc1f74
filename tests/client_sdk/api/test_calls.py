"""Requests as they are sent, and answers as they are read."""

from __future__ import annotations

import json
import re
import secrets
import traceback
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from client_sdk.api import calls
from client_sdk.api.transport import Call, HttpAnswer
from client_sdk.errors import UnexpectedAnswer
from server.api.description import describe
from server.app import ROUTERS
from study_protocol.study.messages import LedgerHead, WitnessedHead
from tests.factories.answers import client, script


def test_a_model_is_checked_against_the_digest_in_the_answer() -> None:
    api, _ = client(script(httpx.Response(200, content=b"weights", headers={"ETag": f'"{"0" * 64}"'}))[0])
    with pytest.raises(UnexpectedAnswer, match="not the one"):
        api.model("sepsis")


def test_names_in_paths_cannot_escape_them() -> None:
    assert calls.study("a/../b?c").target == "/v1/studies/a%2F..%2Fb%3Fc"


class Part(BaseModel):
    """Stands for any request's body."""

    name: str = "x"


ANY: Any = Part()
WITNESS = WitnessedHead(
    client="c",
    public_key="k" * 43,
    head=LedgerHead(study="s", entries=1, sha256="a" * 64),
    signature="s" * 86,
)
EVERY: dict[str, Call[Any]] = {
    "certificate": calls.certificate("s", 3),
    "create_study": calls.create_study(ANY),
    "studies": calls.studies("a"),
    "study": calls.study("s"),
    "move_study": calls.move_study("s", "start"),
    "delete_study": calls.delete_study("s"),
    "put_initial_model": calls.put_initial_model("s", b"m"),
    "invite": calls.invite("s", ANY),
    "enrol": calls.enrol(ANY),
    "roster": calls.roster("s", 3),
    "put_lacking_columns": calls.put_lacking_columns("s", "c", ANY),
    "lacking_columns": calls.lacking_columns("s"),
    "site_versions": calls.site_versions("s"),
    "rotate_key": calls.rotate_key("s", "c", ANY),
    "leave": calls.leave("s", "c", "revoked"),
    "assignment": calls.assignment("s", 5.0),
    "model": calls.model("s"),
    "put_update": calls.put_update("s", 1, "c", b"u"),
    "put_refusal": calls.put_refusal("s", 1, "c", ANY),
    "put_metrics": calls.put_metrics("s", 1, ANY),
    "budget": calls.budget("s"),
    "ledger": calls.ledger("s", 0, 10),
    "rounds": calls.rounds("s"),
    "put_witness": calls.put_witness("s", WITNESS),
    "put_outside_witness": calls.put_outside_witness("s", WITNESS),
    "round_view": calls.round_view("s", 1),
    "create_api_key": calls.create_api_key(ANY),
    "api_keys": calls.api_keys(),
    "revoke_api_key": calls.revoke_api_key("k"),
    "audit_log": calls.audit_log("s", 1),
    "coordinator_audit_log": calls.audit_log(None),
    "begin_login": calls.begin_login(),
    "poll_login": calls.poll_login("wrl_1_2"),
    "log_out": calls.log_out(),
    "ask_query": calls.ask_query("s", ANY),
    "forecast_query": calls.forecast_query("s", ANY),
    "queries": calls.queries("s", state="waiting", after=1),
    "query": calls.query("s", 1),
    "put_consent": calls.put_consent("s", 1, "c", ANY),
    "health": calls.health("readyz"),
}


def served() -> dict[tuple[str, str], Any]:
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    document = describe(app)["paths"]
    return {(method.upper(), path): about for path, each in document.items() for method, about in each.items()}


def operation(call: Call[Any], operations: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """The served operation with the fewest placeholders that the call goes to."""
    path = call.target.partition("?")[0]
    fitting = [o for o in operations if o[0] == call.method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", o[1]), path)]
    return min(fitting, key=lambda o: o[1].count("{"))


def test_every_call_goes_to_an_operation_with_parameters_that_it_knows() -> None:
    operations = served()
    for name, call in EVERY.items():
        about = operations[operation(call, operations)]
        known = {p["name"] for p in about.get("parameters", []) if p["in"] == "query"}
        assert set(parse_qs(call.target.partition("?")[2])) <= known, name
        assert bool(call.body) == ("requestBody" in about), name


def test_every_operation_of_studies_rounds_and_keys_has_its_call() -> None:
    operations = served()
    reached = {operation(call, operations) for call in EVERY.values()}
    reached |= {operation(calls.move_study("s", action), operations) for action in ("train", "pause", "resume", "stop")}
    reached |= {operation(calls.leave("s", "c", "withdrawn"), operations)}
    left = {path for _, path in operations.keys() - reached if path.startswith("/v1/") and "secure-sum" not in path}
    # Who asks and the stream of events are read by the dashboard, and an administrator ends sessions with curl.
    assert left == {"/v1/studies/{study}/events", "/v1/person", "/v1/sessions", "/v1/sessions/{session}"}


def test_what_cannot_happen_twice_is_not_repeated_and_what_needs_no_name_is_open() -> None:
    once = {name for name, call in EVERY.items() if not call.repeatable}
    assert once == {"invite", "create_api_key", "begin_login", "poll_login"}
    assert {name for name, call in EVERY.items() if call.open} == {"enrol", "health", "begin_login", "poll_login"}


def test_bodies_are_named_by_their_kind_and_kept_out_of_a_repr() -> None:
    json_call, octets = EVERY["put_refusal"], EVERY["put_update"]
    assert (json_call.content_type, json_call.body) == ("application/json", b'{"name":"x"}')
    assert (octets.content_type, octets.body) == ("application/octet-stream", b"u")
    assert EVERY["leave"].content_type is None
    assert "name" not in repr(json_call).partition("read=")[0]


def test_an_assignment_waits_as_long_as_it_says_and_may_be_none() -> None:
    call = calls.assignment("s", 12.5)
    assert (call.target, call.quiet_seconds) == ("/v1/studies/s/assignment?wait=12.5", 12.5)
    assert call.read(HttpAnswer(204, {}, b"")) is None


def test_an_answer_that_is_another_names_what_was_expected_and_nothing_of_it() -> None:
    token = secrets.token_hex(4)
    with pytest.raises(UnexpectedAnswer, match="no Study:") as caught:
        calls.study("s").read(HttpAnswer(200, {"x-request-id": "r-3"}, json.dumps({"token": token}).encode()))
    assert caught.value.request_id == "r-3"
    assert token not in "".join(traceback.format_exception(caught.value))
