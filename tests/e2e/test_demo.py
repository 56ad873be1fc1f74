"""The demonstration in a small version, as a person starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from study_protocol.study.messages import LimitStatement
from wardround.cli.shared.shared import number
from wardround.demo.processes import WARDROUND
from wardround.demo.verdict import meaning, verdict

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = pytest.mark.timeout(900)

# Generous: the machine may be busy with other tests.
START_SECONDS = 200


def trained(demonstration) -> int:
    """Rounds of training, by a replay of the ledger."""
    return replay([Entry.from_dict(entry) for entry in demonstration.read("ledger.json")]).charged_rounds


def test_it_ends_because_the_next_round_would_overspend(demonstration):
    budget = demonstration.read("budget.json")
    assert budget["stop_reason"] == "budget-exhausted"
    assert budget["can_continue"] is False
    assert "budget-exhausted" in demonstration.printed
    replayed = replay([Entry.from_dict(entry) for entry in demonstration.read("ledger.json")])
    assert replayed.finished == "budget-exhausted"
    assert replayed.charged_rounds >= 3
    # Scheme parallel ends with a query, which has a number of its own.
    assert replayed.charged_rounds + replayed.charged_queries == budget["round"]
    assert replayed.charged_rounds * replayed.plan.steps_per_round < replayed.plan.max_steps
    for account in replayed.accounts:
        assert account.epsilon() <= account.limit.epsilon
    assert any(not account.fits_worst_round(publishes=False) for account in replayed.accounts)


def test_it_shows_every_round_and_leaves_model_and_report(demonstration):
    rounds, accuracy = trained(demonstration), demonstration.read("accuracy.json")
    assert sorted(map(int, accuracy["by_round"])) == list(range(1, rounds + 1))
    rows = [
        line.split() for line in demonstration.printed.splitlines() if line.split()[:1] and line.split()[0].isdigit()
    ]
    shown = [row for row in rows if row[-1] == "4/4"]
    assert [int(row[0]) for row in shown] == list(range(1, rounds + 1))
    assert int(shown[-1][1]) == 0, "no round is left"
    assert (demonstration.home / "report" / "model.safetensors").stat().st_size > 0
    page = (demonstration.home / "report" / "report.md").read_text()
    assert "budget-exhausted" in page
    assert 0.5 < accuracy["baselines"]["pooled"] <= 1
    assert set(accuracy["baselines"]["alone"]) == {"university", "city", "county", "rural"}
    assert "curl -H" in demonstration.printed


def test_the_last_sentence_and_the_numbers_agree(demonstration):
    accuracy, budget = demonstration.read("accuracy.json"), demonstration.read("budget.json")
    said = " ".join(demonstration.printed.replace("│", " ").split())
    limits = [LimitStatement.model_validate(limit) for limit in budget["limits"]]
    assert verdict(accuracy["study"], accuracy["baselines"]["alone"], limits) in said
    page = (demonstration.home / "report" / "report.md").read_text()
    assert verdict(accuracy["study"], accuracy["baselines"]["alone"], limits) in page
    for limit in limits:
        assert (meaning(limit) or "") in said


def test_every_epsilon_shown_is_the_one_that_the_ledger_gives(demonstration):
    """Each row's ε, rounded up as shown, from a replay up to that round."""
    entries = [Entry.from_dict(entry) for entry in demonstration.read("ledger.json")]
    rows = {
        int(line.split()[0]): line
        for line in demonstration.printed.splitlines()
        if line.split()[:1] and line.split()[0].isdigit() and line.split()[-1] == "4/4"
    }
    asked = {entry.round for entry in entries if entry.kind == "asked"}
    for position, entry in enumerate(entries):
        if entry.kind == "settled" and entry.round not in asked:
            assert entry.round is not None
            for limit in replay(entries[: position + 1]).statements(whole=False):
                if limit["epsilon"] is not None:
                    assert f"{number(limit['spent'], 2)} / {limit['epsilon']:g}" in rows[entry.round]


def test_the_model_is_the_mean_of_the_rounds_that_are_named(demonstration):
    accuracy, rounds = demonstration.read("accuracy.json"), trained(demonstration)
    averaging = demonstration.read("settings.json")["training"]["optimiser"]["averaging"]
    first = rounds // 2 + 1 if averaging["name"] == "tail" else 1
    assert accuracy["averaged_rounds"] == list(range(first, rounds + 1))
    assert f"mean of its last {len(accuracy['averaged_rounds'])} released models" in demonstration.printed


def test_the_last_model_is_evaluated_on_patients_whom_nobody_trains_on(demonstration):
    own, settings = demonstration.read("accuracy.json")["own_patients"], demonstration.read("settings.json")
    if settings["privacy"]["scheme"] == "client":
        # There a query could not hide a whole hospital.
        assert own is None
        return
    # Of all that were set aside the model may say the right thing.
    assert own["low"] < own["accuracy"] <= own["high"] <= 1
    # A fifth of 455 is set aside by coins (standard deviation 8.5), and four cells have noise below 3 each, so that
    # their sum is off by less than 11: more than 60 off is five and a half deviations, one run in ten million.
    assert abs(own["patients"] - 91) < 60
    assert "set aside, by a query" in " ".join(demonstration.printed.split())
    page = (demonstration.home / "report" / "report.md").read_text()
    assert f"{own['accuracy']:.4f}" in page


def test_the_terminal_needs_a_hundred_columns(demonstration):
    tables = [line for line in demonstration.printed.splitlines() if line.startswith(("│", "╭", "╰")) or "4/4" in line]
    assert tables
    assert max(map(len, tables)) <= 100


def test_nothing_secret_is_printed(demonstration):
    key = (demonstration.home / "coordinator" / "administrator.key").read_text().strip()
    viewer = (demonstration.home / "coordinator" / "viewer.key").read_text().strip()
    logs = [path.read_text(errors="replace") for path in demonstration.home.rglob("*.log")]
    for text in (demonstration.printed, *logs):
        assert key not in text
        assert viewer not in text


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demonstration, all of whose processes have started."""
    process = subprocess.Popen(
        [*WARDROUND, "demo", "--home", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        _wait_for(tmp_path / "evaluator.log", process)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_behind(running: subprocess.Popen[str], number: signal.Signals):
    family = psutil.Process(running.pid).children(recursive=True)
    assert len(family) >= 6, "coordinator, four hospitals, evaluator; the baselines may be done"
    running.send_signal(number)
    printed, _ = running.communicate(timeout=60)
    assert running.returncode == 130, printed
    assert "All processes have ended" in printed
    assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_a_process_that_dies_is_shown_with_the_end_of_its_log(running: subprocess.Popen[str], tmp_path: Path):
    hospital = next(
        c
        for c in psutil.Process(running.pid).children()
        if c.status() != psutil.STATUS_ZOMBIE
        and "join" in c.cmdline()
        and str(tmp_path / "hospitals" / "city") in " ".join(c.cmdline())
    )
    hospital.kill()
    printed, _ = running.communicate(timeout=120)
    assert running.returncode == 1, printed
    assert "city ended with code -9" in printed
    assert str(tmp_path / "hospitals" / "city" / "wardround" / "hospital.log") in printed.replace("\n", "")


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + START_SECONDS
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.1)
