"""Planner, coordinator, hospital and reader of a ledger accept the same number of steps, and no more are ever taken.

With real processes: a coordinator is killed in a round, a hospital drops out, and a round is abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.budget import Budget
from accounting.budget.solve import least_epsilon, most_rounds
from accounting.errors import Unreachable
from accounting.plan.limits import WholePlanOverspends
from client_sdk.api.client import Client
from client_sdk.errors import LedgerNotExtended, OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.planned import PlannedStudy
from client_sdk.guard.study_count import require_within_study
from client_sdk.study.audit import audited
from study_protocol.study.messages import InvitationCreate, RoundView, StudyCreate
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.e2e.test_failpoints import _initial_model
from tests.factories.asking import enrolled
from tests.factories.ledgers import opened
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import limit, settings
from tests.harness import laws, tiny
from tests.harness.dying_processes import HIT_SECONDS, Stage
from wardround.demo.live import site_policy
from wardround.demo.processes import Processes, until

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = pytest.mark.timeout(900)

STUDY = "planned"
STEPS = 5
END_SECONDS = 400.0
# A round that lacks a hospital is abandoned after so long.
DEADLINE_SECONDS = 25.0


def sampled(steps: int, **privacy: Any) -> StudySettings:
    limits = [limit("instance", epsilon=2.0, enforcement="fixed-plan")]
    common: dict[str, Any] = {"limits": limits, "sampling_rate": 0.1, "noise_multiplier": 2.0}
    return settings(max_steps=steps, **common | privacy)


@pytest.mark.slow_cases("drawn at 0.02")
@pytest.mark.parametrize(
    "privacy",
    [{}, {"sampling_rate": 0.02, "noise_multiplier": 1.0}, {"sampling_rate": 1.0, "noise_multiplier": 20.0}],
    ids=["drawn at 0.1", "drawn at 0.02", "all records"],
)
def test_planner_coordinator_hospital_and_reader_accept_the_same_steps(privacy: dict[str, Any]) -> None:
    steps = most_rounds(plan_of(sampled(1, **privacy))).max_steps
    for chosen, accepted in ((sampled(steps, **privacy), True), (sampled(steps + 1, **privacy), False)):
        plan, ledger = plan_of(chosen), opened(plan_of(chosen), chosen.as_json(), STUDY)
        parties: list[tuple[Callable[[], object], type[Exception]]] = [
            (lambda plan=plan: Budget.open(plan), WholePlanOverspends),
            (PlannedStudy.of(chosen).require_feasible, OwnBudgetExceeded),
            (lambda ledger=ledger: audited(STUDY, ledger), LedgerNotExtended),
        ]
        for accept, refusal in parties:
            if accepted:
                accept()
                continue
            with pytest.raises(refusal, match=f"{steps + 1} steps"):
                accept()


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A coordinator that opens every plan."""
    monkeypatch.setattr("server.services.studies.lifecycle.Budget.open", Budget)
    with live(tmp_path / "home", long_poll_seconds=0.2) as coordinator:
        yield coordinator


def test_a_hospital_joins_no_study_that_a_forged_coordinator_opened_with_one_step_too_many(
    forged: Live, tmp_path: Path
) -> None:
    steps = most_rounds(plan_of(sampled(1))).max_steps
    (site,) = enrolled(forged, tmp_path, sampled(steps + 1, schedule={"min_clients": 1}), names=["alpha"])
    site.start()
    site.join(60)
    assert isinstance(site.error, OwnBudgetExceeded)
    assert f"the study plans {steps + 1} steps" in str(site.error)
    path = ledger_path(site.directory, "icu")
    if path.exists():
        with HospitalLedger.open(path, read_only=True) as ledger:
            assert ledger.sent("registry") == ledger.charges() == []


def planned(rule: str) -> StudySettings:
    """A study whose limit has room for STEPS rounds, and for no further one."""
    full = rule == "gaussian-filter"

    def study(epsilon: float) -> StudySettings:
        kept = {"level": "instance", "definition": "classical", "epsilon": epsilon, "delta": 1e-3, "enforcement": rule}
        return tiny.settings(
            "parallel",
            clients=2,
            # A sum of squares needs no number of rounds: the budget ends the study.
            rounds=STEPS if rule == "fixed-plan" else 4 * STEPS,
            bayesian=False,
            deadline_seconds=DEADLINE_SECONDS,
            limits=[kept],
            sampling_rate=1.0 if full else 0.5,
            expected_batch_size=20.0 if full else 10.0,
        )

    least = least_epsilon(replace(plan_of(study(20.0)), max_steps=STEPS)).limits[0].epsilon
    return study(least if rule == "fixed-plan" else least * 1.01)


