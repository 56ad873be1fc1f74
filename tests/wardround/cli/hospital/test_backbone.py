"""A study that trains a part of a model on public weights, as an operator, a hospital and a user type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from client_sdk.released import load_model
from private_learning.tasks import load
from private_learning.tasks.registry import load_part
from private_learning.training.weights import load_weights
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensors import metadata_in
from tests.factories.commands import AS_WRITTEN, Run, finished, opened, write_records, write_settings
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live
from tests.factories.parts import Backbone, backbone
from tests.factories.settings import TASK_PARAMETERS

MLP: dict[str, Any] = {**TASK_PARAMETERS, "hidden": 4, "layers": 2}
HEAD = {"4.weight", "4.bias"}


def part(file: Backbone, trainable: Any) -> dict[str, Any]:
    return {"task": "mlp", "task_parameters": MLP, "trainable": trainable, "backbone": {"sha256": file.sha256}}


@pytest.fixture
def file(tmp_path: Path) -> Backbone:
    return backbone(tmp_path, task="mlp", parameters=MLP)


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["head", "lora:2", ("4.*", "2.bias")], ids=["head", "rank 2", "patterns"])
def test_from_the_settings_to_a_prediction(
    here: Live, run: Run, tmp_path: Path, file: Backbone, trainable: Any
) -> None:
    finished(run, here, tmp_path, file.path, training=part(file, trainable))
    kept = tmp_path / "mercy" / "features"
    assert sorted(path.suffix for path in kept.glob("*")) == (["", ".sealed"] if trainable == "head" else [])
    target = tmp_path / "model.safetensors"
    run("study", "model", "sepsis", "-o", str(target))
    weights, metadata = load_file(target), ModelMetadata.within(metadata_in(target.read_bytes()))
    assert metadata is not None
    assert (metadata.trainable, metadata.backbone_sha256) == (trainable, file.sha256)
    assert set(weights) >= HEAD
    assert not {"0.weight", "2.weight"} & set(weights)
    # What another way to the same model predicts: the backbone's tensors and the released ones, put in by hand.
    module = load_part(load("mlp", MLP), "mlp", trainable, file.sha256, file.path).model().eval()
    load_weights(module, weights)
    records = str(write_records(tmp_path / "new.csv"))
    task = load("mlp", MLP)
    with torch.no_grad():
        expected = torch.sigmoid(module(task.inputs(_table(records))).double())[:, 0].numpy()
    said = run("predict", str(target), "--data", records, "--backbone", str(file.path), "--json").stdout
    np.testing.assert_allclose([row["probability_1"] for row in json.loads(said)], expected, atol=1e-6)
    run("evaluate", str(target), "--data", records, "--backbone", str(file.path))
    failed = run("predict", str(target), "--data", records, code=1)
    assert f"SHA-256 {file.sha256}" in failed.stderr


def _table(path: str) -> Any:
    from private_learning.records import load as read

    return read(Path(path))


def test_who_agrees_reads_which_part_is_trained_and_on_which_file(
    here: Live, run: Run, tmp_path: Path, file: Backbone
) -> None:
    opened(run, tmp_path, file.path, training=part(file, "head"), bayesian=False)
    (tmp_path / "mercy" / "policy.toml").write_text(lax_toml())
    data = str(write_records(tmp_path / "records.csv"))
    failed = run("join", "sepsis", "--data", data, "--patient-column", "patient", *AS_WRITTEN, "--yes", code=1)
    assert "of its model only its head" in failed.output
    assert "give it with --backbone FILE" in " ".join(failed.output.split())


def test_a_study_is_not_created_without_its_file_or_with_another(
    here: Live, run: Run, tmp_path: Path, file: Backbone
) -> None:
    study = str(write_settings(tmp_path / "study.json", training=part(file, "head")))
    (tmp_path / "other").mkdir()
    other = backbone(tmp_path / "other", task="mlp", parameters=MLP, seed=3)
    for given, said in (([], "--backbone FILE"), (["--backbone", str(other.path)], "is not the file")):
        failed = run("study", "create", "sepsis", "--settings", study, *given, operator=True, code=1)
        assert said in " ".join(failed.output.split())
        failed = run("study", "weights", "--settings", study, "-o", str(tmp_path / "w"), *given, code=1)
        assert said in " ".join(failed.output.split())
    run("study", "weights", "--settings", study, "-o", str(tmp_path / "w"), "--backbone", str(file.path))
    assert set(load_file(tmp_path / "w")) == HEAD
    run("study", "create", "sepsis", "--settings", study, "--model", str(tmp_path / "w"), operator=True)


def test_data_check_takes_the_file(run: Run, tmp_path: Path, file: Backbone) -> None:
    study = str(write_settings(tmp_path / "study.json", training=part(file, "lora:1")))
    data = str(write_records(tmp_path / "records.csv"))
    said = run("data", "check", data, "--settings", study, "--patient-column", "patient", "--backbone", str(file.path))
    # Adapters of 1 × 2 + 4 × 1 and 1 × 4 + 4 × 1, the head 4 + 1.
    assert "mlp, 19 parameters" in said.output
    failed = run("data", "check", data, "--settings", study, "--patient-column", "patient", code=1)
    assert "--backbone FILE" in " ".join(failed.output.split())


@pytest.mark.slow
def test_an_exported_model_needs_no_backbone(tmp_path: Path, here: Live, run: Run, file: Backbone) -> None:
    finished(run, here, tmp_path, file.path, training=part(file, "lora:2"))
    target, written = tmp_path / "model.safetensors", tmp_path / "model.pt2"
    run("study", "model", "sepsis", "-o", str(target))
    run("export", str(target), "--torch", str(written), "--backbone", str(file.path))
    inputs = torch.rand(5, 2)
    found = torch.export.load(written).module()(inputs)
    expected = load_model(target, backbone=file.path).predicted(inputs)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)


def test_the_template_of_features_is_tried_on_made_up_images(run: Run, tmp_path: Path) -> None:
    study, data = tmp_path / "study.toml", tmp_path / "images.npz"
    run("study", "template", "--task", "features", "-o", str(study))
    draw = np.random.default_rng(1)
    np.savez(data, inputs=draw.integers(0, 256, (20, 28, 28)), labels=draw.integers(2, size=20))
    said = run("data", "check", str(data), "--settings", str(study)).output
    assert "features, 393 parameters" in said
    assert "15680" in said
