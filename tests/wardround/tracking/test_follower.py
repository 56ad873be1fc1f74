"""A study on a tracking server: all that is released, once, whatever breaks on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest

from client_sdk.api.client import ApiKey, Client
from client_sdk.api.config import Connection
from client_sdk.errors import LedgerNotExtended
from study_protocol.documents.check import open_certificate
from tests.factories.hospital_double import Hospital
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings
from tests.factories.tracking import MemoryRun, MemoryServer, follower, release
from wardround.tracking.errors import TrackingRefused, TrackingServerAway
from wardround.tracking.follower import StudyFollower

NAMES = ("mercy", "clinic-of-nobody")
SETTINGS = settings(max_steps=2, schedule={"min_clients": 2})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture(scope="module")
def client(here: Live) -> Iterator[Client]:
    """An operator's, whose answers name the hospitals of a round."""
    with Client(Connection(url=here.url), ApiKey(here.operator_key)) as client:
        yield client


@pytest.fixture(scope="module")
def viewer(here: Live) -> Iterator[Client]:
    with Client(Connection(url=here.url), ApiKey(here.viewer_key)) as client:
        yield client


@pytest.fixture(scope="module")
def finished(here: Live) -> str:
    """A study of two rounds, and a metric of the second."""
    hospitals = begun(here, "finished")
    for round_number in (1, 2):
        release(here, hospitals, round_number)
    measured(here, "finished", 2)
    return "finished"


def begun(here: Live, study: str) -> list[Hospital]:
    """A study of two rounds in its first one."""
    return here.running(study, *NAMES, settings=SETTINGS)


def measured(here: Live, study: str, round_number: int) -> None:
    body = {"evaluation_set": "held-out", "values": {"auroc": 0.5 + round_number / 10}}
    path = f"/v1/studies/{study}/models/{round_number}/metrics"
    assert here.operator("PUT", path, json=body).status_code in (200, 201)


def only(server: MemoryServer) -> MemoryRun:
    (run,) = server.runs.values()
    return run


def keys(run: MemoryRun) -> list[tuple[str, int]]:
    return [(point.key, point.step) for point in run.points]


def test_everything_that_is_released_arrives_and_nothing_else(here: Live, client: Client, finished: str) -> None:
    server, limit = MemoryServer(), "instance/classical"
    report = follower(client, server, finished).copy()
    run = only(server)
    assert (report.is_over, run.status, run.tags["wardround.state"]) == (True, "FINISHED", "finished")
    assert {(f"epsilon_spent/{limit}", 1), (f"epsilon_limit/{limit}", 2), ("auroc", 2)} <= set(keys(run))
    spent = [
        view["spent"][0]["spent"] for view in here.operator("GET", f"/v1/studies/{finished}/rounds").json()["rounds"]
    ]
    assert [point.value for point in run.points if point.key == f"epsilon_spent/{limit}"] == spent
    assert json.loads(run.files["settings.json"]) == SETTINGS.as_json()
    model = here.operator("GET", f"/v1/studies/{finished}/models/2").content
    assert run.files["model-round-2/model.safetensors"] == model
    certificate = json.loads(run.files["model-round-2/certificate.json"])["certificate"]
    ((name, source, tags),) = server.versions
    assert (name, source) == (finished, f"{report.run_id}/model-round-2")
    assert (tags["wardround.model_sha256"], tags["wardround.round"]) == (hashlib.sha256(model).hexdigest(), "2")
    assert tags["wardround.ledger_head"] == certificate["ledger"]["sha256"] == run.tags["wardround.ledger_head"]
    assert not any(hospital in repr(server) for hospital in NAMES)


def test_a_viewers_key_is_enough(client: Client, viewer: Client, finished: str) -> None:
    servers = MemoryServer(), MemoryServer()
    for reader, server in zip((client, viewer), servers, strict=True):
        follower(reader, server, finished).copy()
    assert without_certificate(servers[0]) == without_certificate(servers[1])


def test_a_follower_that_is_started_again_sends_nothing_twice(here: Live, viewer: Client) -> None:
    hospitals, server = begun(here, "again"), MemoryServer()
    first = follower(viewer, server, "again").copy(with_model=True)
    assert (first.new_points, first.model_version, first.is_over) == (0, None, False)
    release(here, hospitals, 1)
    assert follower(viewer, server, "again").copy(with_model=True).new_points > 0
    again = follower(viewer, server, "again").copy(with_model=True)
    assert (again.new_points, again.model_version, len(server.versions)) == (0, "1", 1)
    release(here, hospitals, 2)
    measured(here, "again", 1)
    for _ in range(2):
        follower(viewer, server, "again").copy()
    run = only(server)
    assert len(keys(run)) == len(set(keys(run)))
    assert ("auroc", 1) in keys(run)
    assert [tags["wardround.round"] for _, _, tags in server.versions] == ["1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("loses_answers", [False, True])
def test_an_outage_at_any_call_loses_and_doubles_nothing(viewer: Client, finished: str, loses_answers: bool) -> None:
    whole = MemoryServer()
    follower(viewer, whole, finished).copy()
    for calls in range(20):
        server = MemoryServer(calls_left=calls, loses_answers=loses_answers)
        following = follower(viewer, server, finished)
        try:
            following.copy()
        except TrackingServerAway:
            server.calls_left = None
            following.copy()
            assert without_certificate(server) == without_certificate(whole), f"away after {calls} calls"
        else:
            assert calls > 5
            return
    raise AssertionError("no pass is that long")


def without_certificate(server: MemoryServer) -> tuple[MemoryRun, list[tuple[str, str, dict[str, str]]]]:
    """A certificate names the second in which it was issued."""
    run = only(server)
    run.files["model-round-2/certificate.json"] = b""
    return run, server.versions


def test_a_registered_model_of_another_study_is_left_alone(viewer: Client, finished: str) -> None:
    server = MemoryServer(owners={finished: {"wardround.study": "stroke"}})
    with pytest.raises(TrackingRefused):
        follower(viewer, server, finished).copy()
    assert server.versions == []


def test_a_study_without_a_model_has_no_version(here: Live, viewer: Client) -> None:
    begun(here, "stopped")
    server = MemoryServer()
    assert here.operator("POST", "/v1/studies/stopped/stop").status_code == 200
    here.work()
    report = follower(viewer, server, "stopped").copy()
    assert (report.is_over, report.model_version, only(server).status) == (True, None, "KILLED")


def test_a_certificate_of_another_model_is_not_registered_with_this_one(viewer: Client, finished: str) -> None:
    server, earlier = MemoryServer(), open_certificate(viewer.certificate(finished, 1))
    following = StudyFollower(viewer, finished, server, finished, lambda _: earlier)
    with pytest.raises(LedgerNotExtended):
        following.copy()
    assert server.versions == []
