"""An exported model computes what the model computes, says what it is, and holds nothing else."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from client_sdk.errors import ConfigurationError
from client_sdk.released import ReleasedModel, load_model
from client_sdk.released.export import TOLERANCE, to_onnx, to_torch
from private_learning.tasks import TaskError
from tests.client_sdk.released.test_model import Regression
from tests.factories.released import TASKS, write_model


@pytest.fixture(params=TASKS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> ReleasedModel:
    return load_model(write_model(tmp_path / "m", request.param, TASKS[request.param]))


def fresh(model: ReleasedModel, count: int) -> torch.Tensor:
    """Other inputs than the export's own check looks at."""
    return model.task.example_inputs(count, np.random.default_rng(99))


@pytest.mark.slow
def test_onnx_gives_the_same_probabilities_for_any_number_of_records(model: ReleasedModel) -> None:
    made = to_onnx(model)
    assert made.difference <= TOLERANCE
    onnx.checker.check_model(onnx.load_from_string(made.data), full_check=True)
    session = onnxruntime.InferenceSession(made.data, providers=["CPUExecutionProvider"])
    for count in (1, 3, 500):
        inputs = fresh(model, count)
        (found,) = session.run(["predictions"], {"inputs": inputs.numpy()})
        np.testing.assert_allclose(found, model.predicted(inputs), atol=TOLERANCE)
    said = session.get_modelmeta().custom_metadata_map
    assert model.metadata is not None
    assert said.items() >= model.metadata.header().items()
    assert said["model_sha256"] == model.sha256
    assert [each["column"] for each in json.loads(said["inputs"])] == list(model.columns)
    # Whoever hashes it finds the same bytes again, and no path of this machine.
    assert to_onnx(model).data == made.data
    assert b".py" not in made.data


@pytest.mark.quick("last-layer")
def test_torch_export_gives_the_same_probabilities_for_any_number_of_records(model: ReleasedModel) -> None:
    made = to_torch(model)
    assert made.difference <= TOLERANCE
    extra = {"wardround.json": ""}
    program = torch.export.load(io.BytesIO(made.data), extra_files=extra).module()
    for count in (1, 3, 500):
        inputs = fresh(model, count)
        np.testing.assert_allclose(program(inputs).detach().numpy(), model.predicted(inputs), atol=TOLERANCE)
    assert json.loads(extra["wardround.json"])["model_sha256"] == model.sha256
    with zipfile.ZipFile(io.BytesIO(made.data)) as archive:
        held = [archive.read(name) for name in archive.namelist()]
    # A pickle begins with its protocol, an archive of one holds data.pkl.
    assert not any(b".pkl" in data or data.startswith(b"\x80\x02") or b".py" in data for data in held)


def test_a_task_without_examples_is_exported_by_records_of_which_none_is_written(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path / "m", "stay", {}, Regression()), task=Regression())
    with pytest.raises(TaskError, match="--data FILE"):
        to_torch(model)
    records = torch.tensor([[0.7162534]])
    made = to_torch(model, records)
    assert records.numpy().tobytes() not in made.data
    program = torch.export.load(io.BytesIO(made.data)).module()
    assert program(torch.zeros(4, 1)).shape == (4, 1)


@pytest.mark.quick("last-layer", "piecewise-exponential")
def test_a_model_that_computes_something_else_there_is_not_exported(
    model: ReleasedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = model.predicted(fresh(model, 256))
    monkeypatch.setattr(ReleasedModel, "predicted", lambda self, inputs: right[: len(inputs)] + 1e-3)
    with pytest.raises(ConfigurationError, match="nothing is written"):
        to_torch(model)


def test_without_the_extra_it_is_named(model: ReleasedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigurationError, match=r"onnxscript: pip install 'wardround\[export\]'"):
        to_onnx(model)
