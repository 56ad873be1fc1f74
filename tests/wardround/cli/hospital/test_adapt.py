"""`wardround adapt` as a person types it: what is shown and written, and when nothing is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from client_sdk.released import load_model
from tests.factories.released import TABLE, write_model
from wardround.cli.hospital.adapt import adapt
from wardround.cli.main import build


def wardround(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build(), list(map(str, arguments)), env={"COLUMNS": "160"})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m.safetensors", "logistic-regression", TABLE)


def local(model: Path, patients: int = 900, *, slope: float = 0.4, intercept: float = -1.0, seed: int = 0) -> Path:
    draw = np.random.default_rng(seed)
    columns = {
        "age": draw.uniform(18, 90, patients),
        "chol": draw.uniform(100, 400, patients),
        "thal": draw.choice(["3", "6", "7"], patients),
    }
    probability = load_model(model)(columns)[:, 1]
    logit = slope * np.log(probability / (1 - probability)) + intercept
    sick = (draw.uniform(size=patients) < 1 / (1 + np.exp(-logit))).astype(int)
    rows = zip(*columns.values(), sick, strict=True)
    path = model.with_name("local.csv")
    lines = [",".join(map(str, (*row, f"p{number}"))) for number, row in enumerate(rows)]
    path.write_text("\n".join(["age,chol,thal,sick,id", *lines]) + "\n")
    return path


def test_the_adapted_model_is_written_for_its_owner_alone_and_read_by_the_other_commands(model: Path) -> None:
    data, output = local(model), model.with_name("adapted.safetensors")
    done = wardround("adapt", model, "--data", data, "--patient-column", "id", "-o", output, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["written"] == str(output)
    assert sum(shown["patients"].values()) == 900
    assert shown["after"]["log_loss"] < shown["before"]["log_loss"]
    assert {"roc_auc", "brier", "calibration_slope", "calibration_intercept"} <= set(shown["after"])
    assert "Keep both in the building" in done.stderr
    if sys.platform != "win32":
        assert output.stat().st_mode & 0o777 == 0o600
    for command in (["predict"], ["evaluate"]):
        again = wardround(*command, output, "--data", data)
        assert again.exit_code == 0, again.output
        assert "must not leave the hospital" in again.stderr
    assert "must not leave" not in wardround("predict", model, "--data", data).stderr
    program = model.with_name("adapted.pt2")
    assert "must not leave" in wardround("export", output, "--torch", program).stderr
    if sys.platform != "win32":
        assert program.stat().st_mode & 0o777 == 0o600


def test_without_an_output_both_are_only_compared(model: Path) -> None:
    done = wardround("adapt", model, "--data", local(model), "--patient-column", "id")
    assert done.exit_code == 0, done.output
    assert "before" in done.stdout
    assert "calibration_slope" in done.stdout
    assert "better, standard error" in done.stdout
    assert {path.name for path in model.parent.iterdir()} == {"m.safetensors", "local.csv"}


def test_a_worse_model_is_written_only_if_that_is_asked_for(model: Path) -> None:
    # A seed at which the fit of a model that fits already is worse.
    data, output = local(model, 300, slope=1.0, intercept=0.0, seed=2), model.with_name("adapted.safetensors")
    arguments = ["adapt", model, "--data", data, "--patient-column", "id", "-o", output]
    refused = wardround(*arguments)
    assert refused.exit_code == 1
    assert "worse on the hold-out, so nothing is written" in refused.stderr
    assert not output.exists()
    assert wardround(*arguments, "--even-if-worse").exit_code == 0
    assert output.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--patient-column", "nobody"), "nobody"),
        ((), "--patient-column"),
        (("--patient-column", "id", "--hold-out", "0"), "between 0.1 and 0.9"),
    ],
)
def test_mistakes_are_one_line(model: Path, change: tuple[str, ...], words: str) -> None:
    done = wardround("adapt", model, "--data", local(model, 60), *change)
    assert done.exit_code == 1
    assert words in done.stderr
    assert "Traceback" not in done.output


def test_the_help_says_that_it_stays_at_the_hospital() -> None:
    assert adapt.__doc__ is not None
    words = " ".join(wardround("adapt", "--help").stdout.split())
    assert "must stay at this hospital" in adapt.__doc__
    assert "No number is sent, and no ε is spent" in words


def test_too_few_patients_are_said_with_their_number(model: Path) -> None:
    done = wardround("adapt", model, "--data", local(model, 40), "--patient-column", "id")
    assert done.exit_code == 1
    assert "too few patients (" in done.stderr
    assert "Keep the released model" in done.stderr
    missing = wardround("adapt", model.with_name("none"), "--data", local(model, 40), "--patient-column", "id")
    assert missing.exit_code == 1
