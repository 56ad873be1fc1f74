"""A key or a hospital of one study reads nothing of another: no answer holds a fact of it, nor whether it exists."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import get_args

import httpx
import pytest
from fastapi.routing import APIRoute

from server.services.people.keys import create_key
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.roles import Role
from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import Live
from tests.factories.settings import settings
from tests.server.api.test_roles import CLOSED

OWN, OTHER, NOWHERE = "own-study", "zephyr-study", "zephyr-nowhere"
COUNT = {"question": {"kind": "count", "noise_multiplier": 7.0, "title": "zephyr question"}}
ROLES_OF_A_STUDY = [role for role in get_args(Role) if role != "administrator"]
# A digest, a signature, a public key, an id of a key.
_LONG = re.compile(r"[0-9a-f]{64}|[A-Za-z0-9_-]{86}|[A-Za-z0-9_-]{43}")


@dataclass
class Two:
    """Two studies with equal roles. facts: texts that only answers about the other one hold."""

    here: Live
    keys: dict[Role, str]
    hospital: Hospital
    facts: set[str]

    def reads_nothing(self, answer: httpx.Response) -> None:
        whole = answer.text + json.dumps(dict(answer.headers))
        assert not {fact for fact in self.facts if fact in whole}, answer.request.url


def _opened(here: Live, study: str, noise_multiplier: float, first: str) -> list[Hospital]:
    chosen = settings(noise_multiplier=noise_multiplier, statistics={"max_queries": 9, "max_cells": 99})
    hospitals = here.running(study, first, f"{first}-second", settings=chosen)
    for hospital in hospitals:
        assert here.put_update(hospital, 1, update()).status_code == 201
    here.work()
    metrics = {"evaluation_set": f"{first} set", "values": {"auc": 0.7}}
    assert here.operator("PUT", f"/v1/studies/{study}/models/1/metrics", json=metrics).status_code == 201
    question = {"question": COUNT["question"] | {"title": f"{first} question"}}
    assert here.operator("POST", f"/v1/studies/{study}/queries", json=question).status_code == 201
    return hospitals


def _long(here: Live, study: str) -> set[str]:
    paths = ("", "/roster", "/ledger", "/budget", "/audit", "/rounds", "/queries", "/certificate")
    texts = [here.operator("GET", f"/v1/studies/{study}{path}").text for path in paths]
    return {found for text in texts for found in _LONG.findall(text)}


@pytest.fixture(scope="module")
def two(here: Live) -> Two:
    keys: dict[Role, str] = {}
    own = _opened(here, OWN, 1.0, "north")
    _opened(here, OTHER, 1.5, "zephyr-first")
    facts = {"zephyr"}
    for role in ROLES_OF_A_STUDY:
        for study, name in ((OWN, "Ada"), (OTHER, "Zephyrine")):
            made = create_key(here.coordinator, ApiKeyCreate(role=role, study=study, name=name))
            if study == OWN:
                keys[role] = made.key or ""
            else:
                facts |= {made.id, name}
    # Both started from the same model.
    facts |= _long(here, OTHER) - _long(here, OWN) - {here.coordinator.signer.public_key}
    assert len(facts) > 20
    return Two(here, keys, own[0], facts)


def _path(route: APIRoute, study: str) -> str:
    parts = {"study": study, "client": "north", "round": "1", "query": "1", "version": "latest", "key": "none"}
    return route.path.format_map(parts | {"name": "auditor"})


def _stripped(answer: httpx.Response) -> tuple[int, dict[str, object]]:
    return answer.status_code, {name: value for name, value in answer.json().items() if name != "request_id"}


@pytest.mark.parametrize("role", ROLES_OF_A_STUDY)
def test_every_operation_on_another_study_is_refused_alike(two: Two, role: Role) -> None:
    for route in CLOSED:
        (method,) = route.methods
        if "{study}" not in route.path:
            continue
        answers = [
            two.here.send(method, _path(route, study), two.keys[role], params={"wait": 0}) for study in (OTHER, NOWHERE)
        ]
        for answer in answers:
            two.reads_nothing(answer)
        assert _stripped(answers[0]) == _stripped(answers[1])
        assert answers[0].status_code == 403


def test_a_hospital_of_one_study_is_refused_alike_in_another(two: Two) -> None:
    for number, route in enumerate(CLOSED):
        (method,) = route.methods
        for study in (OTHER, NOWHERE):
            path = f"{_path(route, study)}?wait=0"
            answer = two.here.signed(two.hospital, method, path, token_id=f"token-{study}-{number}")
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            two.reads_nothing(answer)


@pytest.mark.parametrize("role", ROLES_OF_A_STUDY)
def test_no_answer_that_a_key_gets_holds_a_fact_of_another_study(two: Two, role: Role) -> None:
    """Everything that is read: lists, events, exports, models and the data of pages."""
    for route in CLOSED:
        if route.methods != {"GET"}:
            continue
        answer = two.here.send("GET", _path(route, OWN), two.keys[role], params={"wait": 0})
        two.reads_nothing(answer)
    for path in ("/v1/studies?limit=1", f"/v1/studies?after={OWN}", "/dashboard.json?search=zephyr"):
        two.reads_nothing(two.here.send("GET", path, two.keys[role]))
    assert [study["study"] for study in two.here.send("GET", "/v1/studies", two.keys[role]).json()["studies"]] == [OWN]


def test_an_answer_to_the_other_study_s_key_would_be_noticed(two: Two) -> None:
    """Each kind of answer holds facts, so that the walk above can fail."""
    for path in ("", "/roster", "/ledger", "/audit", "/rounds", "/queries", "/events?wait=0"):
        text = two.here.operator("GET", f"/v1/studies/{OTHER}{path}").text
        assert any(fact in text for fact in two.facts), path


def test_what_a_lead_changes_without_a_study_in_the_address_stays_in_its_study(two: Two) -> None:
    """Studies and keys are named in the body, or by the id of a key."""
    lead, here = two.keys["lead"], two.here
    created = {"study": OTHER, "settings": settings(noise_multiplier=1.5).as_json()}
    for study in (OTHER, NOWHERE):
        answer = here.send("POST", "/v1/studies", lead, json=created | {"study": study})
        assert answer.status_code == 403
        two.reads_nothing(answer)
        for role in get_args(Role):
            body = {"role": role, "study": study, "name": "Eve"}
            assert here.send("POST", "/v1/api-keys", lead, json=body).status_code in (403, 422)
            body = {"role": role, "name": "Eve"}
            assert here.send("POST", "/v1/api-keys", lead, json=body).status_code == 403
    listed = here.operator("GET", "/v1/api-keys").json()["keys"]
    assert "Eve" not in {key["name"] for key in listed}
    for key in listed:
        if key["study"] != OWN:
            assert here.send("DELETE", f"/v1/api-keys/{key['id']}", lead).status_code == 404


def test_a_key_for_a_study_to_come_opens_the_one_that_an_administrator_meant(here: Live) -> None:
    """Only an administrator or a lead of that very name gives such a key, and another lead cannot create the study."""
    early = create_key(here.coordinator, ApiKeyCreate(role="viewer", study="to-come", name="Ada")).key
    other = create_key(here.coordinator, ApiKeyCreate(role="lead", study="elsewhere", name="Eve")).key
    body = {"study": "to-come", "settings": settings().as_json()}
    assert here.send("GET", "/v1/studies/to-come", early).status_code == 404
    assert here.send("POST", "/v1/studies", other, json=body).status_code == 403
    lead = create_key(here.coordinator, ApiKeyCreate(role="lead", study="to-come", name="Grace")).key
    assert here.send("POST", "/v1/studies", lead, json=body).status_code == 201
    assert here.send("GET", "/v1/studies/to-come", early).status_code == 200
    # A name is used once, so that an old key never opens a new study.
    assert here.send("DELETE", "/v1/studies/to-come", lead).status_code == 204
    assert here.send("POST", "/v1/studies", lead, json=body).status_code == 409
