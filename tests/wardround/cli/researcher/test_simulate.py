"""`wardround simulate` as a person types it: tables, files, what is refused, and going on after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from client_sdk.errors import TrainingStopped
from simulation.local_work import ClientStopped
from simulation.results.report import SeedRun
from simulation.runs import Simulation
from tests.factories.record_files import write_records
from wardround.cli.lead.templates import study_text, study_values
from wardround.cli.main import build

PARAMETERS = {"label": "ill", "column.age": "0..100", "column.rate": "0..10"}
START = "from wardround.cli.main import build; build()()"


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def write_settings(path: Path, rounds: int = 6, **privacy: Any) -> Path:
    values = study_values()
    values["training"] = values["training"] | {"task_parameters": PARAMETERS}
    values["privacy"] = values["privacy"] | {"max_steps": rounds, "expected_batch_size": 30.0} | privacy
    path.write_text(study_text(values))
    return path


def simulate(*arguments: str | Path) -> Result:
    app = build()
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_settings(tmp_path / "study.toml")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "records.csv", 160, 1)


@pytest.mark.slow
def test_it_shows_accuracy_beside_epsilon_and_what_it_is_compared_with(
    study: Path, records: Path, tmp_path: Path
) -> None:
    chart, found = tmp_path / "chart.svg", tmp_path / "found.json"
    done = simulate(study, "--data", records, "--clients", "4", "--seeds", "2", "--plot", chart, "-o", found)
    assert done.exit_code == 0, done.output
    for said in (
        "4 clients with 128 patients",
        "same rounds, no noise",
        "all records pooled",
        "one client alone",
        "ends: ",
        "is the ε so far, if the study ended here for reasons that do not depend on its results",
        "ε in the table holds whenever the study stops",
    ):
        assert said in done.output
    written = json.loads(found.read_text())
    assert [run["seed"] for run in written["seeds"]] == [0, 1]
    rounds = written["seeds"][0]["rounds"]
    assert [one["round"] for one in rounds] == list(range(1, len(rounds) + 1))
    spent = [one["spent"][0] for one in rounds]
    assert spent == sorted(spent)
    assert 0.3 < written["summary"]["reached"]["mean"] <= 1
    # Six steps without noise on four times as many records: what one hospital learns alone is no better.
    assert written["summary"]["pooled"]["mean"] >= written["summary"]["most_frequent"]["mean"]
    drawn = chart.read_text()
    assert drawn.startswith("<svg")
    assert "privacy loss" in drawn
    assert "one client alone" in drawn


@pytest.mark.slow
def test_encodings_are_compared_in_one_table_with_lines_for_the_settings(study: Path, records: Path) -> None:
    skewed = PARAMETERS | {"column.age": "0..100000"}
    values = study_values()
    values["training"] = values["training"] | {"task_parameters": skewed}
    values["privacy"] = values["privacy"] | {"max_steps": 6, "expected_batch_size": 30.0}
    study.write_text(study_text(values))
    done = simulate(study, "--data", records, "--clients", "4", "--compare-encodings")
    assert done.exit_code == 0, done.output
    for said in ("Encodings, 3 seeds", "as declared", "typical ranges and", '"column.age" = "0..100000; typical='):
        assert said in done.output
    assert "public knowledge" in done.output
    found = json.loads(simulate(study, "--data", records, "--clients", "4", "--compare-encodings", "--json").stdout)
    assert [each["seeds"] for each in found["encodings"]] == [[0, 1, 2]] * len(found["encodings"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "names"),
    [("labels:1", 4), ("dirichlet:1.0", 4), ("column:ward", 3)],
    ids=["labels", "dirichlet", "column"],
)
def test_every_way_of_splitting(how: str, names: int, study: Path, records: Path) -> None:
    more = [] if how.startswith("column") else ["--clients", "4"]
    least = write_settings(study.with_name("few.toml"))
    text = least.read_text().replace("min_clients = 4", "min_clients = 2")
    least.write_text(text)
    done = simulate(least, "--data", records, "--split", how, "--no-baselines", "--json", *more)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["seeds"][0]["clients"] == names


@pytest.mark.slow
def test_every_file_is_a_client(study: Path, tmp_path: Path) -> None:
    files = [write_records(tmp_path / f"Hospital {seed}.csv", 60, seed) for seed in range(4)]
    given = [item for file in files for item in ("--data", str(file))]
    done = simulate(study, *given, "--patient-column", "patient", "--no-baselines", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["seeds"][0]["records"] == 4 * 48


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--clients", "4", "--split", "sideways"], "--split sideways: say iid"),
        (["--clients", "4", "--split", "labels:0"], "--split labels:0: say iid"),
        ([], "say how many clients share the file"),
        (["--split", "column:age2"], "no such column"),
        (["--clients", "400"], "ask for fewer clients"),
        (["--clients", "4", "--backend", "abacus"], "there is no backend 'abacus'"),
        (["--clients", "4", "--test", "nowhere.csv"], "nowhere.csv"),
        (["--clients", "4", "--plot", "chart.pdf"], ".png or an .svg"),
        (["--clients", "4", "--compare-encodings", "-o", "x.json"], "go without --plot, --output and --checkpoints"),
        (["--clients", "4", "--plot", "nowhere/chart.svg"], "there is no folder nowhere"),
    ],
    ids=[
        "split",
        "no-shards",
        "no-clients",
        "column",
        "too-many",
        "backend",
        "no-test",
        "chart",
        "compared",
        "no-folder",
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    arguments: list[str], said: str, study: Path, records: Path
) -> None:
    done = simulate(study, "--data", records, *arguments)
    assert done.exit_code in (1, 2)
    assert said in " ".join(done.output.replace("│", " ").split())


def test_a_fault_is_told_with_its_file_and_the_files_own_lines(study: Path, tmp_path: Path) -> None:
    files = [write_records(tmp_path / f"site{seed}.csv", 60, seed) for seed in range(4)]
    lines = files[2].read_text().splitlines()
    for at in (7, 20, 41):
        lines[at] = f",{lines[at].partition(',')[2]}"
    files[2].write_text("\n".join(lines) + "\n")
    given = [item for file in files for item in ("--data", str(file))]
    done = simulate(study, *given, "--patient-column", "patient")
    assert done.exit_code == 1
    # Line 1 holds the names.
    assert "site2: column age: 3 of 60 values are missing" in done.output
    assert "the first in line 8" in done.output


def test_fewer_clients_than_min_clients_are_refused(study: Path, records: Path) -> None:
    done = simulate(study, "--data", records, "--clients", "1")
    assert done.exit_code == 1
    assert "schedule.min_clients is 4, and clients are 1" in done.output


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_named_and_the_tables_are_shown(study: Path, records: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    done = simulate(study, "--data", records, "--clients", "4", "--no-baselines", "-o", "/dev/full")
    assert done.exit_code == 1
    assert "this study" in done.output
    assert "/dev/full: No space left on device" in done.output


@pytest.mark.parametrize("finished", [0, 1])
def test_ctrl_c_shows_the_seeds_that_are_done(
    finished: int, study: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Simulation.run

    def run(self: Simulation, seed: int, *rest: Any) -> SeedRun:
        if seed == finished:
            raise KeyboardInterrupt
        return whole(self, seed, *rest)

    monkeypatch.setattr(Simulation, "run", run)
    written = tmp_path / "found.json"
    done = simulate(
        study, "--data", records, "--clients", "4", "--no-baselines", "--backend", "loop", "--seeds", "9", "-o", written
    )
    assert done.exit_code == 130
    assert f"stopped during seed {finished}" in done.output
    assert written.exists() == (finished == 1)
    if finished:
        assert [one["seed"] for one in json.loads(written.read_text())["seeds"]] == [0]


def test_a_study_without_training_is_refused(records: Path, tmp_path: Path) -> None:
    from wardround.cli.lead.templates import statistics_values

    settings = tmp_path / "queries.toml"
    settings.write_text(study_text(statistics_values(masked=False)))
    done = simulate(settings, "--data", records, "--clients", "4")
    assert done.exit_code == 1
    assert "does not train" in done.output


@pytest.mark.slow
def test_public_numbers_that_are_of_others_are_noted(records: Path, tmp_path: Path) -> None:
    wrong = write_settings(tmp_path / "wrong.toml", expected_batch_size=500.0, expected_clients=40.0)
    done = simulate(wrong, "--data", records, "--clients", "4", "--no-baselines")
    assert "privacy.expected_batch_size is 500" in done.output
    assert "privacy.expected_clients is 40" in done.output


@pytest.mark.slow
def test_a_comparison_that_comes_to_nothing_takes_nothing_from_the_study(
    study: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_finite(*_: Any) -> Any:
        raise TrainingStopped("training without privacy")

    def stopped(*_: Any) -> Any:
        raise ClientStopped("client-0", 1, "NaN or an infinity in the update")

    monkeypatch.setattr("simulation.runs.baselines", not_finite)
    monkeypatch.setattr("simulation.runs.without_noise", stopped)
    found = tmp_path / "found.json"
    done = simulate(study, "--data", records, "--clients", "4", "-o", found)
    assert done.exit_code == 0, done.output
    assert "nothing to compare with (same rounds, no noise): client-0 stopped in round 1" in done.output
    assert "nothing to compare with (pooled and alone): training without privacy" in done.output
    written = json.loads(found.read_text())
    assert written["summary"]["reached"]["mean"] > 0
    assert written["summary"]["pooled"] is None
    assert len(written["seeds"][0]["missed"]) == 2


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again_it_ends_with_the_same_bytes(records: Path, tmp_path: Path) -> None:
    study = write_settings(tmp_path / "long.toml", rounds=60, noise_multiplier=8.0)
    whole, again, kept = tmp_path / "whole.json", tmp_path / "again.json", tmp_path / "kept"
    given = ["simulate", str(study), "--data", str(records), "--clients", "4", "--no-baselines", "--workers", "2"]
    command = [sys.executable, "-c", START, *given]
    subprocess.run([*command, "-o", str(whole)], check=True, capture_output=True, timeout=240)
    killed = subprocess.Popen(
        [*command, "--checkpoints", str(kept)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 240
    while not (kept / "seed-0.safetensors").exists():
        assert killed.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    subprocess.run(
        [*command, "--checkpoints", str(kept), "-o", str(again)], check=True, capture_output=True, timeout=240
    )
    assert again.read_bytes() == whole.read_bytes()


def test_a_chart_or_a_folder_that_cannot_be_written_is_named_before_anything_runs(
    study: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was simulated")

    monkeypatch.setattr("wardround.cli.researcher.simulate._run", never)
    data = ("--data", records, "--clients", "4")
    chart = simulate(study, *data, "--plot", tmp_path / "chart.pdf")
    assert (chart.exit_code, "a chart is a .png or an .svg" in chart.output) == (2, True), chart.output
    folder = simulate(study, *data, "-o", tmp_path / "nowhere" / "found.json")
    assert (folder.exit_code, "there is no folder" in folder.output.replace("\n", " ")) == (1, True), folder.output
