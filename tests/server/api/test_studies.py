"""A study's life over HTTP, its history and its budget; everything repeatable."""

from __future__ import annotations

import json

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.protocol.study.messages import BudgetStatement, LedgerPage
from client_sdk.protocol.wire.signing import (
    ENROLMENT,
    LEDGER_HEAD,
    decode_public_key,
    encode_public_key,
    roster_fingerprint,
    sign_document,
    verify_document,
)
from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live
from tests.factories.settings import settings_json


def _code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_opening_is_repeatable_and_settings_freeze(here: Live, study: str) -> None:
    request = {"study": study, "settings": settings_json()}
    assert [here.operator("POST", "/v1/studies", json=request).status_code for _ in range(2)] == [201, 200]
    other = {"study": study, "settings": settings_json(noise_multiplier=2.0)}
    assert _code(here.operator("POST", "/v1/studies", json=other)) == (409, "study-exists")


def test_a_study_whose_first_round_would_overspend_is_told_the_noise_that_fits(here: Live, study: str) -> None:
    limit = {"level": "instance", "definition": "classical", "epsilon": 1.0, "delta": 1e-5}
    first = {"limits": [limit], "sampling_rate": 1.0, "classical_order": 64.0}
    request = {"study": study, "settings": settings_json(**first, noise_multiplier=1.0)}
    answer = here.operator("POST", "/v1/studies", json=request)
    assert _code(answer) == (422, "first-round-overspends")
    fitting = answer.json()["extra"]
    assert fitting["noise_max_steps"] >= fitting["noise_one_round"] > 1.0
    assert _code(here.operator("GET", f"/v1/studies/{study}")) == (404, "unknown-study")
    request["settings"] = settings_json(**first, noise_multiplier=fitting["noise_one_round"])
    assert here.operator("POST", "/v1/studies", json=request).status_code == 201


def test_a_study_needs_its_model_before_it_starts(here: Live, study: str) -> None:
    here.open_study(study, model=False)
    assert _code(here.operator("POST", f"/v1/studies/{study}/start")) == (409, "model-missing")


def test_every_action_is_repeatable(here: Live, study: str) -> None:
    here.open_study(study)
    for action, state in [("start", "running"), ("pause", "paused"), ("resume", "running"), ("stop", "finished")]:
        for _ in range(2):
            assert here.operator("POST", f"/v1/studies/{study}/{action}").json()["state"] == state
    assert _code(here.operator("POST", f"/v1/studies/{study}/start")) == (409, "study-finished")


def test_studies_are_listed_page_by_page(here: Live, study: str) -> None:
    names = [f"{study}-{letter}" for letter in "abc"]
    for name in names:
        here.open_study(name, model=False)
    assert _code(here.operator("GET", f"/v1/studies?after={study}-")) == (422, "invalid-request")
    first = here.operator("GET", f"/v1/studies?limit=1&after={names[0]}").json()
    assert [shown["study"] for shown in first["studies"]] == [names[1]]
    assert first["next"] == names[1]


