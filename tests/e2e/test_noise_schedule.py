"""A masked study with a noise schedule, in processes: a round is abandoned, coordinator and hospital are killed.

No place of the schedule is used twice, on any disk, and what is stated follows from the places that were charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.api.client import Client
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import POLICY_FILE
from client_sdk.study.hospital import Hospital
from private_learning.tasks import load
from private_learning.training.weights import weights_of
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode
from tests.harness import laws, tiny
from tests.harness.dying_processes import HIT_SECONDS, Stage
from tests.harness.forked import ForkedProcesses
from wardround.demo.live import compare_and_pin, site_policy
from wardround.demo.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MEMBERS: dict[str, int] = dict.fromkeys(("alpha", "beta", "gamma", "delta"), 12)
FALLING = [{"rounds": 3, "factor": 1.5}, {"rounds": 4, "factor": 1.25}, {"rounds": 5, "factor": 1.0}]
ROUNDS = 12
# Long enough for a hospital that comes back, and all that the first round waits for one that does not come.
STEP_SECONDS = 25.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ForkedProcesses() as processes:
        yield Stage(tmp_path, None, processes, MEMBERS)


@pytest.mark.parametrize("rule", ["renyi-order", "fixed-plan"])
def test_no_place_of_a_schedule_is_used_twice_whatever_is_killed(stage: Stage, rule: str) -> None:
    limit = {"level": "instance", "definition": "classical", "epsilon": 4.0, "delta": 1e-3, "enforcement": rule}
    settings = tiny.settings(
        "parallel", clients=4, rounds=ROUNDS, bayesian=False, deadline_seconds=3600.0, step_seconds=STEP_SECONDS,
        limits=[limit], noise_schedule=FALLING,
    )  # fmt: skip
    stage.coordinator.prepare()
    stage.serve()
    stage.coordinator.wait_ready()
    with stage.coordinator.operator() as operator:
        _open(stage, operator, settings)
        # All four are needed: the first round waits in vain, and its place is gone.
        for name in ("alpha", "beta", "gamma"):
            stage.join(name, "falling")
        assert until(lambda: "cancelled" in _kinds(operator), seconds=HIT_SECONDS, check=stage.processes.check)
    stage.join("delta", "falling")
    stage.stop_coordinator()
    for failpoint in ("worker.after-sum", "worker.before-model-file"):
        stage.wait_dead(stage.serve(failpoint), failpoint)
    stage.joined["alpha"].kill()
    stage.serve()
    for failpoint in ("hospital.after-charge", "hospital.after-octets"):
        stage.wait_dead(stage.join("alpha", "falling", failpoint), failpoint)
    stage.join("alpha", "falling")

    with stage.coordinator.operator(patience_seconds=HIT_SECONDS) as operator:
        for name, process in stage.joined.items():
            assert process.wait(2 * HIT_SECONDS) == 0, f"{name}: {process.log.read_text()[-2000:]}"
        homes = {name: hospital.home for name, hospital in stage.hospitals.items()}
        # Among the laws: ε by a formula of its own, and every hospital's charges at the noise of the round's place.
        budget = laws.check(operator, "falling", homes)
        assert operator.budget("falling").stop_reason == "max-steps-reached"
        entries = laws.whole_ledger(operator, "falling")
    begun = [entry.round for entry in entries if entry.kind == "reserved"]
    assert (len(begun), budget.attempts) == (ROUNDS, ROUNDS)
    assert budget.charged_rounds < ROUNDS
    for home in homes.values():
        with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
            paid = {entry.round: entry.body["attempt"] for entry in ledger.entries if entry.kind == "reserved"}
        assert paid == {number: begun.index(number) + 1 for number in paid}
        assert len(paid) >= budget.charged_rounds


def _open(stage: Stage, operator: Client, settings: StudySettings) -> None:
    operator.create_study(StudyCreate(study="falling", title="tiny", settings=settings))
    model = load(settings.training.task, settings.training.task_parameters).model()
    operator.put_initial_model("falling", encode(weights_of(model)))
    for name in MEMBERS:
        home = stage.hospitals[name].home
        token = operator.invite("falling", InvitationCreate(client=name)).token
        Hospital.enrol(stage.coordinator.origin, token, directory=home)
        (home / POLICY_FILE).write_text(site_policy("falling", settings))
    compare_and_pin("falling", [Hospital.open(stage.hospitals[name].home) for name in MEMBERS])
    operator.move_study("falling", "start")


def _kinds(operator: Client) -> set[str]:
    return {entry.kind for entry in laws.whole_ledger(operator, "falling")}
