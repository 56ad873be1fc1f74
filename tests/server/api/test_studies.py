"""A study's life over HTTP, its history and its budget; everything repeatable."""

from __future__ import annotations

import json

import pytest

from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import settings_json, statistics_settings


def test_opening_is_repeatable_and_settings_freeze(here: Live, study: str) -> None:
    request = {"study": study, "settings": settings_json()}
    assert [here.operator("POST", "/v1/studies", json=request).status_code for _ in range(2)] == [201, 200]
    other = {"study": study, "settings": settings_json(noise_multiplier=2.0)}
    assert code_of(here.operator("POST", "/v1/studies", json=other)) == (409, "study-exists")


def test_questions_come_first_and_training_begins_when_it_is_told_to(here: Live, study: str) -> None:
    statistics = {"max_queries": 5, "max_cells": 10}
    request = {"study": study, "settings": settings_json(statistics=statistics)}
    assert here.operator("POST", "/v1/studies", json=request).status_code == 201
    path = f"/v1/studies/{study}"
    assert code_of(here.operator("POST", f"{path}/train")) == (409, "model-missing")
    here.operator("PUT", f"{path}/models/0", content=encode(MODEL))
    assert code_of(here.operator("POST", f"{path}/train")) == (409, "study-not-running")
    for name in ("alpha", "beta"):
        here.enrol(study, name)
    for _ in range(2):
        asking = here.operator("POST", f"{path}/start?questions_first=true").json()
        assert (asking["state"], asking["pause_reason"]["code"]) == ("paused", "questions-first")
    for action in ("start", "pause", "resume"):
        answer = here.operator("POST", f"{path}/{action}")
        assert code_of(answer) == (409, "study-not-running")
        assert "wardround study train" in answer.json()["detail"]
    for _ in range(2):
        assert here.operator("POST", f"{path}/train").json()["state"] == "running"
    assert code_of(here.operator("POST", f"{path}/start?questions_first=true")) == (409, "study-begun")


def test_questions_come_first_only_where_a_study_trains_and_takes_some(here: Live, study: str) -> None:
    for name, settings, code in (
        (study, settings_json(), (409, "no-queries")),
        (f"{study}-asks", statistics_settings(masked=False).as_json(), (422, "invalid-request")),
    ):
        assert here.operator("POST", "/v1/studies", json={"study": name, "settings": settings}).status_code == 201
        if "training" in settings:
            here.operator("PUT", f"/v1/studies/{name}/models/0", content=encode(MODEL))
        for client in ("alpha", "beta"):
            here.enrol(name, client)
        assert code_of(here.operator("POST", f"/v1/studies/{name}/start?questions_first=true")) == code


@pytest.mark.parametrize("parameters", [{"a": "\udfff"}, {"\ud800": 1}], ids=["value", "name"])
def test_half_a_character_is_no_task_parameter(here: Live, study: str, parameters: dict[str, object]) -> None:
    chosen = settings_json()
    chosen["training"]["task_parameters"] = parameters
    # Written as an escape: the body itself is UTF-8.
    body = json.dumps({"study": study, "settings": chosen}).encode()
    answer = here.operator("POST", "/v1/studies", content=body, headers={"Content-Type": "application/json"})
    assert code_of(answer) == (422, "invalid-request")


def test_a_study_whose_first_round_would_overspend_is_told_the_noise_that_fits(here: Live, study: str) -> None:
    limit = {"level": "instance", "definition": "classical", "epsilon": 1.0, "delta": 1e-5}
    first = {"limits": [limit], "sampling_rate": 1.0, "classical_order": 64.0}
    request = {"study": study, "settings": settings_json(**first, noise_multiplier=1.0)}
    answer = here.operator("POST", "/v1/studies", json=request)
    assert code_of(answer) == (422, "first-round-overspends")
    fitting = answer.json()["extra"]
    assert fitting["noise_max_steps"] >= fitting["noise_one_round"] > 1.0
    assert code_of(here.operator("GET", f"/v1/studies/{study}")) == (404, "unknown-study")
    request["settings"] = settings_json(**first, noise_multiplier=fitting["noise_one_round"])
    assert here.operator("POST", "/v1/studies", json=request).status_code == 201


@pytest.mark.slow
def test_a_plan_with_one_step_too_many_is_refused_and_told_how_many_fit(here: Live, study: str) -> None:
    limit = {"level": "instance", "definition": "classical", "epsilon": 2.0, "delta": 1e-5}
    sampled = {"limits": [limit | {"enforcement": "fixed-plan"}], "sampling_rate": 0.1, "noise_multiplier": 2.0}
    request = {"study": study, "settings": settings_json(**sampled, max_steps=1000)}
    fitting = here.operator("POST", "/v1/studies", json=request).json()["extra"]
    steps = fitting["max_steps"]
    # An independent accountant finds at most as many (docs/decisions/fixed-order.md).
    assert 70 <= steps <= 73
    assert fitting["epsilon"] > 2.0
    assert fitting["noise_max_steps"] > 2.0
    request["settings"] = settings_json(**sampled, max_steps=steps + 1)
    answer = here.operator("POST", "/v1/studies", json=request)
    assert code_of(answer) == (422, "whole-plan-overspends")
    assert f"the whole plan of {steps + 1} steps spends" in answer.json()["detail"]
    assert code_of(here.operator("GET", f"/v1/studies/{study}")) == (404, "unknown-study")
    request["settings"] = settings_json(**sampled, max_steps=steps)
    assert here.operator("POST", "/v1/studies", json=request).status_code == 201


def test_a_study_needs_its_model_before_it_starts(here: Live, study: str) -> None:
    here.open_study(study, model=False)
    assert code_of(here.operator("POST", f"/v1/studies/{study}/start")) == (409, "model-missing")


def test_every_action_is_repeatable(here: Live, study: str) -> None:
    here.open_study(study)
    for name in ("north", "south"):
        here.enrol(study, name)
    for action, state in [("start", "running"), ("pause", "paused"), ("resume", "running"), ("stop", "finished")]:
        for _ in range(2):
            assert here.operator("POST", f"/v1/studies/{study}/{action}").json()["state"] == state
    assert code_of(here.operator("POST", f"/v1/studies/{study}/start")) == (409, "study-finished")


def test_studies_are_listed_page_by_page(here: Live, study: str) -> None:
    names = [f"{study}-{letter}" for letter in "abc"]
    for name in names:
        here.open_study(name, model=False)
    assert code_of(here.operator("GET", f"/v1/studies?after={study}-")) == (422, "invalid-request")
    first = here.operator("GET", f"/v1/studies?limit=1&after={names[0]}").json()
    assert [shown["study"] for shown in first["studies"]] == [names[1]]
    assert first["next"] == names[1]


@pytest.mark.parametrize(
    "noun", ["", "/budget", "/ledger", "/rounds", "/rounds/1", "/roster", "/events?wait=0", "/models/0"]
)
def test_no_such_study(here: Live, noun: str) -> None:
    assert code_of(here.operator("GET", f"/v1/studies/nowhere{noun}")) == (404, "unknown-study")


def test_a_limit_under_which_no_question_could_be_asked_is_refused(here: Live, study: str) -> None:
    chosen = statistics_settings(masked=False, epsilon=45.0).as_json() | {"beyond_bounds": True}
    answer = here.operator("POST", "/v1/studies", json={"study": study, "settings": chosen})
    assert code_of(answer) == (422, "invalid-request")
    assert "no query could ever be asked" in answer.json()["detail"]
    assert code_of(here.operator("GET", f"/v1/studies/{study}")) == (404, "unknown-study")
