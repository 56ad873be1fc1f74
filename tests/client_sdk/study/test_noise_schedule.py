"""A hospital in a study with a noise schedule: whose place it believes, what it draws and pays, and what it refuses."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from accounting.budget.accounts import ClassicalLimit
from client_sdk.errors import BadAssignment, OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.study_count import require_within_study
from client_sdk.study.agreed import _by_stage
from private_learning.training import LocalTraining, gradients
from study_protocol.study.messages import AssignmentBody
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.dying import Killed
from tests.factories.hospitals import coordinator, hospital
from tests.factories.participations import join, ledger_of
from tests.factories.settings import settings

FALLING = [{"rounds": 1, "factor": 1.4}, {"rounds": 2, "factor": 1.2}, {"rounds": 1, "factor": 0.9}]
STUDY = settings(max_steps=4, noise_multiplier=2.0, noise_schedule=FALLING)
PLAN = plan_of(STUDY)
PLACES = {attempt: PLAN.noise_of(PLAN.stage_of(attempt)) for attempt in range(1, 5)}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The noise multiplier of every step that was computed."""
    noises: list[float] = []
    noise_of_a_step = gradients.noise_of_a_step

    def watched(of: Any, chosen: StudySettings, *given: Any) -> Any:
        noises.append(chosen.privacy.noise_multiplier)
        return noise_of_a_step(of, chosen, *given)

    monkeypatch.setattr(gradients, "noise_of_a_step", watched)
    return noises


def paid(directory: Path) -> dict[int | None, tuple[int | None, float]]:
    """Round -> place and noise multiplier of every charge in the hospital's own ledger."""
    with ledger_of(directory) as ledger:
        bodies = {entry.round: entry.body for entry in ledger.entries if entry.kind == "reserved"}
    return {number: (body.get("attempt"), body["noise_multiplier"]) for number, body in bodies.items()}


def give_back(other: Coordinator, *rounds: int) -> None:
    """These rounds are abandoned as soon as they are open, before anybody answers."""

    def meddle(request: httpx.Request) -> None:
        if request.url.path.endswith("/assignment") and other.budget.pending is None:
            other._open_round()
            while other.budget.pending in rounds:
                other.budget.cancel(other.round, "too-few-clients")
                other._append("cancelled", other.round, {"reason": "too-few-clients"})
                other._open_round()

    other.meddle = meddle


def lies(other: Coordinator, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    honest = other.assignment_for

    def lying(client: str) -> AssignmentBody:
        return honest(client).model_copy(update=changes)

    monkeypatch.setattr(other, "assignment_for", lying)


def test_each_round_is_drawn_and_paid_for_with_the_noise_of_its_place(tmp_path: Path, drawn: list[float]) -> None:
    outcome = join(hospital(coordinator(STUDY), tmp_path))
    assert (outcome.reason, outcome.rounds_sent) == ("max-steps-reached", 4)
    assert drawn == list(PLACES.values())
    assert paid(tmp_path) == {number: (number, PLACES[number]) for number in PLACES}


def test_an_abandoned_round_has_used_up_its_place(tmp_path: Path, drawn: list[float]) -> None:
    other = coordinator(STUDY)
    give_back(other, 2)
    assert join(hospital(other, tmp_path)).rounds_sent == 3
    assert drawn == [PLACES[1], PLACES[3], PLACES[4]]
    assert paid(tmp_path) == {number: (number, PLACES[number]) for number in (1, 3, 4)}


@pytest.mark.parametrize("place", [None, 2, 5, 1000])
def test_a_place_that_the_ledger_does_not_say_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[float], place: int | None
) -> None:
    other = coordinator(STUDY)
    lies(other, monkeypatch, attempt=place)
    with pytest.raises(BadAssignment, match=f"place {place} of the noise schedule, and by the ledger it is 1") as error:
        join(hospital(other, tmp_path))
    assert error.value.proof is not None
    assert (drawn, paid(tmp_path)) == ([], {})


def test_a_place_in_a_study_without_a_schedule_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = coordinator()
    lies(other, monkeypatch, attempt=1)
    with pytest.raises(BadAssignment, match="by the ledger it is None"):
        join(hospital(other, tmp_path))


def test_a_place_that_was_used_before_is_refused(tmp_path: Path, drawn: list[float]) -> None:
    other = coordinator(STUDY)
    here = hospital(other, tmp_path)
    # What a coordinator with another past would have made it send: only the hospital's own ledger knows.
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.charge("sepsis", 9, Charge.of(STUDY, [9], 2), (), "a" * 64, attempt=2)
    outcome = join(here)
    assert (outcome.rounds_sent, outcome.rounds_refused) == (2, 2)
    assert [other.refusals[number]["mercy"].code for number in (1, 2)] == ["attempt-used"] * 2
    assert "each place is used once, in order" in other.refusals[1]["mercy"].detail
    assert drawn == [PLACES[3], PLACES[4]]


