"""Time from a request to a hospital's answer: a multiple of its slot, however many patients it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.api.client import ServerClock
from client_sdk.errors import BadAssignment, ConfigurationError, TrainingStopped
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.study import same_records
from client_sdk.study.events import OnRound, RoundEvent
from client_sdk.study.pace import Pace, too_late
from client_sdk.study.work import RoundCharges
from private_learning.training import LocalTraining
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.dying import Killed, dying_at
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.participations import ledger_of
from tests.factories.settings import settings

SLOT, SMALL, LARGE = 5.0, 1_000, 10_000
PER_RECORD = 1.49 / 6_000  # seconds, ten times what was measured for a small model


class Time:
    """Seconds that pass only where something is computed or slept."""

    def __init__(self) -> None:
        self.now = 0.0

    def elapsed(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Watched:
    """A coordinator that notes when its last answer left and when each request came."""

    def __init__(self, other: Coordinator, time: Time, waits: list[tuple[str, float]]) -> None:
        self.waits, self._answered = waits, 0.0
        answer = other.answer

        def watched(request: httpx.Request) -> httpx.Response:
            self.waits.append((f"{request.method} {request.url.path.split('/')[-2]}", time.now - self._answered))
            self._answered = time.now
            return answer(request)

        self.answer = watched


def seconds_of(
    directory: Path,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    waits: list[tuple[str, float]] | None = None,
    other: Coordinator | None = None,
    on_round: OnRound | None = None,
    **study: Any,
) -> list[tuple[str, float]]:
    """What each request of a participation waited for since the coordinator's last answer. waits: gets them, too."""
    time, schedule = Time(), study.pop("schedule", {"slots": [SLOT]})
    other = other or coordinator(settings(schedule=schedule, **study))
    watched = Watched(other, time, [] if waits is None else waits)
    hospital(other, directory)
    here = hospital(watched.answer, directory, clock=ServerClock(elapsed=time.elapsed), sleep=time.sleep)
    made, opened, marked = LocalTraining.contribution, LogMomentBounds.open, same_records.mark_of

    def contribution(self: LocalTraining, *rest: Any, **options: Any) -> Any:
        time.now += PER_RECORD * len(self.dataset)
        return made(self, *rest, **options)

    def open_bounds(chosen: Any, patients: Any, *rest: Any, **options: Any) -> Any:
        # Without a Bayesian limit nothing is opened.
        time.now += 0.0 if chosen.privacy.bayesian is None else PER_RECORD / 10 * len(patients)
        return opened(chosen, patients, *rest, **options)

    def mark_of(read: Any, *rest: Any) -> Any:
        time.now += PER_RECORD / 10 * len(read)
        return marked(read, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(same_records, "mark_of", mark_of)
        patch.setattr(LocalTraining, "contribution", contribution)
        patch.setattr(LogMomentBounds, "open", open_bounds)
        here.join("sepsis", None, records(count), policy=plain_policy(), dataset="icu", on_round=on_round)
    return watched.waits


@pytest.mark.quick("False")
@pytest.mark.parametrize("bayesian", [False, True])
def test_a_thousand_and_ten_thousand_records_answer_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bayesian: bool
) -> None:
    sample = {"accounting_sample": {"records": 50, "source": "members"}} if bayesian else {}
    study: dict[str, Any] = {"bayesian": bayesian, "max_steps": 2, **sample}
    small, large = (seconds_of(tmp_path / str(n), n, monkeypatch, **dict(study)) for n in (SMALL, LARGE))
    assert [what for what, _ in small] == [what for what, _ in large]
    assert [seconds for _, seconds in small] == pytest.approx([seconds for _, seconds in large], abs=1e-9)
    updates = [seconds for what, seconds in small if what == "PUT updates"]
    assert updates == pytest.approx([SLOT] * 2)


@pytest.mark.slow
def test_without_slots_the_time_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for schedule in ({}, {"slots": []}):
        found = [
            dict(seconds_of(tmp_path / f"{len(schedule)}{n}", n, monkeypatch, max_steps=1, schedule=schedule))
            for n in (SMALL, LARGE)
        ]
        assert [waits["PUT updates"] for waits in found] == pytest.approx([PER_RECORD * SMALL, PER_RECORD * LARGE])


