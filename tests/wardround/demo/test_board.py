"""What the demonstration prints."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from accounting.budget.budget import Budget
from study_protocol.study.messages import RoundView
from study_protocol.study.plan_of import plan_of
from tests.factories.demonstration import BASELINES, SCENARIO, STUDY, budget
from wardround.demo.board import WIDTH, Accuracies, Board
from wardround.demo.own_patients import OwnPatients, with_evaluation


@pytest.fixture
def terminal() -> io.StringIO:
    return io.StringIO()


def board(terminal: io.StringIO, study: Any = STUDY) -> Board:
    return Board(Console(file=terminal, width=WIDTH, color_system=None), study)


def words(terminal: io.StringIO) -> str:
    return " ".join(terminal.getvalue().replace("│", " ").split())


def view(received: int, **values: Any) -> RoundView:
    states = ["received"] * received + ["absent"]
    whole: dict[str, Any] = {
        "round": 1,
        "state": "released",
        "model_version": 1,
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "deadline": None,
        "ended_at": None,
        "reason": None,
        "metrics": {"evaluation_set": "held out", "values": {"accuracy": 0.9126}},
        "spent": None,
        "clients": None,
    }
    made = RoundView.model_validate(whole | values)
    clients: Any = [type("Client", (), {"state": state})() for state in states]
    return made.model_copy(update={"clients": clients})


def spent() -> list[dict[str, Any]]:
    """After one round."""
    made = Budget.open(plan_of(STUDY))
    made.reserve(1)
    made.settle(1, None)
    return made.statements()


def test_the_opening_says_who_trains_under_which_limit(terminal: io.StringIO) -> None:
    board(terminal).opening(SCENARIO, "http://127.0.0.1:21000", "/home")
    out = words(terminal)
    assert all(f"{name} {len(records)}" in out for name, records in SCENARIO.hospitals.items())
    assert "Limit: instance level, classical: ε ≤ 2 at δ = 0.0001 (any" in out
    assert "all records in every round" in out
    assert "coordinator http://127.0.0.1:21000" in out
    assert "set aside" not in out
    board(terminal, with_evaluation(STUDY)).opening(SCENARIO, "", "")
    assert "Of them about 20% are set aside" in words(terminal)


def test_a_narrow_terminal_shows_every_heading_and_number() -> None:
    terminal = io.StringIO()
    narrow = Board(Console(file=terminal, width=60, color_system=None), STUDY)
    narrow.heading()
    narrow.round(view(3, round=1000), spent())
    assert "…" not in terminal.getvalue()
    assert all(len(line) <= 60 for line in terminal.getvalue().splitlines())


def test_a_round_is_one_row_with_what_is_left_and_who_came(terminal: io.StringIO) -> None:
    limits = spent()
    board(terminal).round(view(3), limits)
    (line,) = terminal.getvalue().splitlines()
    assert len(line) <= WIDTH
    (limit,) = [one for one in limits if one["epsilon"] is not None]
    cells = line.split()
    assert (cells[0], cells[1]) == ("1", str(limit["rounds_left_estimate"]))
    assert "0.913" in cells
    assert cells[-1] == "3/4"
    assert f"/ {limit['epsilon']:g}" in line


def test_the_guarantee_stands_first_with_its_used_part_and_the_running_number_beside_it(terminal: io.StringIO) -> None:
    (limit,) = [one for one in spent() if one["epsilon"] is not None]
    board(terminal).heading()
    assert "ε so far holds if the study ended here for reasons that do not depend on its results" in words(terminal)
    board(terminal).round(view(4), [limit])
    line = terminal.getvalue().splitlines()[-1]
    # One of thirty rounds: the limit from the first one on, and a thirtieth of it used.
    assert limit["spent"] == limit["epsilon"] == 2
    assert "2.00 / 2" in line
    assert " 4%" in line
    (running,) = limit["reports"]
    assert running["epsilon"] < 0.3
    assert f"{math.ceil(100 * running['epsilon']) / 100:.2f}" in line


@pytest.mark.parametrize(("steps", "share"), [(1, "25%"), (3, "75%")])
def test_of_a_fixed_plan_the_used_part_is_its_steps(terminal: io.StringIO, steps: int, share: str) -> None:
    (limit,) = [one for one in spent() if one["epsilon"] is not None]
    counted = {"used": steps, "reserved": 0, "allowed": 4}
    progress = {"enforcement": "fixed-plan", "steps": counted, "squares": None}
    board(terminal).round(view(4), [limit | {"progress": progress}])
    assert f" {share}" in terminal.getvalue()


def test_a_round_without_a_measurement_shows_its_state(terminal: io.StringIO) -> None:
    board(terminal).round(view(0, state="abandoned", metrics=None), spent())
    assert "abandoned" in terminal.getvalue()


def test_the_ending_explains_itself_and_compares(terminal: io.StringIO) -> None:
    own = OwnPatients(0.95, 0.88, 1.0, 91.4)
    board(terminal).ending(budget(), BASELINES, Accuracies(0.96, 0.94, [1], "the mean", 1, own))
    out = words(terminal)
    assert "budget-exhausted: " in out
    assert "so it does not begin" in out
    assert "(after 1 rounds)" in out
    for text in ("this study 0.960 the mean", "pooled, no privacy 0.970", "majority class 0.630"):
        assert text in out
    assert "this scheme does not protect this level" in out
    assert out.count("alone, same limits 0.800") == 4


def test_commands_to_copy_are_never_wrapped(terminal: io.StringIO) -> None:
    command = "curl " + "x" * 200
    board(terminal).files({"Ask": command})
    assert terminal.getvalue() == f"Ask {command}\n"
    board(terminal).pinned(["city", "rural"], "12345 67890")
    assert "By telephone city, rural found" in words(terminal)
    board(terminal).note("city has died")
    assert terminal.getvalue().rstrip().endswith("· city has died")
