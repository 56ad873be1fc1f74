"""`wardround simulate` with a part of a model on public weights: the same as in the whole model, computed once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from private_learning.training.features import Features
from tests.factories.parts import CNN, Backbone, backbone, images
from wardround.cli.lead.templates import study_text, study_values
from wardround.cli.main import build


@pytest.fixture
def file(tmp_path: Path) -> Backbone:
    return backbone(tmp_path)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    made, path = images(120), tmp_path / "records.npz"
    np.savez(path, inputs=made.inputs, labels=made.labels)
    return path


def study(path: Path, file: Backbone, **training: Any) -> Path:
    values = study_values()
    part = {"task": "cnn", "task_parameters": CNN, "backbone": {"sha256": file.sha256}}
    given = values["training"] | part | training
    values["training"] = {name: value for name, value in given.items() if value is not None}
    values["privacy"] = values["privacy"] | {"max_steps": 3, "expected_batch_size": 10.0}
    path.write_text(study_text(values))
    return path


def simulate(*arguments: str | Path) -> Result:
    app = build()
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.mark.quick("patterns", "rank 2")
@pytest.mark.parametrize("trainable", ["head", "lora:2", ["5.*", "7.*"]], ids=["head", "rank 2", "patterns"])
def test_every_part_is_simulated_with_what_it_is_compared_with(
    tmp_path: Path, file: Backbone, records: Path, trainable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    computed, required = Features._computed, Features.require

    def counted(self: Features, inputs: Any) -> Any:
        rows.append(len(inputs))
        return computed(self, inputs)

    def uncounted(self: Features, dataset: Any) -> None:
        # Generated records, to try the frozen part before any record is read.
        before = len(rows)
        required(self, dataset)
        del rows[before:]

    monkeypatch.setattr(Features, "_computed", counted)
    monkeypatch.setattr(Features, "require", uncounted)
    path = study(tmp_path / "study.toml", file, trainable=trainable)
    # Trained for comparison, too, where that is quick.
    more = ["--seeds", "2"] if trainable == "head" else ["--no-baselines"]
    given = ["--clients", "4", "--backend", "loop", "--backbone", file.path, "--json"]
    done = simulate(path, "--data", records, *given, *more)
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["seeds"][0]["rounds"]) == 3
    # Every image once, whatever seeds and comparisons there are: some more passes than 120 / 64 of 64 places each.
    assert (sum(rows) > 0) == (trainable == "head")
    assert sum(rows) <= 64 * 8 + 1


def test_without_the_file_it_says_which_one_is_needed(tmp_path: Path, file: Backbone, records: Path) -> None:
    path = study(tmp_path / "study.toml", file, trainable="head")
    done = simulate(path, "--data", records, "--clients", "4")
    assert done.exit_code == 1
    assert f"SHA-256 {file.sha256}" in " ".join(done.output.split())


def test_features_of_a_built_in_module_are_simulated(tmp_path: Path, file: Backbone, records: Path) -> None:
    parameters = {"module": "oriented-gradients", "shape": "1x8x8", "features": 32, "classes": 3, "bound": 1.0}
    path = study(
        tmp_path / "study.toml", file, task="features", task_parameters=parameters | {"high": 1.0}, backbone=None
    )
    done = simulate(path, "--data", records, "--clients", "4", "--backend", "loop", "--no-baselines", "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["seeds"][0]["rounds"]) == 3
