"""A released model is a function of records: columns by name, and every mistake named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

import wardround
from client_sdk.released import ReleasedModel, load_model
from client_sdk.released.records import new_records
from private_learning.records import DataError, Examples, Records, Table, TableFormat
from private_learning.tasks import Task, TaskDataset, TaskError, registry
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError
from tests.factories.released import TABLE, TASKS, write_model

FRAME = pd.DataFrame(
    {"thal": ["3", None, "7"], "age": [40, 100, 18.0], "chol": [None, 300, 100], "patient": ["a", "b", "c"]}
)


@pytest.fixture
def model(tmp_path: Path) -> ReleasedModel:
    return load_model(write_model(tmp_path / "m.safetensors", "logistic-regression", TABLE))


def test_probabilities_are_those_of_the_weights_computed_by_hand(tmp_path: Path, model: ReleasedModel) -> None:
    weights = load_file(tmp_path / "m.safetensors")
    # age; chol and its indicator; thal 3, 6, 7 and its indicator. 100 years count as 90.
    inputs = np.array(
        [[-14 / 36, (240 - 250) / 150, 1, 1, 0, 0, 0], [1, 50 / 150, 0, 0, 0, 0, 1], [-1, -1, 0, 0, 0, 1, 0]]
    )
    scores = inputs @ weights["weight"].astype(float)[0] + weights["bias"].astype(float)[0]
    np.testing.assert_allclose(model(FRAME)[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-6)
    np.testing.assert_allclose(model(FRAME).sum(axis=1), 1, rtol=1e-12)


def test_columns_are_found_by_their_names_in_whatever_form_records_come(tmp_path: Path, model: ReleasedModel) -> None:
    expected = model(FRAME)
    path = tmp_path / "new.csv"
    FRAME.to_csv(path, index=False)
    columns = {name: FRAME[name].tolist() for name in ("age", "chol", "thal")}
    for given in (FRAME[["chol", "patient", "thal", "age"]], columns, Table.of(FRAME), path, str(path)):
        assert np.array_equal(model(given), expected)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (np.zeros((3, 7)), "a matrix does not name its columns.*age, chol, thal"),
        (torch.zeros(3, 7), "a matrix does not name its columns"),
        (pd.DataFrame(np.zeros((3, 7))), "lacks 3 of the study's columns: 'age', 'chol', 'thal'"),
        (FRAME.drop(columns="chol"), "lacks 1 of the study's columns: 'chol'"),
        (FRAME.assign(age=["old", "40", "50"]), "column age: 1 of 3 values are no numbers"),
        (FRAME.assign(age=[40, np.inf, 50]), "column age: 1 of 3 values are no numbers.*infinity"),
        (FRAME.assign(age=[40, None, 50]), "column age: 1 of 3 values are missing"),
        (FRAME.assign(thal=["3", "9", "9"]), "column thal: 2 of 3 values are none"),
        (FRAME.iloc[:0], "at least one row"),
        (7, "A data frame"),
    ],
    ids=["matrix", "tensor", "no names", "lacking", "text", "infinite", "missing", "category", "empty", "number"],
)
def test_records_that_are_none_are_named(model: ReleasedModel, records: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        model(records)


@pytest.mark.parametrize("name", ["cnn", "last-layer"])
def test_arrays_need_no_labels(tmp_path: Path, name: str) -> None:
    model = load_model(write_model(tmp_path / "m", name, TASKS[name]))
    inputs = np.random.default_rng(1).normal(0, 2, (5, 9, 8) if name == "cnn" else (5, 6))
    labelled = model(Examples.of(inputs, np.zeros(5)))
    np.savez(tmp_path / "new.npz", inputs=inputs, patients=np.arange(5))
    assert labelled.shape == (5, model.task.classes)  # type: ignore[attr-defined]
    for given in (inputs, torch.as_tensor(inputs), tmp_path / "new.npz"):
        assert np.array_equal(model(given), labelled)


@pytest.mark.parametrize("name", TASKS)
def test_more_records_than_a_batch_are_predicted_each_by_itself(tmp_path: Path, name: str) -> None:
    model = load_model(write_model(tmp_path / "m", name, TASKS[name]))
    inputs = model.task.example_inputs(1030, np.random.default_rng(2))
    together = model.predicted(inputs)
    assert together.shape[0] == 1030
    np.testing.assert_allclose(together[1023:1026], model.predicted(inputs[1023:1026]), atol=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_example_inputs_lie_in_the_task_s_domain_and_repeat(name: str, tmp_path: Path) -> None:
    task = load_model(write_model(tmp_path / "m", name, TASKS[name])).task
    first, again = (task.example_inputs(64, np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.dtype == torch.float32
    # The line of a curve has its ends a quarter beyond.
    most = 1.25 if name == "additive" else 1.0
    assert (
        torch.linalg.vector_norm(first, dim=1).max() <= 2.5 + 1e-5
        if name == "last-layer"
        else first.abs().max() <= most
    )


def test_what_a_model_says_of_itself(tmp_path: Path, model: ReleasedModel) -> None:
    assert model.metadata is not None
    assert (model.metadata.study, model.metadata.round, model.metadata.ledger_entries) == ("sepsis", 3, 7)
    assert [column.name for column in model.metadata.columns] == ["age", "chol", "thal"] == list(model.columns)
    assert model.sha256 == hashlib.sha256((tmp_path / "m.safetensors").read_bytes()).hexdigest()
    assert not model.module.training
    assert wardround.load_model is load_model


class Regression(Task):
    """What a package might offer: no classes, no example inputs, records read with their labels only."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets) ** 2

    def dataset(self, data: Records) -> TaskDataset:
        assert isinstance(data, Table)
        age = torch.as_tensor(data.columns["age"]).float()
        return TaskDataset(age[:, None], torch.as_tensor(data.columns["stay"]), data.patients)

    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        return {"squared_error": self.loss(outputs, targets).mean().item()}


