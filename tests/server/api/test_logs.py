"""What a whole round leaves in the log: routes and outcomes, nothing secret and nothing about anybody."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from server.telemetry import JsonLines
from tests.factories.hospital_double import update
from tests.factories.live_coordinator import PROGRAM, Live
from tests.factories.settings import settings_json

CANARY = "canary-4711"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that any logger says, at the most talkative level, as it would be written."""
    stream, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(stream), root.level
    handler.setFormatter(JsonLines())
    # The callers' HTTP library logs too, in this process alone.
    handler.addFilter(lambda record: not record.name.startswith("http"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def test_nothing_secret_and_nobody_is_in_the_log(here: Live, study: str, log: io.StringIO) -> None:
    here.open_study(study)
    invitations = [here.invite(study, f"{CANARY}-{letter}") for letter in "ab"]
    hospitals = [here.hospital(study, f"{CANARY}-{letter}") for letter in "ab"]
    for who, token in zip(hospitals, invitations, strict=True):
        enrolment = here.enrolment(who, token)
        assert here.send("POST", "/v1/enrolments", json=enrolment, headers=PROGRAM).status_code == 201
    here.operator("POST", f"/v1/studies/{study}/start")
    here.work()
    path = f"/v1/studies/{study}/rounds/1/refusals/{hospitals[0].name}"
    here.signed(hospitals[0], "PUT", path, json.dumps({"code": "policy", "detail": CANARY}).encode())
    here.put_update(hospitals[1], 1, b"not tensors " + CANARY.encode())
    here.put_update(hospitals[1], 1, update())
    here.operator("POST", "/v1/studies", json={"study": CANARY, "settings": settings_json(clip_norm=CANARY)})
    here.operator("GET", f"/v1/{CANARY}?{CANARY}=1")
    here.send("GET", "/v1/studies", f"wrk_{CANARY}_{CANARY}")
    written = log.getvalue()
    secrets = [here.operator_key.rsplit("_", 1)[1], *(token.split("_")[2] for token in invitations), CANARY, "Bearer"]
    assert not [secret for secret in secrets if secret in written]
    lines = [json.loads(line) for line in written.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert {"PUT", "POST", "GET"} <= {line["method"] for line in requests}
    assert "/v1/studies/{study}/rounds/{round}/updates/{client}" in {line["route"] for line in requests}
    assert all(line["request_id"] for line in requests)


def test_a_fault_is_found_by_its_request_id(here: Live, log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr("server.api.studies.studies.list_studies", broken)
    answer = here.operator("GET", "/v1/studies")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    fault = next(line for line in map(json.loads, log.getvalue().splitlines()) if line["level"] == "ERROR")
    assert fault["request_id"] == answer.headers["x-request-id"]
    assert fault["exception"] == "RuntimeError"
    assert any("test_logs.py" in frame for frame in fault["frames"])
    assert CANARY not in log.getvalue() + answer.text
