"""A study that lacks a hospital pauses by itself, and goes on to its end once that hospital joins: nobody resumes it.

With real processes over HTTP. The coordinator is killed while the study is paused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk.api.client import Client
from study_protocol.study.messages import InvitationCreate, StudyCreate
from tests.e2e.test_failpoints import _initial_model
from tests.harness import tiny
from tests.harness.dying_processes import Stage
from wardround.demo.live import site_policy
from wardround.demo.processes import Processes, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STUDY, ROUNDS = "back", 8
# Three rounds pass without an answer of the second hospital.
DEADLINE_SECONDS = 12.0
SETTINGS = tiny.settings(
    "parallel", clients=2, rounds=ROUNDS, bayesian=False, deadline_seconds=DEADLINE_SECONDS, noise_multiplier=20.0
)


def open_study(scene: Stage, operator: Client) -> None:
    operator.create_study(StudyCreate(study=STUDY, title="hospitals return", settings=SETTINGS))
    operator.put_initial_model(STUDY, _initial_model(SETTINGS))
    for name, hospital in scene.hospitals.items():
        token = operator.invite(STUDY, InvitationCreate(client=name)).token
        hospital.enrol(scene.coordinator.origin, token, site_policy(STUDY, SETTINGS))
    scene.join("alpha", STUDY)
    operator.move_study(STUDY, "start")


def test_a_study_goes_on_by_itself_when_its_hospitals_are_back(tmp_path: Path) -> None:
    with Processes() as processes:
        scene = Stage(tmp_path, None, processes, {"alpha": 12, "beta": 12})
        scene.coordinator.prepare()
        scene.serve()
        scene.coordinator.wait_ready()
        with scene.coordinator.operator(patience_seconds=120) as operator:
            open_study(scene, operator)

            def wait_for(state: str) -> None:
                assert until(
                    lambda: operator.study(STUDY).state == state, seconds=300.0, check=processes.check, every=0.5
                ), state

            wait_for("paused")
            paused = operator.study(STUDY)
            assert paused.pause_reason is not None
            assert paused.pause_reason.code == "too-few-clients"
            assert "resumes by itself" in paused.pause_reason.detail
            assert paused.model is not None
            assert paused.model.version == 0
            scene.stop_coordinator()
            scene.serve()
            scene.coordinator.wait_ready()
            scene.join("beta", STUDY)
            wait_for("finished")
            ended, ledger = operator.study(STUDY), operator.ledger(STUDY)
        assert ended.stop_reason == "max-steps-reached"
        assert ended.resumed_at is not None
        assert ended.resumed_at >= paused.state_since
        # What one hospital sent into a failed round stays charged, and no step is taken twice.
        charged = [entry.kind for entry in ledger.entries if entry.kind in ("settled", "charged-in-full")]
        assert len(charged) == ROUNDS
        assert charged[-1] == "settled"
        assert [process.wait(120.0) for process in scene.joined.values()] == [0, 0]
