"""Every named failpoint of a masked round, in coordinator, worker and hospital: killed there, the study ends in order.

Real processes and real sockets, as for unmasked studies; within one run every failpoint is walked through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from client_sdk.api.client import Client
from client_sdk.guard.policy import POLICY_FILE
from client_sdk.study.hospital import Hospital
from private_learning.tasks import load
from private_learning.training.weights import weights_of
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode
from tests.harness import laws, tiny
from tests.harness.dying_processes import HIT_SECONDS, MASKED, Stage
from tests.harness.forked import ForkedProcesses
from wardround.demo.live import compare_and_pin, embedded_postgres, site_policy
from wardround.demo.processes import until

pytestmark = pytest.mark.timeout(600)

# Four hospitals, all of whom are needed: whoever dies is waited for.
MEMBERS: dict[str, int] = dict.fromkeys(("alpha", "beta", "gamma", "delta"), 12)
# Most deaths take no round of their own, some do: those after which the others need nobody.
ROUNDS = 18
LONG, SHORT = 3600.0, 1.0
AT_A_DEADLINE = sorted(name for name in MASKED if name.endswith("-advance"))
COORDINATING = sorted(name for name in MASKED if not name.startswith("hospital.") and name not in AT_A_DEADLINE)
TAKING_PART = [f"hospital.after-{step}" for step in ("keys", "shares", "octets", "consistency")]
REPLYING = "hospital.after-unmask"


# Unmasked rounds are killed on SQLite first: tests/e2e/test_failpoints.py.
@pytest.fixture(params=["postgresql", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sqlite", "objects"))])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    store = request.getfixturevalue("object_store") if request.param == "objects" else None
    database = nullcontext(None) if request.param == "sqlite" else embedded_postgres()
    with database as url, ForkedProcesses() as processes:
        yield Stage(tmp_path, url, processes, MEMBERS, store)


@pytest.mark.slow
def test_killed_at_every_failpoint_of_a_masked_round(stage: Stage) -> None:
    # Nobody comes to `late`: the first deadline of its sessions passes, and every round of it is given back.
    studies = {
        "masked": tiny.settings("parallel", clients=4, rounds=ROUNDS, deadline_seconds=LONG, step_seconds=LONG),
        "late": tiny.settings("parallel", clients=4, rounds=ROUNDS, deadline_seconds=SHORT, step_seconds=SHORT),
    }
    stage.coordinator.prepare()
    stage.serve()
    stage.coordinator.wait_ready()
    with stage.coordinator.operator() as operator:
        for study, settings in studies.items():
            _open(stage, operator, study, settings)
    for name in MEMBERS:
        stage.join(name, "masked")
    stage.stop_coordinator()
    for failpoint in (*AT_A_DEADLINE, *COORDINATING):
        stage.wait_dead(stage.serve(failpoint), failpoint)
    # Without it no round begins anew, so that enough are left.
    stage.joined["alpha"].kill()
    stage.serve()
    for failpoint in TAKING_PART:
        stage.wait_dead(stage.join("alpha", "masked", failpoint), failpoint)
    # Three replies open the sum: of two hospitals at least one is among them.
    stage.joined["beta"].kill()
    both = [stage.join(name, "masked", REPLYING) for name in ("alpha", "beta")]
    assert until(lambda: REPLYING in stage.hit(), seconds=HIT_SECONDS, check=_nothing)
    for process in both:
        process.kill()
        stage.join(process.name, "masked")
    assert set(stage.hit()) == MASKED

    with stage.coordinator.operator(patience_seconds=HIT_SECONDS) as operator:
        operator.move_study("late", "stop")
        for name, process in stage.joined.items():
            assert process.wait(HIT_SECONDS) == 0, f"{name}: {process.log.read_text()[-2000:]}"
        assert until(lambda: _finished(operator), seconds=HIT_SECONDS, check=stage.processes.check, every=0.5)
        homes = {name: hospital.home for name, hospital in stage.hospitals.items()}
        budget = laws.check(operator, "masked", homes)
        assert (budget.charged_rounds, operator.budget("masked").stop_reason) == (ROUNDS, "max-steps-reached")
        assert {view.state for view in laws.whole_history(operator, "masked")} == {"released"}
        # Nothing was opened there, so nothing was paid.
        assert laws.check(operator, "late", {}).charged_rounds == 0
        abandoned = {view.reason for view in laws.whole_history(operator, "late") if view.state == "abandoned"}
        assert abandoned == {"too-few-keys"}


def _open(stage: Stage, operator: Client, study: str, settings: StudySettings) -> None:
    """Create, enrol, start; only what dies needs a process of its own."""
    operator.create_study(StudyCreate(study=study, title="tiny", settings=settings))
    model = load(settings.training.task, settings.training.task_parameters).model()
    operator.put_initial_model(study, encode(weights_of(model)))
    for name in MEMBERS:
        home = stage.hospitals[name].home
        token = operator.invite(study, InvitationCreate(client=name)).token
        Hospital.enrol(stage.coordinator.origin, token, directory=home)
        (home / POLICY_FILE).write_text(site_policy(study, settings).replace(f'"{study}"', '"masked"'))
    compare_and_pin(study, [Hospital.open(stage.hospitals[name].home) for name in MEMBERS])
    operator.move_study(study, "start")


def _finished(operator: Client) -> bool:
    return all(operator.study(study).state == "finished" for study in ("masked", "late"))


def _nothing() -> None:
    """Whoever ends meanwhile ends as it should."""