def test_enrolment_is_repeatable_with_the_same_key_only(here: Live, study: str) -> None:
    here.open_study(study)
    token, who = here.invite(study, "north"), here.hospital(study, "north")
    request = here.enrolment(who, token)
    first, again = (here.send("POST", "/v1/enrolments", json=request) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = here.enrolment(here.hospital(study, "north"), token)
    assert _code(here.send("POST", "/v1/enrolments", json=other)) == (409, "invitation-used")


@pytest.mark.parametrize(
    "damage",
    [lambda t: t.replace("wri_", "wrk_"), lambda t: t.replace("_", "_0", 2), lambda t: "wri_1_2_3", lambda t: ""],
    ids=["another prefix", "zeros before", "made up", "empty"],
)
def test_a_damaged_invitation_admits_nobody(here: Live, study: str, damage: object) -> None:
    here.open_study(study)
    token = here.invite(study, "north")
    request = here.enrolment(here.hospital(study, "north"), token) | {"token": damage(token)}  # type: ignore[operator]
    answer = here.send("POST", "/v1/enrolments", json=request)
    assert answer.status_code in (401, 404, 422)
    assert here.operator("GET", f"/v1/studies/{study}/roster").json()["members"] == []


def test_a_borrowed_public_key_does_not_enrol(here: Live, study: str) -> None:
    here.open_study(study)
    request = here.enrolment(here.hospital(study, "north"), here.invite(study, "north"))
    request["public_key"] = encode_public_key(Ed25519PrivateKey.generate().public_key())
    assert _code(here.send("POST", "/v1/enrolments", json=request)) == (401, "bad-signature")


def test_the_roster_has_the_fingerprint_that_hospitals_compute(here: Live, study: str) -> None:
    here.open_study(study)
    hospitals = [here.enrol(study, name) for name in ("north", "south")]
    pairs = [(who.name, encode_public_key(who.key.public_key())) for who in hospitals]
    shown = here.signed(hospitals[0], "GET", f"/v1/studies/{study}/roster").json()
    assert shown["fingerprint"] == roster_fingerprint(study, pairs)
    here.operator("PUT", f"/v1/studies/{study}/clients/south/revoked")
    shown = here.signed(hospitals[0], "GET", f"/v1/studies/{study}/roster").json()
    assert shown["fingerprint"] == roster_fingerprint(study, pairs[:1])


def test_a_key_is_rotated_by_its_owner(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    new = Ed25519PrivateKey.generate()
    public = encode_public_key(new.public_key())
    proof = sign_document(new, ENROLMENT, {"client": "north", "study": study, "key": public})
    body = json.dumps({"public_key": public, "proof": proof}).encode()
    path = f"/v1/studies/{study}/clients/north/key"
    assert here.signed(who, "PUT", path, body).json()["public_key"] == public
    assert _code(here.signed(who, "GET", f"/v1/studies/{study}/budget")) == (401, "bad-signature")
    who.key = new
    assert here.signed(who, "GET", f"/v1/studies/{study}/budget").status_code == 200


def test_budget_and_ledger_are_read_by_clients_and_signed(here: Live, study: str) -> None:
    hospitals = here.running(study, "north", "south")
    for who in hospitals:
        assert here.put_update(who, 1, update()).status_code == 201
    here.work()
    budget = BudgetStatement.model_validate_json(
        here.signed(hospitals[0], "GET", f"/v1/studies/{study}/budget").content
    )
    page = LedgerPage.model_validate_json(here.signed(hospitals[0], "GET", f"/v1/studies/{study}/ledger").content)
    key = decode_public_key(here.operator("GET", f"/v1/studies/{study}").json()["coordinator_key"])
    verify_document(key, LEDGER_HEAD, page.head.head.model_dump(mode="json"), page.head.signature)
    assert budget.ledger.entries == page.head.head.entries == len(page.entries)
    assert [entry.kind for entry in page.entries][:3] == ["opened", "reserved", "settled"]
    assert {(limit.level, limit.definition) for limit in budget.limits} >= {
        ("instance", "classical"),
        ("client", "classical"),
    }
    second = here.operator("GET", f"/v1/studies/{study}/ledger?after=1&limit=1").json()
    assert [entry["sequence"] for entry in second["entries"]] == [2]


@pytest.mark.parametrize(
    "noun", ["", "/budget", "/ledger", "/rounds", "/rounds/1", "/roster", "/events?wait=0", "/models/0"]
)
def test_no_such_study(here: Live, noun: str) -> None:
    assert _code(here.operator("GET", f"/v1/studies/nowhere{noun}")) == (404, "unknown-study")


def test_no_such_round(here: Live, study: str) -> None:
    here.open_study(study)
    assert _code(here.operator("GET", f"/v1/studies/{study}/rounds/7")) == (404, "round-unknown")
