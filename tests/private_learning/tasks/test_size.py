"""A few hundred bytes that ask for 40 GB are refused before any memory is taken."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from client_sdk.errors import ConfigurationError
from client_sdk.released.model import load_model
from private_learning.tasks import load, of_study
from private_learning.tasks.registry import EXAMPLES
from private_learning.tasks.size import memory_of_machine, model_bytes, require_size
from private_learning.training.weights import weights_of
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError
from tests.factories.settings import TASK_PARAMETERS, settings

WIDE = {**TASK_PARAMETERS, "hidden": 65_536, "layers": 3}
HUGE: dict[str, tuple[str, dict[str, Any]]] = {
    "wide layers": ("mlp", WIDE),
    "many classes of many features": (
        "features",
        {
            "module": "oriented-gradients",
            "shape": "1x8x8",
            "bound": 1.0,
            "features": 1_000_000,
            "classes": 10_000,
        },
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_size_of_every_built_in_model_is_known_without_making_it(name: str) -> None:
    task = load(name, EXAMPLES[name])
    made = task.model()
    if name == "features":
        made = task.linear(task.parameters.features)  # type: ignore[attr-defined]
    assert model_bytes(task) == sum(t.numel() * t.itemsize for t in (*made.parameters(), *made.buffers()))


def _file(path: Path, task: str, parameters: dict[str, Any], trainable: Any = "all") -> Path:
    """A header and no numbers."""
    training = {"task": task, "task_parameters": parameters, "trainable": trainable}
    said = ModelMetadata.of("sepsis", settings(training=training), 0)
    path.write_bytes(encode_model({}, said.header()))
    assert path.stat().st_size < 2_000
    return path


@pytest.fixture
def little_memory() -> Any:
    """At most 2 GiB more than now: what asks for 40 fails, and nothing else does."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("trainable", ["all", "head", ("4.bias",)], ids=["all", "head", "pattern"])
@pytest.mark.parametrize("kind", HUGE)
@pytest.mark.usefixtures("little_memory")
def test_a_model_file_cannot_ask_for_more_than_the_files_hold(tmp_path: Path, kind: str, trainable: Any) -> None:
    with pytest.raises(TensorError, match=r"asks for a model of [0-9.]+ GiB, and the files hold [0-9,]+ bytes"):
        load_model(_file(tmp_path / "model.safetensors", *HUGE[kind], trainable))


def test_a_model_that_fits_its_file_is_read(tmp_path: Path) -> None:
    said = ModelMetadata.of("sepsis", settings(), 0)
    weights = weights_of(load(said.task, said.task_parameters).model())
    path = tmp_path / "model.safetensors"
    path.write_bytes(encode_model(weights, said.header()))
    assert set(dict(load_model(path).module.named_parameters())) == set(weights)


@pytest.mark.usefixtures("little_memory")
def test_a_study_cannot_ask_for_more_than_the_machine_has() -> None:
    task = load("mlp", WIDE)
    with pytest.raises(ConfigurationError, match=r"the study asks for a model of 32\.0 GiB"):
        require_size(task, 16 << 30, "the study")
    assert memory_of_machine() > 1 << 29


@pytest.mark.parametrize("trainable", ["all", "head"])
@pytest.mark.usefixtures("little_memory")
def test_whoever_makes_the_task_of_a_study_knows_its_size_first(monkeypatch: Any, trainable: str) -> None:
    """Hospitals, `simulate`, and whoever follows a study with `evaluate --watch`."""
    monkeypatch.setattr("private_learning.tasks.size.memory_of_machine", lambda: 16 << 30)
    training = settings(training={"task": "mlp", "task_parameters": WIDE, "trainable": trainable}).training
    with pytest.raises(ConfigurationError, match=r"the study asks for a model of 32\.0 GiB"):
        of_study(training)


def test_a_task_that_cannot_be_built_so_is_left_to_whoever_makes_it() -> None:
    class Own(type(load("mlp", {**TASK_PARAMETERS, "hidden": 4, "layers": 1}))):  # type: ignore[misc]
        def model(self) -> torch.nn.Module:
            raise RuntimeError("not here")

    assert model_bytes(Own({**TASK_PARAMETERS, "hidden": 4, "layers": 1})) is None
