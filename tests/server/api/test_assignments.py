"""The long poll: an answer as soon as there is one, nothing held while waiting."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from study_protocol.study.messages import Assignment, AssignmentBody
from study_protocol.wire.signing import ASSIGNMENT, decode_public_key, verify_document
from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import Live, live


def _poll(here: Live, who: Hospital, wait: float) -> httpx.Response:
    return here.signed(who, "GET", f"/v1/studies/{who.study}/assignment?wait={wait}")


def test_nothing_to_do_is_204(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    answer = _poll(here, who, 0)
    assert (answer.status_code, answer.content) == (204, b"")


def test_an_assignment_is_signed_by_the_coordinator(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    answer = _poll(here, north, 0)
    found = Assignment.model_validate_json(answer.content)
    key = decode_public_key(here.operator("GET", f"/v1/studies/{study}").json()["coordinator_key"])
    verify_document(key, ASSIGNMENT, found.assignment.model_dump(mode="json"), found.signature)
    assert (found.assignment.client, found.assignment.round, found.assignment.study) == ("north", 1, study)
    assert found.assignment.model.version == 0


def test_a_waiting_client_is_woken(here: Live, study: str) -> None:
    here.open_study(study)
    hospitals = [here.enrol(study, name) for name in ("north", "south")]
    with ThreadPoolExecutor(2) as pool:
        waiting: list[Future[httpx.Response]] = [pool.submit(_poll, here, who, 20) for who in hospitals]
        time.sleep(0.2)
        assert not any(poll.done() for poll in waiting)
        here.operator("POST", f"/v1/studies/{study}/start")
        here.work()
        answers = [poll.result() for poll in waiting]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert {AssignmentBody(**answer.json()["assignment"]).client for answer in answers} == {"north", "south"}


def test_whoever_has_answered_waits(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    assert here.put_update(north, 1, update()).status_code == 201
    assert _poll(here, north, 0).status_code == 204


@pytest.mark.slow
def test_waiting_holds_no_thread_and_no_connection(tmp_path: Path) -> None:
    """More waiters than the thread pool has threads, and the server still answers others."""
    with ThreadPoolExecutor(60) as callers, httpx.Client(timeout=30, trust_env=False) as shared:
        with live(tmp_path / "home") as crowded:
            crowded.open_study("ward")
            who = crowded.enrol("ward", "north")
            path = "/v1/studies/ward/assignment?wait=25"
            headers = {"Authorization": f"Bearer {crowded.token(who, 'GET', path)}"}
            waiting = [callers.submit(shared.get, crowded.url + path, headers=headers) for _ in range(60)]
            time.sleep(1.0)
            assert crowded.operator("GET", "/v1/studies/ward").status_code == 200
            assert not any(poll.done() for poll in waiting)
            assert crowded.coordinator.database.engine.pool.checkedout() <= 1  # type: ignore[attr-defined]
        assert [poll.result().status_code for poll in waiting] == [204] * 60


def test_the_end_of_a_study_reaches_the_waiting(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    stopping = threading.Timer(0.2, here.operator, ["POST", f"/v1/studies/{study}/stop"])
    stopping.start()
    answer = _poll(here, who, 20)
    stopping.join()
    assert (answer.status_code, answer.json()["code"]) == (409, "study-finished")
    assert answer.json()["extra"] == {"stop_reason": "stopped"}


def test_a_withdrawn_client_gets_no_work(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    for _ in range(2):
        answer = here.signed(who, "PUT", f"/v1/studies/{study}/clients/north/withdrawn")
        assert answer.json()["state"] == "withdrawn"
    answer = _poll(here, who, 0)
    assert (answer.status_code, answer.json()["code"]) == (403, "revoked")


@pytest.mark.parametrize("wait", ["-1", "56", "nan", "inf", "x"])
def test_a_wait_out_of_range_is_refused(here: Live, study: str, wait: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    answer = here.signed(who, "GET", f"/v1/studies/{study}/assignment?wait={wait}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
