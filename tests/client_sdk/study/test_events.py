"""What is said of a round: to a program, to a person at a terminal, and what is the hospital's own in it."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from accounting.accountants.classical import ClassicalAccountant
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.events import RoundEvent
from study_protocol.study.messages import LimitStatement
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, one_round_policy, plain_policy, records, room_when_joining
from tests.factories.settings import settings
from wardround.cli.hospital.rounds import RoundsShown

OWN = {"limits": {"instance": {"epsilon": 30.0, "delta": 1e-6, "order": 4.0}}}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def stated(other: Coordinator) -> Coordinator:
    """Its budget states two limits and one level without any; spent: a quarter for every round that is closed."""

    def limit(definition: str, level: str, epsilon: float | None) -> dict[str, Any]:
        spent = None if epsilon is None else 0.25 * sum("mercy" in bodies for bodies in other.updates.values())
        empty = dict.fromkeys(LimitStatement.model_fields) | {"reports": []}
        state = "unbounded" if epsilon is None else "within"
        own = {"level": level, "definition": definition, "state": state, "epsilon": epsilon, "spent": spent}
        return empty | own | {"delta": None if epsilon is None else 1e-5}

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("/budget"):
            return None
        statement = json.loads(other._budget(request, "mercy").content)
        limits = [limit("classical", "instance", 50.0), limit("bayesian", "instance", 40.0)]
        return httpx.Response(200, json=statement | {"limits": [*limits, limit("classical", "client", None)]})

    other.meddle = meddle
    return other


def reported(directory: Path, policy: SitePolicy, **options: Any) -> list[RoundEvent]:
    found: list[RoundEvent] = []
    other = stated(coordinator(settings(bayesian=True)))
    here = hospital(other, directory)
    here.join("sepsis", None, records(), policy=policy, dataset="icu", on_round=found.append, **options)
    sizes = [len(other.updates[r]["mercy"]) for r in sorted(other.updates) if "mercy" in other.updates[r]]
    assert [e.bytes for e in found if e.what == "update"] == sizes
    return found


def test_every_round_is_told_once_with_what_it_cost(tmp_path: Path) -> None:
    found = reported(tmp_path, plain_policy(**OWN))
    assert [(e.study, e.round, e.rounds, e.what, e.answer) for e in found] == [
        ("sepsis", r, 3, "update", "accepted") for r in (1, 2, 3)
    ]
    for event in found:
        account = ClassicalAccountant(delta=1e-6, method="rdp", order=4.0)
        account.step(noise_multiplier=1.0, sampling_rate=0.5, count=event.round)
        (own,) = event.local.own
        assert (own.level, own.epsilon, own.spent) == ("instance", 30.0, account.epsilon())
        assert event.charge is not None
        assert (event.charge.noise_multiplier, event.charge.sampling_rate, event.charge.steps) == (1.0, 0.5, 1)
        assert [(s.level, s.definition, s.spent, s.epsilon, s.delta) for s in event.study_budget] == [
            ("instance", "classical", 0.25 * event.round, 50.0, 1e-5),
            ("instance", "bayesian", 0.25 * event.round, 40.0, 1e-5),
            ("client", "classical", None, None, None),
        ]


def test_a_refused_round_is_told_without_a_charge(tmp_path: Path) -> None:
    with room_when_joining():
        found = reported(tmp_path, one_round_policy())
    assert [(e.what, e.answer) for e in found] == [("update", "accepted"), *[("refusal", "recorded")] * 2]
    assert [e.charge is None for e in found] == [False, True, True]


def test_what_is_the_hospitals_own_stands_apart(tmp_path: Path) -> None:
    line = reported(tmp_path, plain_policy(**OWN))[0].as_json()
    assert set(line) == {
        "study", "round", "rounds", "rounds_left", "spent_share", "what", "answer", "bytes", "charge", "study_budget",
        "local",
    }  # fmt: skip
    assert set(line["local"]) == {"seconds", "own"}
    assert "30.0" not in json.dumps({key: value for key, value in line.items() if key != "local"})


def test_what_the_hook_raises_ends_the_participation_and_loses_nothing(tmp_path: Path) -> None:
    other = coordinator(settings())
    here = hospital(other, tmp_path)

    def stop(event: RoundEvent) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        here.join("sepsis", None, records(), dataset="icu", policy=plain_policy(), on_round=stop)
    assert here.join("sepsis", None, records(), dataset="icu", policy=plain_policy()).rounds_sent == 2


def test_the_budget_is_asked_for_after_a_round_only_where_somebody_listens(tmp_path: Path) -> None:
    asked: list[int] = []
    for name, on_round in (("heard", [].append), ("unheard", None)):
        other = coordinator(settings())

        def meddle(request: httpx.Request) -> None:
            asked[-1] += request.url.path.endswith("/budget")

        asked.append(0)
        other.meddle = meddle
        hospital(other, tmp_path / name).join(
            "sepsis", None, records(), dataset="icu", policy=plain_policy(), on_round=on_round
        )
    assert asked[0] - asked[1] == settings().rounds


def shown(tmp_path: Path, *, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=200, color_system=None)
    with RoundsShown("sepsis", console, None) as rounds:
        for event in reported(tmp_path, plain_policy(**OWN)):
            rounds.on_round(event)
    return screen.getvalue()


def test_a_terminal_sees_the_round_and_epsilon_against_the_limits(tmp_path: Path) -> None:
    text = shown(tmp_path, terminal=True)
    assert "3/3" in text
    for part in (
        "instance classical 0.750/50",
        "instance bayesian 0.750/40",
        "client unbounded",
        "own instance classical 7.8",
    ):
        assert part in text


def test_no_bar_is_drawn_where_nobody_looks(tmp_path: Path) -> None:
    assert shown(tmp_path, terminal=False).strip() == ""
