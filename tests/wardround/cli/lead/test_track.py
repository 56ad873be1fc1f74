"""`wardround study track` (`wardround.cli.lead.track`) against a tracking server in memory."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import wardround.tracking.mlflow_server
from tests.factories.commands import Run
from tests.factories.live_coordinator import Live
from tests.factories.settings import settings
from tests.factories.tracking import MemoryServer, release
from wardround.cli.lead import track

MLFLOW = ("--mlflow", "http://127.0.0.1:5000")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> MemoryServer:
    server = MemoryServer()

    def connected(address: str, experiment: str) -> MemoryServer:
        assert (address, experiment) == (MLFLOW[1], "wardround")
        return server

    monkeypatch.setattr(wardround.tracking.mlflow_server, "MlflowServer", connected)
    return server


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Pass --mlflow or set MLFLOW_TRACKING_URI"),
        ((*MLFLOW, "--registered-model", "sepsis/final"), "at most 200"),
        ((*MLFLOW, "--registered-model", "' or name != '"), "at most 200"),
        ((*MLFLOW, "--experiment", " "), "1 to 500 characters"),
        (("--mlflow", "mlruns"), "begins with http:// or https://"),
    ],
)
def test_bad_options_are_named_before_a_server_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert words in run("study", "track", "sepsis", *options, operator=True, code=1).stderr


def test_an_unknown_study_makes_no_run(here: Live, run: Run, server: MemoryServer) -> None:
    assert "unknown-study" in run("study", "track", "nowhere", *MLFLOW, operator=True, code=1).stderr
    assert server.runs == {}


def test_a_study_is_followed_to_its_end_through_an_outage(
    here: Live, run: Run, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals = here.running("sepsis", "mercy", "bay", settings=settings(max_steps=2, schedule={"min_clients": 2}))
    release(here, hospitals, 1)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        # Away for two looks, in which there is a round to send.
        server.calls_left = 0 if len(waits) < 3 else None
        if len(waits) == 1:
            release(here, hospitals, 2)

    monkeypatch.setattr(track, "time", SimpleNamespace(sleep=wait))
    done = run("study", "track", "sepsis", *MLFLOW, "--every", "7", operator=True)
    assert waits == [7.0, 7.0, 7.0]
    assert done.stderr == "away. Trying again every 7 s\nthe server answers again\n"
    assert done.stdout.splitlines()[-1] == "model: version 1 of sepsis"
    assert {step for tracked in server.runs.values() for step in (point.step for point in tracked.points)} == {1, 2}


def test_a_server_that_is_away_at_the_start_is_an_error(here: Live, run: Run, server: MemoryServer) -> None:
    here.open_study("sepsis")
    server.calls_left = 0
    assert run("study", "track", "sepsis", *MLFLOW, operator=True, code=5).stderr == "wardround: away\n"


def test_once_prints_json(here: Live, run: Run, server: MemoryServer) -> None:
    here.open_study("sepsis")
    report = json.loads(run("study", "track", "sepsis", *MLFLOW, "--once", "--json", operator=True).stdout)
    assert (report["study"], report["new_points"], report["model_version"]) == ("sepsis", 0, None)
