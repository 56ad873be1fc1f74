"""How long a hospital stays: at most one round, at most so many seconds, and never away from a round that began."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.errors import SessionEnded
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.study.participation import Outcome
from client_sdk.study.stay import Stay
from tests.client_sdk.study.test_participation_masked import masked_coordinator
from tests.factories.dying import Killed, dying_at
from tests.factories.hospitals import (
    coordinator,
    hospital,
    one_round_policy,
    plain_policy,
    records,
    room_when_joining,
)
from tests.factories.participations import besides_decisions, join, ledger_of
from tests.factories.settings import settings
from tests.factories.wire_answers import problem


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_stay_without_an_end_of_its_own_never_ends() -> None:
    time = Time()
    stay = Stay(None, time)
    stay.end_round()
    time.now += 1e9
    assert not stay.is_over
    assert stay.wait_at_most(25.0) == 25.0


def test_a_stay_ends_with_its_round_or_with_its_time() -> None:
    time = Time()
    stay, other = Stay(30.0, time), Stay(30.0, time)
    other.end_round()
    assert (stay.is_over, other.is_over) == (False, True)
    time.now += 20
    assert (stay.wait_at_most(25.0), stay.wait_at_most(5.0), stay.is_over) == (10.0, 5.0, False)
    time.now += 20
    assert (stay.wait_at_most(25.0), stay.is_over) == (0.0, True)


def once(here: Any, seconds: float = 60.0, **options: Any) -> Outcome:
    return join(here, one_round_within=seconds, **options)


def test_a_study_is_driven_to_its_end_by_single_rounds_at_the_same_cost(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True))
    here = hospital(other, tmp_path)
    outcomes = [once(here)]
    while outcomes[-1].more_to_come:
        outcomes.append(once(here))
    assert [outcome.rounds_sent for outcome in outcomes[:3]] == [1, 1, 1]
    assert outcomes[-1].reason == "max-steps-reached"
    assert {outcome.reason for outcome in outcomes[:-1]} == {"more-to-come"}
    with ledger_of(tmp_path) as ledger:
        charged = [(kind, r) for r in (1, 2, 3) for kind in ("reserved", "settled")]
        kinds = [(entry.kind, entry.round) for entry in besides_decisions(ledger)]
        assert kinds == [("declared", None), ("opened", None), *charged, ("finished", None)]
        assert [d.sha256 for d in ledger.departures()] == [
            hashlib.sha256(other.updates[r]["mercy"]).hexdigest() for r in (1, 2, 3)
        ]
    # The end is told again and costs nothing.
    assert once(here).more_to_come is False


def test_a_study_that_waits_is_left_in_time_and_asked_at_least_once(tmp_path: Path) -> None:
    other = coordinator(paused=True)
    outcome = once(hospital(other, tmp_path), 0.0)
    assert (outcome.more_to_come, outcome.rounds_sent) == (True, 0)
    assert sum(request.endswith("/assignment") for request in other.requests) == 1
    with ledger_of(tmp_path) as ledger:
        assert ledger.charges() == []


def test_a_refusal_ends_the_one_round(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    with room_when_joining():
        counts = [once(here, policy=one_round_policy()) for _ in range(2)]
    assert [(each.rounds_sent, each.rounds_refused) for each in counts] == [(1, 0), (0, 1)]
    assert other.refusals[2]["mercy"].code == "own-budget-exceeded"


@pytest.mark.quick("hospital.after-settle")
@pytest.mark.parametrize("name", ["hospital.after-charge", "hospital.after-settle", "hospital.after-send"])
def test_killed_in_its_round_and_repeated_it_spends_once(tmp_path: Path, name: str) -> None:
    other = coordinator(settings(bayesian=True))
    here = hospital(other, tmp_path)
    with dying_at(name) as death, pytest.raises(Killed):
        once(here)
    assert death.hit
    while once(here).more_to_come:
        pass
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.charges()) == len(other.updates) == 3
        assert [ledger.charged_round("sepsis", r).sha256 for r in (1, 2, 3)] == [  # type: ignore[union-attr]
            hashlib.sha256(other.updates[r]["mercy"]).hexdigest() for r in (1, 2, 3)
        ]


def test_a_masked_session_that_ended_without_this_hospital_is_not_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, sessions = masked_coordinator(), list[str]()

    def ends(*_: Any) -> None:
        sessions.append("ended")
        raise SessionEnded("too-few-keys")

    def meddle(request: httpx.Request) -> httpx.Response | None:
        is_third = request.url.path.endswith("/assignment") and len(sessions) == 2
        return problem(409, "study-finished") if is_third else None

    monkeypatch.setattr(SecureSumClient, "advertise", ends)
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.0)
    other.meddle = meddle
    hospital(other, tmp_path).join(
        "sepsis", None, records(), policy=plain_policy(), dataset="icu", one_round_within=60.0
    )
    assert sessions == ["ended"] * 2
