"""What is shown while rounds pass by: a bar for a person, a line of JSON for a program."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from client_sdk.study.events import LimitSpent, Local, RoundEvent, _spent_share, _stated
from study_protocol.files.private import exposure
from study_protocol.study.limit_statement import LimitProgress, LimitStatement, PlannedSteps, SumOfSquares
from study_protocol.study.messages import BudgetStatement
from tests.factories.commands import AS_WRITTEN, write_records
from tests.factories.hospitals import coordinator, hospital, lax_toml
from tests.factories.settings import settings
from wardround.cli.hospital import hospital as commands
from wardround.cli.hospital.rounds import RoundsShown, first_words, spent_line
from wardround.cli.main import build


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    other, app = coordinator(settings(bayesian=True)), build()
    here = hospital(other, tmp_path / "mercy")
    monkeypatch.setattr(commands, "hospital", lambda home, **_: here)
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))

    def call(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result.stdout

    return call


@pytest.mark.slow
def test_the_command_appends_lines_and_shows_the_own_budget(tmp_path: Path, run: Any) -> None:
    data, events = str(write_records(tmp_path / "records.csv")), tmp_path / "events.jsonl"
    (tmp_path / "mercy" / "policy.toml").write_text(
        lax_toml() + "[limits.instance]\nepsilon = 30.0\ndelta = 1e-6\n[individual]\nepsilon = 40.0\ndelta = 1e-6\n"
    )
    run("join", "sepsis", "--data", data, "--patient-column", "patient", *AS_WRITTEN, "--events", str(events))
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert exposure(events) is None
    own = json.loads(run("own-budget", "--json"))
    assert [(o["level"], o["spent"]) for o in own["limits"]] == [("instance", lines[-1]["local"]["own"][0]["spent"])]
    assert (own["individual"]["epsilon"], own["individual"]["definition"], own["individual"]["steps"]) == (
        40.0, "individual", 3,
    )  # fmt: skip
    text = run("own-budget")
    assert "individual" in text
    assert "nobody contributes after being excluded" in text


def test_events_that_cannot_be_written_are_an_error_before_anything_is_done(tmp_path: Path, run: Any) -> None:
    data = str(write_records(tmp_path / "records.csv"))
    run("join", "sepsis", "--data", data, "--events", str(tmp_path / "nowhere" / "e.jsonl"), code=1)
    assert not (tmp_path / "mercy" / "ledgers").exists()


LIMIT = LimitSpent("instance", "classical", 2.0001, 8.0, 1e-5)
FREE = LimitSpent("client", "classical", None, None, None)


def event(round: int = 1) -> RoundEvent:
    local = Local(seconds=0.5, own=(LIMIT,))
    return RoundEvent("sepsis", round, 3, 3 - round, 0.250012, "update", "accepted", 10, None, (LIMIT, FREE), local)


def test_a_line_says_whose_epsilon_it_is_rounded_up() -> None:
    assert spent_line(event()) == (
        "2 rounds left · 26 % of the budget spent · "
        "ε  instance classical 2.001/8  client unbounded  own instance classical 2.001/8"
    )


def test_the_jump_and_the_tight_number_are_explained() -> None:
    stated = replace(LIMIT, tight=1.5001, fixed_term=1.2001)
    (said,) = first_words(replace(event(), study_budget=(stated,)))
    assert "begins at 1.201" in said
    # Tight, under the condition that a running number has.
    assert "So far 2.001. The privacy-loss distribution gives 1.501. It is tight and holds if the study ends" in said
    assert "(tight 1.501)" in spent_line(replace(event(), study_budget=(stated,)))


def test_limits_at_another_delta_are_not_compared() -> None:
    apart = replace(event(), local=Local(0.5, (replace(LIMIT, delta=1e-6),)))
    assert "at delta 1e-06" in spent_line(apart)
    assert any("Two ε at different delta cannot be compared" in line for line in first_words(apart))
    assert first_words(event()) == []


def test_lines_are_appended_and_flushed_round_by_round(tmp_path: Path) -> None:
    path, console = tmp_path / "events.jsonl", Console(file=io.StringIO())
    for first in (1, 2):
        with RoundsShown("sepsis", console, path) as shown:
            shown.on_round(event(first))
            assert len(path.read_text().splitlines()) == first
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize(("terminal", "file"), [(False, False), (True, False), (False, True)])
def test_rounds_are_listened_to_where_somebody_sees_them(tmp_path: Path, terminal: bool, file: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal)
    with RoundsShown("sepsis", console, tmp_path / "events.jsonl" if file else None) as shown:
        assert (shown.listener is not None) == (terminal or file)


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    with RoundsShown("sepsis", Console(file=io.StringIO()), None) as shown:
        shown.on_round(event())
    assert list(tmp_path.iterdir()) == []


COUNTED = replace(LIMIT, spent=1.99901, epsilon=2.0, tight=0.2601, progress="step 12 of 254")


def test_a_hospital_sees_the_guarantee_and_the_step() -> None:
    assert "instance classical 2.000/2, step 12 of 254" in spent_line(replace(event(), study_budget=(COUNTED,)))


def test_the_number_so_far_is_explained_once_and_never_alone() -> None:
    said, why = first_words(replace(event(), study_budget=(COUNTED,)))
    assert why.endswith("the two ε of the same rounds differ, and both hold")
    assert said == (
        "ε instance classical: 2.000 holds whenever the study stops, from the first round on, because it counts all "
        "steps and questions that may still come. So far 0.261, if the study ended here for reasons that do not depend "
        "on its results"
    )
    assert "0.261" not in spent_line(replace(event(), study_budget=(COUNTED,)))


def test_once_all_steps_are_done_the_share_is_that_of_the_questions() -> None:
    """100 % of the budget would say that no question may follow."""
    parts = {"steps": PlannedSteps(used=3, reserved=0, allowed=3)}
    open_part, no_part = SumOfSquares(used=0.01, reserved=0.0, allowed=0.1), None
    for squares, share in (
        (open_part, "10 % of the share for questions spent"),
        (no_part, "100 % of the budget spent"),
    ):
        progress = LimitProgress(enforcement="fixed-plan", squares=squares, **parts)
        stated = LimitStatement.model_construct(
            **asdict(COUNTED) | {"progress": progress, "reports": [], "certificate": None}
        )
        study_budget, statement = (_stated(stated),), BudgetStatement.model_construct(limits=[stated])
        line = spent_line(replace(event(3), study_budget=study_budget, spent_share=_spent_share(statement)))
        assert line.startswith(f"0 rounds left · {share} · ε  instance classical 2.000/2, step 3 of 3")