@pytest.mark.quick("a refusal")
@pytest.mark.parametrize(
    ("error", "told"),
    [(BadAssignment("another model"), [("PUT refusals", SLOT)]), (TrainingStopped("the loss"), [])],
    ids=["a refusal", "stopped in silence"],
)
def test_a_refusal_after_the_computation_waits_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: list[tuple[str, float]]
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(RoundCharges, "finish", stop)
    for count in (SMALL, LARGE):
        waits: list[tuple[str, float]] = []
        with pytest.raises(type(error)):
            seconds_of(tmp_path / str(count), count, monkeypatch, waits, max_steps=1)
        found = [(what, seconds) for what, seconds in waits if what.startswith("PUT")]
        assert found == [(what, pytest.approx(seconds)) for what, seconds in told]


def test_bytes_out_of_the_outbox_wait_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, other = list[float](), coordinator(settings(schedule={"slots": [SLOT]}, max_steps=1))
    with dying_at("hospital.after-settle"), pytest.raises(Killed):
        seconds_of(tmp_path, SMALL, monkeypatch, other=other)
    waits = seconds_of(tmp_path, SMALL, monkeypatch, other=other)
    sent += [seconds for what, seconds in waits if what == "PUT updates"]
    assert sent == pytest.approx([SLOT])


def test_what_takes_longer_than_a_slot_is_sent_at_the_next_multiple_and_said_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study: dict[str, Any] = {"max_steps": 1, "schedule": {"slots": [0.5, 50.0]}}
    waits = dict(seconds_of(tmp_path, LARGE, monkeypatch, **study))
    assert waits["PUT updates"] == pytest.approx(2.5)
    assert "sent after 5 slots" in caplog.text
    assert "join --slot 50" in caplog.text, "the slot that is meant for so many is named here"


def test_the_wait_is_reported_apart_and_to_this_hospital_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[RoundEvent] = []
    seconds_of(tmp_path, SMALL, monkeypatch, on_round=events.append, max_steps=1)
    assert events[0].as_json()["local"]["waited"] == pytest.approx(SLOT - PER_RECORD * SMALL)


def test_a_slot_that_ends_after_the_deadline_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    pace = Pace(hospital(coordinator(), tmp_path, clock=ServerClock(elapsed=time.elapsed)).client("sepsis"), 5.0, print)
    assert [pace.ends_by(left) for left in (4.9, 5.0, 5.1)] == [False, False, True]
    assert Pace(pace._client, None, print).ends_by(0.1)


def test_a_declared_slot_is_one_of_the_studys_and_is_kept(tmp_path: Path) -> None:
    slots: dict[str, Any] = {"schedule": {"slots": [1.0, 2.0]}, "max_steps": 1}
    other = coordinator(settings(**slots))
    here = hospital(other, tmp_path)
    options: dict[str, Any] = {"policy": plain_policy(), "dataset": "icu"}
    with pytest.raises(ConfigurationError, match=r"slots in seconds are 1, 2 \(schedule.slots\)"):
        here.join("sepsis", None, records(), slot=5.0, **options)
    here.join("sepsis", None, records(), slot=2.0, **options)
    with ledger_of(tmp_path) as ledger:
        assert ledger.slot("sepsis") == 2.0
        entries = ledger.entries
        written = [entry.body for entry in entries if entry.body["study"] == "/slot/sepsis"]
        assert [body["slot"] for body in written] == [2.0]
    with HospitalLedger.open(tmp_path / "ledgers" / "icu.db") as ledger:
        ledger.declare_slot("sepsis", 2.0)
        assert ledger.entries == entries


@pytest.mark.parametrize(
    ("offset", "words"), [(-240.0, "240 s ahead of the coordinator's"), (240.0, "240 s behind the coordinator's")]
)
def test_a_round_that_is_passed_names_a_wrong_clock(offset: float, words: str) -> None:
    assert words in too_late(ServerClock(offset=offset))
    assert "clock" not in too_late(ServerClock(offset=0.4))
