"""Names, and code of one's own through an entry point."""

import re
import sys
from pathlib import Path

import pytest
import torch

from private_learning.records import Examples, Records
from private_learning.tasks import Classification, TaskDataset, TaskError, load, names
from private_learning.tasks.registry import BUILT_IN, EXAMPLES, example_of
from private_learning.tasks.task import new_model
from private_learning.tasks.weights import drawn_weights
from tests.factories.made_up import made_up
from wardround.cli.lead.templates import study_values

PACKAGE = """
import numpy as np
import torch
from torch import nn
from private_learning.records import Examples
from private_learning.tasks import Classification, TaskDataset, TaskError

class Own(Classification):
    classes = 2
    def __init__(self, parameters):
        if set(parameters) != {"width"}:
            raise TaskError("width is the one parameter")
        self.width = parameters["width"]
    @classmethod
    def example(cls):
        return {"width": 3}
    def model(self):
        return nn.Linear(self.width, self.outputs)
    def initial_weights(self, random):
        return {"weight": random.normal(size=(1, self.width)).astype("float32"), "bias": np.zeros(1, "float32")}
    def synthetic_records(self, count, seed=0):
        inputs = np.random.default_rng(seed).normal(size=(count, self.width))
        return Examples.of(inputs, inputs[:, 0] > 0)
    def dataset(self, data):
        return TaskDataset(torch.from_numpy(data.inputs).float(), self.integer_labels(data.labels), data.patients)

def not_a_task(parameters):
    return parameters

def broken(parameters):
    return parameters["width"]

class NoModel(Own):
    def model(self):
        raise RuntimeError("no such backbone")

class NoExample(Own):
    def example(self):
        return {"width": 3}

class OddExample(Own):
    @classmethod
    def example(cls):
        return {"width": None}
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_task_package.py").write_text(PACKAGE)
    info = tmp_path / "own_task_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-task-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[wardround.tasks]\nown = own_task_package:Own\nwrong = own_task_package:not_a_task\n"
        "broken = own_task_package:broken\nno-model = own_task_package:NoModel\ngone = own_task_package:Gone\n"
        "no-example = own_task_package:NoExample\nodd-example = own_task_package:OddExample\n"
        "half = own_task_package_that_fails:Own\n"
    )
    (tmp_path / "own_task_package_that_fails.py").write_text("raise OSError('no weights here')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_task_package", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_brings_its_own_task():
    task = load("own", {"width": 3})
    dataset = task.dataset(Examples.of([[1.0, 2, 3], [4, 5, 6]], [0, 1], ["a", "b"]))
    outputs = task.model()(dataset.inputs)
    assert task.loss(outputs, dataset.targets).shape == (2,)
    assert set(task.metrics(outputs, dataset.targets)) == {"accuracy", "log_loss"}
    weights = drawn_weights(task)
    assert weights is not None
    task.model().load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    assert task.dataset(task.synthetic_records(4)).inputs.shape == (4, 3)
    assert {"own", "wrong", "cnn", "last-layer", "logistic-regression", "mlp"} <= set(names())


@pytest.mark.usefixtures("installed")
def test_an_installed_task_has_the_example_that_it_names() -> None:
    assert example_of("own") == study_values(task="own")["training"]["task_parameters"] == {"width": 3}
    texts = {"wrong": "has no example", "half": "cannot be imported", "no": "no package here"}
    texts |= {"no-example": "cannot give its example: TypeError", "odd-example": "neither numbers, Booleans nor texts"}
    for name, said in texts.items():
        with pytest.raises(TaskError, match=said):
            example_of(name)


def test_a_task_that_says_nothing_about_its_records_names_what_it_lacks() -> None:
    class Silent(Classification):
        classes = 2

        def model(self) -> torch.nn.Module:
            return torch.nn.Linear(3, 1)

        def dataset(self, data: Records) -> TaskDataset:
            raise NotImplementedError

    with pytest.raises(TaskError, match="Silent has no example"):
        Silent.example()
    with pytest.raises(TaskError, match="no synthetic_records"):
        Silent().synthetic_records(1)
    assert drawn_weights(Silent()) is None


@pytest.mark.usefixtures("installed")
def test_what_is_not_a_task_is_refused():
    with pytest.raises(TaskError, match="did not return a Task"):
        load("wrong", {})
    with pytest.raises(TaskError, match="width"):
        load("own", {})


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "task 'broken' of package own-task-package cannot be made with these parameters: KeyError: 'width'"),
        ("gone", "task 'gone' of package own-task-package cannot be imported: AttributeError"),
        ("half", "task 'half' of package own-task-package cannot be imported: OSError: no weights here"),
    ],
    ids=["makes none", "not there", "fails while read"],
)
def test_code_that_fails_is_a_task_error_with_its_reason(name: str, said: str) -> None:
    with pytest.raises(TaskError, match=re.escape(said)):
        load(name, {})


@pytest.mark.usefixtures("installed")
def test_a_model_that_cannot_be_made_is_a_task_error() -> None:
    with pytest.raises(TaskError, match="task 'no-model' could not make its model: RuntimeError: no such backbone"):
        new_model(load("no-model", {"width": 3}), "no-model")


def test_a_name_that_nobody_installed_is_refused_with_those_there_are():
    with pytest.raises(TaskError, match=r"no package here offers it.*logistic-regression"):
        load("logistic regression", {})


def test_every_built_in_task_has_an_example_and_no_other_task() -> None:
    assert set(EXAMPLES) == set(BUILT_IN)


@pytest.mark.parametrize("name", EXAMPLES)
def test_records_made_for_the_example_go_through_its_model_and_loss(name: str) -> None:
    task = load(name, EXAMPLES[name])
    data = task.dataset(made_up(task, 6))
    losses = task.loss(task.model().eval()(data.inputs), data.targets)
    assert losses.shape == (6,)
    assert bool(losses.isfinite().all())
