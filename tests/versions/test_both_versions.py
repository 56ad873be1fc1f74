"""A study with programs of the version before and of this one, over HTTP: to its end with the same ε, or a clear no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from accounting.budget.budget import Budget
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from study_protocol.study.messages import InvitationCreate
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.harness import laws, tiny
from tests.harness.forked import ForkedProcesses
from tests.versions import previous as previous_version
from wardround.demo.live import LiveCoordinator, LiveHospital, open_study
from wardround.demo.processes import WARDROUND, Processes, ProcessFailed

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
SECONDS = 300.0
STUDY = "versions"
ROUNDS = 3
NAMES = ("alpha", "beta", "gamma", "delta")


@dataclass(frozen=True)
class Running:
    """A study that was started, and its hospitals, not yet joined."""

    coordinator: LiveCoordinator
    hospitals: Mapping[str, LiveHospital]
    settings: StudySettings

    def homes(self) -> dict[str, Path]:
        return {name: hospital.home for name, hospital in self.hospitals.items()}


def started(
    home: Path,
    processes: Processes,
    *,
    masked: bool,
    coordinator: Sequence[str],
    hospitals: Sequence[Sequence[str]],
    enrolled_by: Sequence[str] | None = None,
    database_url: str | None = None,
) -> Running:
    """`coordinator` and each of `hospitals` is the command of the version that runs there.

    enrolled_by  the command that enrols all hospitals. None: each its own
    """
    coordinator_type = LiveCoordinator if coordinator == WARDROUND else previous_version.PreviousCoordinator
    live = coordinator_type(
        home / "coordinator",
        processes,
        database_url=database_url,
        command=coordinator,
        # A study whose ledger names its models needs the newer program at every hospital.
        variables={"WARDROUND_BIND_MODELS": "false"} if coordinator == WARDROUND else {},
    )
    live.prepare()
    live.serve()
    made = tiny.hospitals(home / "hospitals", dict.fromkeys(NAMES, 20), processes)
    made = {name: replace(made[name], command=command) for name, command in zip(NAMES, hospitals, strict=True)}
    step_seconds = tiny.STEP_SECONDS if masked else None
    settings = tiny.settings(
        "sequential" if masked else "parallel",
        clients=len(NAMES),
        rounds=ROUNDS,
        bayesian=False,
        deadline_seconds=tiny.DEADLINE_SECONDS,
        step_seconds=step_seconds,
    )
    enrolling = made if enrolled_by is None else {name: replace(one, command=enrolled_by) for name, one in made.items()}
    with live.operator() as operator:
        open_study(operator, STUDY, "two versions", settings, enrolling, live.origin)
    return Running(live, made, settings)


def epsilon_of(settings: StudySettings) -> float:
    """What the plan says of all its rounds, computed here."""
    budget = Budget(plan_of(settings))
    for round in range(1, ROUNDS + 1):
        budget.reserve(round)
        budget.settle(round, None)
    return budget.accounts[0].epsilon()


@pytest.mark.parametrize("coordinator", ["this", "previous"])
def test_both_versions_finish_a_study_in_the_clear_with_the_same_epsilon(
    coordinator: str, previous: tuple[str, ...], tmp_path: Path
) -> None:
    commands = {"this": WARDROUND, "previous": previous}
    with ForkedProcesses() as processes:
        study = started(
            tmp_path,
            processes,
            masked=False,
            coordinator=commands[coordinator],
            hospitals=[previous, WARDROUND, previous, WARDROUND],
        )
        joined = [one.join(STUDY, study.coordinator.origin) for one in study.hospitals.values()]
        assert [process.wait(SECONDS) for process in joined] == [0] * len(NAMES)
        with study.coordinator.operator() as operator:
            laws.check(operator, STUDY, study.homes())
            stated = operator.budget(STUDY)
        assert stated.round == ROUNDS
        (spent,) = (limit.spent for limit in stated.limits if limit.definition == "classical" and limit.spent)
        assert spent == epsilon_of(study.settings)


def _said(hospital: LiveHospital) -> str:
    return " ".join(hospital.log.read_text().split())


def _charges(hospital: LiveHospital) -> int:
    if not ledger_path(hospital.home, "records").exists():
        return 0
    with HospitalLedger.open(ledger_path(hospital.home, "records"), read_only=True) as ledger:
        return len(ledger.charges())


def test_a_study_that_needs_more_refuses_the_version_before(previous: tuple[str, ...], tmp_path: Path) -> None:
    with ForkedProcesses() as processes:
        study = started(
            tmp_path,
            processes,
            masked=True,
            coordinator=WARDROUND,
            hospitals=[WARDROUND, WARDROUND, WARDROUND, previous],
            enrolled_by=WARDROUND,
        )
        old = study.hospitals[NAMES[-1]]
        # It cannot enrol, and its invitation stays unused.
        late = replace(old, name="late", home=tmp_path / "late")
        with study.coordinator.operator() as operator:
            token = operator.invite(STUDY, InvitationCreate(client=late.name)).token
            with pytest.raises(ProcessFailed):
                late.enrol(study.coordinator.origin, token, "")
            for words in ("client-too-old", "names no version", "enrol again with the same token: it was not used"):
                assert words in _said(late), _said(late)
            assert late.name not in [member.client for member in operator.roster(STUDY).members]
        assert old.join(STUDY, study.coordinator.origin).wait(SECONDS) != 0
        said = _said(old)
        for words in ("client-too-old", "install the version that the coordinator runs"):
            assert words in said, said
        assert _charges(old) == 0
        # Once this version is installed there, the same directory goes on, and nothing is lost.
        renewed = [replace(one, command=WARDROUND) for one in study.hospitals.values()]
        joined = [one.join(STUDY, study.coordinator.origin) for one in renewed]
        assert [process.wait(SECONDS) for process in joined] == [0] * len(NAMES)
        with study.coordinator.operator() as operator:
            laws.check(operator, STUDY, study.homes())


def test_a_hospital_refuses_a_coordinator_that_offers_less_than_the_study_needs(
    previous: tuple[str, ...], tmp_path: Path
) -> None:
    with ForkedProcesses() as processes:
        study = started(
            tmp_path, processes, masked=True, coordinator=previous, hospitals=[WARDROUND, WARDROUND, previous, previous]
        )
        newer = study.hospitals[NAMES[0]]
        assert newer.join(STUDY, study.coordinator.origin).wait(SECONDS) != 0
        said = _said(newer)
        for words in ("speaks number 1", "Nothing was charged or sent"):
            assert words in said, said
        assert _charges(newer) == 0


def test_a_checkout_without_the_version_before_says_what_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(previous_version.PreviousMissing, match="git fetch --unshallow --tags"):
        previous_version.installed("0" * 40, tmp_path / "nothing")