def test_a_charged_round_comes_again_with_its_own_place_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[float]
) -> None:
    other, compute = coordinator(STUDY), LocalTraining.contribution
    here = hospital(other, tmp_path)

    def dies(self: LocalTraining, *given: Any, **options: Any) -> Any:
        if options["round_number"] == 2:
            raise Killed("hospital.after-charge")
        return compute(self, *given, **options)

    monkeypatch.setattr(LocalTraining, "contribution", dies)
    with pytest.raises(Killed):
        join(here)
    assert paid(tmp_path) == {number: (number, PLACES[number]) for number in (1, 2)}
    monkeypatch.setattr(LocalTraining, "contribution", compute)
    assert join(here).rounds_sent == 3
    assert drawn == list(PLACES.values())
    assert paid(tmp_path) == {number: (number, PLACES[number]) for number in PLACES}


def test_places_survive_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with HospitalLedger.open(path) as ledger:
        ledger.charge("sepsis", 1, Charge.of(STUDY, [1], 1), (), "a" * 64, attempt=1)
        ledger.charge("sepsis", 4, Charge.of(STUDY, [4], 3), (), "a" * 64, attempt=3)
        ledger.charge("another", 1, Charge.of(STUDY, [1], 4), (), "a" * 64, attempt=4)
    with HospitalLedger.open(path) as again:
        assert again.attempts("sepsis", except_round=5) == {1, 3}
        assert again.attempts("sepsis", except_round=4) == {1}
        # A lost ledger may have known any place up to the last round.
        again.accept_loss("sepsis", 6, [Charge.of(STUDY)])
        assert again.attempts("sepsis", except_round=7) == {1, 2, 3, 4, 5, 6}


def test_lost_rounds_are_charged_at_the_least_noise() -> None:
    assert Charge.of(STUDY).noise_multiplier == min(PLACES.values())


def test_lost_rounds_are_charged_by_the_places_that_they_can_have_had(tmp_path: Path) -> None:
    once = Charge.of(STUDY)
    assert [(charge.noise_multiplier, charge.steps) for charge in _by_stage(once, PLAN, 2)] == [
        (PLACES[1], 1),
        (PLACES[2], 1),
    ]
    assert sum(charge.steps for charge in _by_stage(once, PLAN, 99)) == 4


def test_the_studys_own_limit_counts_the_stages_that_were_used() -> None:
    def of(epsilon: float, *factors: float) -> StudySettings:
        stages = [{"rounds": 1, "factor": factor} for factor in factors]
        limit = {"level": "instance", "definition": "classical", "epsilon": epsilon, "delta": 1e-5}
        return settings(max_steps=4, noise_multiplier=2.0, limits=[limit], noise_schedule=stages)

    def require(chosen: StudySettings) -> None:
        *sent, last = (Charge.of(chosen, [number], number) for number in (1, 2, 3, 4))
        require_within_study(plan_of(chosen), sent, last, range(1, 5))

    # The first stage has far less noise than the others.
    plan = plan_of(of(9.0, 0.6, 3, 3, 3))
    spent = ClassicalLimit(plan, plan.limits[0]).epsilon_at_worst(4, 0)
    require(of(spent * 1.001, 0.6, 3, 3, 3))
    for factors, epsilon in (((0.6, 3, 3, 3), spent * 0.999), ((0.6, 0.6, 3, 3), spent * 1.001)):
        with pytest.raises(OwnBudgetExceeded, match="study's own classical limit"):
            require(of(epsilon, *factors))


def test_stages_with_the_same_noise_are_counted_one_after_the_other() -> None:
    stages = [{"rounds": 1, "factor": 1.0}, {"rounds": 1, "factor": 2.0}, {"rounds": 2, "factor": 1.0}]
    limit = {"level": "instance", "definition": "classical", "epsilon": 8.0, "delta": 1e-5, "enforcement": "fixed-plan"}
    chosen = settings(max_steps=4, noise_multiplier=2.0, limits=[limit], noise_schedule=stages)
    *sent, last = (Charge.of(chosen, [number], number) for number in (1, 2, 3, 4))
    require_within_study(plan_of(chosen), sent, last, range(1, 5))
    with pytest.raises(OwnBudgetExceeded, match="study's own classical limit"):
        require_within_study(plan_of(chosen), [sent[0], last, last], last, range(1, 5))