def test_a_task_of_a_package_predicts_through_its_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "m", "stay", {}, Regression())
    with pytest.raises(TaskError, match="no package here offers it"):
        load_model(path)
    weights = load_file(path)
    records = {"age": [1.0, 2.0], "stay": [3, 4]}
    expected = np.array([[1.0], [2.0]]) * weights["weight"][0, 0] + weights["bias"][0]
    np.testing.assert_allclose(load_model(path, task=Regression())(records), expected, rtol=1e-6)
    monkeypatch.setattr(registry, "BUILT_IN", {"stay": lambda _: Regression()})
    np.testing.assert_allclose(load_model(path)(records), expected, rtol=1e-6)


def test_weights_that_say_nothing_of_themselves_need_their_task(tmp_path: Path, model: ReleasedModel) -> None:
    path = tmp_path / "bare"
    path.write_bytes(encode_model(load_file(tmp_path / "m.safetensors"), {}))
    with pytest.raises(TensorError, match="wardround study model"):
        load_model(path)
    bare = load_model(path, task=model.task)
    assert bare.metadata is None
    assert np.array_equal(bare(FRAME), model(FRAME))


@pytest.mark.parametrize("data", [b"", b"age,chol\n1,2\n", b"PK\x03\x04" * 9], ids=["empty", "csv", "zip"])
def test_a_file_that_is_no_model_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.csv"
    path.write_bytes(data)
    with pytest.raises(TensorError, match=r"model\.csv is no model"):
        load_model(path)


def test_weights_of_another_task_are_refused(tmp_path: Path, model: ReleasedModel) -> None:
    other = load_model(write_model(tmp_path / "other", "mlp", TASKS["mlp"])).task
    with pytest.raises(TensorError, match="missing tensors"):
        load_model(tmp_path / "m.safetensors", task=other)


def test_weights_whose_scores_overflow_predict_nothing(tmp_path: Path, model: ReleasedModel) -> None:
    path = tmp_path / "huge"
    weights = {name: np.full_like(array, 3e38) for name, array in load_file(tmp_path / "m.safetensors").items()}
    path.write_bytes(encode_model(weights, {}))
    with pytest.raises(DataError, match="earlier round"):
        load_model(path, task=model.task)(FRAME)


def test_a_data_frame_of_new_records_is_read_as_declared() -> None:
    frame = pd.DataFrame({"who": ["a", "b"], "x": ["1,5", "1,234"]})
    found = new_records(frame, "who", TableFormat(None, decimal="comma"))
    assert isinstance(found, Table)
    assert found.patients == ("a", "b")
    assert found.numbers("x").tolist() == [1.5, 1.234]
