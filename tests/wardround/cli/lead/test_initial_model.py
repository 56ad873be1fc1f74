"""The initial model of a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from client_sdk.errors import ConfigurationError
from private_learning import tasks
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError, metadata_in
from tests.factories.settings import settings
from wardround.cli.lead.initial_model import initial_model, initial_weights

STUDY = settings()


def test_it_is_of_round_0_of_this_very_study() -> None:
    body = initial_model("sepsis", STUDY, None, None)
    metadata = ModelMetadata.within(metadata_in(body))
    assert metadata is not None
    metadata.require("sepsis", STUDY, 0)
    assert (metadata.ledger_entries, metadata.ledger_sha256) == (0, "0" * 64)
    # Of a logistic regression on two numbers nothing is drawn.
    assert {name: array.tolist() for name, array in load(body).items()} == {"weight": [[0, 0]], "bias": [0]}


def test_weights_of_a_file_get_the_header_of_the_study(tmp_path: Path) -> None:
    weights = {"weight": np.array([[1.5, -2.0]], np.float32), "bias": np.array([0.25], np.float32)}
    path = tmp_path / "weights.safetensors"
    path.write_bytes(encode_model(weights, {"format": "pt"}))
    body = initial_model("sepsis", STUDY, path, None)
    assert {name: array.tolist() for name, array in load(body).items()} == {"weight": [[1.5, -2]], "bias": [0.25]}
    assert metadata_in(body) == metadata_in(initial_model("sepsis", STUDY, None, None))
    path.write_bytes(b"no weights")
    with pytest.raises(TensorError):
        initial_model("sepsis", STUDY, path, None)


def test_a_model_that_a_hospital_adapted_begins_no_study(tmp_path: Path) -> None:
    """Its weights were fitted to patients without noise, and the header of the study would hide it."""
    adapted = {"adapted_from": "ab" * 32, "adapted": "intercept, stays at home"}
    metadata = ModelMetadata.of("sepsis", STUDY, 3, (7, "ab" * 32)).model_copy(update=adapted)
    weights = {"weight": np.zeros((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
    path = tmp_path / "adapted.safetensors"
    path.write_bytes(encode_model(weights, metadata.header()))
    with pytest.raises(TensorError, match=f"must stay there: take the released one, with SHA-256 {'ab' * 32}"):
        initial_model("sepsis", STUDY, path, None)


def test_drawn_weights_are_those_of_the_task_s_model_in_form_and_in_their_bounds() -> None:
    """Uniform within 1/√inputs, as torch draws a linear layer."""
    parameters = {**STUDY.training.task_parameters, "classes": 2, "hidden": 3}
    chosen = settings(training={"task": "mlp", "task_parameters": parameters})
    weights = initial_weights(chosen, None)
    model = tasks.load("mlp", parameters).model()
    assert {name: array.shape for name, array in weights.items()} == {
        name: tuple(parameter.shape) for name, parameter in model.named_parameters()
    }
    matrices = [array for array in weights.values() if array.ndim == 2]
    assert all(0 < np.abs(matrix).max() <= matrix.shape[1] ** -0.5 for matrix in matrices)


def test_a_package_that_lacks_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'special'", name="special")

    monkeypatch.setattr(tasks, "load", missing)
    with pytest.raises(ConfigurationError, match=r"special is not installed. Pass --model FILE"):
        initial_weights(STUDY, None)


def test_an_unknown_task_is_the_task_s_own_error() -> None:
    with pytest.raises(tasks.TaskError, match="no-such-task"):
        initial_weights(settings(training={"task": "no-such-task"}), None)
