"""A study that runs a program on the records, as people at a hospital meet it: said, listed, and run as given."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from private_learning.tasks.backbone_file import ProgramFile
from tests.factories.commands import Run, finished, opened, write_settings
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live
from tests.factories.programs import program

PARAMETERS: dict[str, Any] = {"shape": "1x3x4", "features": 5, "classes": 2, "bound": 2.0, "high": 1.0}


@dataclass(frozen=True)
class Setting:
    """A study's part, its program, records for it, and the line of a policy that lists the program."""

    training: dict[str, Any]
    file: ProgramFile
    sha256: str
    data: Path
    listed: str


@pytest.fixture
def given(tmp_path: Path) -> Setting:
    path, data = tmp_path / "net.onnx", tmp_path / "records.npz"
    path.write_bytes(program().SerializeToString())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    draw = np.random.default_rng(1)
    np.savez(data, inputs=draw.uniform(size=(40, 3, 4)), labels=draw.integers(2, size=40))
    training = {"task": "features", "task_parameters": PARAMETERS, "backbone": {"sha256": sha256}}
    return Setting(training, ProgramFile(path), sha256, data, f'backbone_programs = ["{sha256}"]\n')


def plain(output: str) -> str:
    return " ".join(output.split())


@pytest.mark.slow
def test_from_the_settings_to_a_prediction(here: Live, run: Run, tmp_path: Path, given: Setting) -> None:
    outcome = finished(
        run, here, tmp_path, given.file, records=given.data, policy=given.listed, training=given.training
    )
    assert outcome["rounds_sent"] == 2
    model = tmp_path / "model.safetensors"
    run("study", "model", "sepsis", "-o", str(model))
    told = ("predict", str(model), "--data", str(given.data))
    said = run(*told, "--backbone-program", str(given.file.path)).stdout
    assert len(said.splitlines()) == 41
    # A file of weights is never run: what it is, a person says.
    assert "--backbone-program FILE" in plain(run(*told, "--backbone", str(given.file.path), code=1).stderr)
    both = ("--backbone", str(given.file.path), "--backbone-program", str(given.file.path))
    failed = plain(run(*told, *both, code=2).output.replace("\u2502", ""))
    assert "give --backbone or --backbone-program" in failed


def test_join_says_that_a_program_runs_and_refuses_one_that_is_not_listed(
    here: Live, run: Run, tmp_path: Path, given: Setting
) -> None:
    opened(run, tmp_path, given.file, training=given.training, bayesian=False)
    policy = tmp_path / "mercy" / "policy.toml"
    other = f'backbone_programs = ["{"0" * 64}"]\n'
    joining = ("join", "sepsis", "--data", str(given.data), "--backbone-program", str(given.file.path), "--yes")
    for lines in ("", other):
        policy.write_text(lines + lax_toml())
        failed = plain(run(*joining, code=3).output)
        assert f"backbone_programs does not list the program {given.sha256}" in failed
        assert "an ONNX file from elsewhere that runs on this machine" in plain(failed.replace("\u2502", ""))


def test_data_check_refuses_a_program_that_is_not_listed_unread(run: Run, tmp_path: Path, given: Setting) -> None:
    study = str(write_settings(tmp_path / "study.json", training=given.training))
    checking = ("data", "check", str(given.data), "--settings", study, "--backbone-program")
    absent = tmp_path / "absent"
    # The file need not even be there.
    assert "backbone_programs does not list" in plain(run(*checking, str(absent), code=3).stderr)
    policy = tmp_path / "policy.toml"
    policy.write_text(given.listed)
    said = run(*checking, str(given.file.path), "--policy", str(policy)).stdout
    assert "40" in said
    assert "cannot be read" in run(*checking, str(absent), "--policy", str(policy), code=1).stderr


@pytest.mark.parametrize("entry", ['"abc"', '["abc"]', '["' + "A" * 64 + '"]'])
def test_an_entry_that_is_no_digest_is_an_error(run: Run, tmp_path: Path, given: Setting, entry: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f"backbone_programs = {entry}\n")
    failed = run("data", "check", str(given.data), "--policy", str(policy), code=1)
    assert "backbone_programs" in failed.stderr