class Scene(Stage):
    """Two hospitals, without both of whom no round is released."""

    def __init__(self, folder: Path, processes: Processes, chosen: StudySettings) -> None:
        super().__init__(folder, None, processes, dict.fromkeys(("alpha", "beta"), 20))
        self.settings = chosen

    def open(self) -> None:
        self.coordinator.prepare()
        self.serve()
        self.coordinator.wait_ready()
        with self.coordinator.operator() as operator:
            operator.create_study(StudyCreate(study=STUDY, title="tiny", settings=self.settings))
            operator.put_initial_model(STUDY, _initial_model(self.settings))
            for name, hospital in self.hospitals.items():
                token = operator.invite(STUDY, InvitationCreate(client=name)).token
                hospital.enrol(self.coordinator.origin, token, site_policy(STUDY, self.settings))
            operator.move_study(STUDY, "start")

    def wait_for(self, is_so: Callable[[Client], bool], seconds: float, what: str) -> None:
        with self.coordinator.operator(patience_seconds=seconds) as operator:
            assert until(lambda: is_so(operator), seconds=seconds, check=lambda: None, every=0.3), what


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["fixed-plan", "gaussian-filter"])
def test_after_kills_and_an_abandoned_round_no_more_steps_were_taken(tmp_path: Path, rule: str) -> None:
    with Processes() as processes:
        scene = Scene(tmp_path, processes, planned(rule))
        scene.open()
        scene.join("alpha", STUDY)
        # It has paid for the round, and sends nothing: the other's vector was seen, so that the round is charged.
        scene.wait_dead(scene.join("beta", STUDY, "hospital.after-charge"), "hospital.after-charge")
        scene.wait_for(_has_abandoned, HIT_SECONDS, "no round is abandoned")
        scene.stop_coordinator()
        dying = scene.serve("worker.after-settle")
        scene.join("beta", STUDY)
        scene.wait_dead(dying, "worker.after-settle")
        scene.serve()
        scene.wait_for(lambda operator: operator.study(STUDY).state == "finished", END_SECONDS, "it does not end")
        for process in scene.joined.values():
            if process is scene.joined["alpha"] or process is scene.joined["beta"]:
                assert process.wait(END_SECONDS) == 0, process.log.read_text()[-2000:]
        with scene.coordinator.operator() as operator:
            homes = {name: hospital.home for name, hospital in scene.hospitals.items()}
            budget = laws.check(operator, STUDY, homes)
            views, statement = laws.whole_history(operator, STUDY), operator.budget(STUDY)
        assert statement.stop_reason == ("max-steps-reached" if rule == "fixed-plan" else "budget-exhausted")
        assert budget.charged_rounds == STEPS
        _require_counts(scene, views)


def _has_abandoned(operator: Client) -> bool:
    return any(view.state == "abandoned" for view in laws.whole_history(operator, STUDY))


def _require_counts(scene: Scene, views: list[RoundView]) -> None:
    """Each hospital's own count: what it sent, no more than the plan, and a further step is refused."""
    plan = plan_of(scene.settings)
    assert any(view.state == "abandoned" for view in views)
    for name, hospital in scene.hospitals.items():
        with closing(HospitalLedger.open(ledger_path(hospital.home, "records"), read_only=True)) as ledger:
            sent = ledger.sent(STUDY)
        received = [view for view in views for c in view.clients or [] if (c.client, c.state) == (name, "received")]
        # What left may have been lost on its way, and counts all the same.
        assert len(received) <= len(sent) <= STEPS
        missing = STEPS - len(sent)
        once = Charge.of(scene.settings)
        if not missing:
            with pytest.raises(OwnBudgetExceeded):
                require_within_study(plan, sent, once)
        else:
            require_within_study(plan, sent, once)
            with pytest.raises(OwnBudgetExceeded):
                require_within_study(plan, [*sent, *[once] * missing], once)


def test_the_limit_of_these_studies_has_no_room_for_a_further_step() -> None:
    for rule in ("fixed-plan", "gaussian-filter"):
        plan = plan_of(planned(rule))
        budget = Budget.open(plan)
        for number in range(1, STEPS + 1):
            budget.reserve(number)
            budget.charge_in_full(number, "all of it")
        assert not budget.authorise().is_allowed
    with pytest.raises((WholePlanOverspends, Unreachable)):
        Budget.open(replace(plan_of(planned("fixed-plan")), max_steps=STEPS + 1))
