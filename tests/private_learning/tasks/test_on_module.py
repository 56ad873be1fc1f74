"""A linear model on features of a module that the hospital has: installed, or a program in a file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from client_sdk.errors import ConfigurationError
from private_learning.gradients.inspection import trainable
from private_learning.records import DataError, Examples, Table
from private_learning.tasks import Task, TaskError, load
from private_learning.tasks.backbone_file import ProgramFile
from private_learning.tasks.frozen_module import state_digest
from private_learning.tasks.registry import load_part
from private_learning.training.features import Features
from study_protocol.cells import column_of

PACKAGE = """
import torch
from torch import nn

def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh())

def drawn():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))

class Endless(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :5] / 0

class Turned(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :5].T

class Mixing(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :5] - x.flatten(1)[:, :5].mean(0)

def normalised():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5, track_running_stats=False, affine=False))

def broken():
    raise OSError("no weights here")

def no_module():
    return 7
"""
NAMES = ("net", "drawn", "Endless", "Turned", "Mixing", "normalised", "broken", "no_module", "gone")
OWN: dict[str, Any] = {"shape": "1x3x4", "features": 5, "classes": 2, "bound": 2.0, "high": 1.0}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "public_modules.py").write_text(PACKAGE)
    info = tmp_path / "public_modules-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: public-modules\nVersion: 1\n")
    lines = "\n".join(f"{name} = public_modules:{name}" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[wardround.backbones]\n{lines}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("public_modules", None)


def records(count: int = 20) -> Examples:
    draw = np.random.default_rng(1)
    names = tuple(f"p{row}" for row in range(count))
    return Examples(draw.uniform(size=(count, 3, 4)), draw.integers(2, size=count), names)


def made(task: Task) -> Features:
    found = Features.of(load_part(task, "features", "all", None, None))
    assert found is not None
    return found


def digest() -> str:
    from public_modules import net  # type: ignore[import-not-found]

    found = state_digest(net())
    assert found is not None
    return found


def test_an_installed_module_gives_the_features_and_one_layer_is_trained() -> None:
    task = load("features", {**OWN, "module": "net", "state-sha256": digest()})
    part = load_part(task, "features", "all", None, None)
    assert {name: tuple(p.shape) for name, p in trainable(part.model()).items()} == {
        "head.weight": (1, 5),
        "head.bias": (1,),
    }
    features = made(task)
    dataset = task.dataset(records())
    features.require(dataset)
    module = part.model().module
    assert isinstance(module, nn.Module)
    torch.testing.assert_close(features.of_dataset(dataset).inputs, module(dataset.inputs))


def test_a_longer_feature_vector_is_scaled_down_to_the_bound() -> None:
    task = load("features", {**OWN, "module": "net", "state-sha256": digest(), "bound": 0.5})
    found = made(task).of_inputs(task.inputs(records()))
    assert found.norm(dim=1).max() <= 0.5 * (1 + 1e-6)
    assert found.norm(dim=1).max() > 0.49


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"module": "nowhere"}, r"no package here offers it: there are .*'oriented-gradients'"),
        ({"module": "broken"}, "cannot be made: OSError: no weights here"),
        ({"module": "gone"}, "cannot be made: AttributeError"),
        ({"module": "no_module"}, "did not return a torch module"),
        ({"module": "net"}, "other weights here than at the other hospitals: their SHA-256 is [0-9a-f]{64}"),
        ({"module": "drawn", "state-sha256": "0" * 64}, "other weights here"),
        ({"module": "oriented-gradients", "state-sha256": "0" * 64}, "none, for it has no weights"),
        ({}, "takes its module from one place"),
    ],
    ids=["unknown", "fails", "gone", "no module", "no digest", "drawn at random", "no weights", "no module named"],
)
def test_a_module_that_is_not_the_studys_is_refused(parameters: dict[str, Any], text: str) -> None:
    with pytest.raises((TaskError, ConfigurationError), match=text):
        load_part(load("features", {**OWN, **parameters}), "features", "all", None, None)


@pytest.mark.parametrize("name", ["Mixing", "normalised"])
def test_a_module_that_mixes_records_is_noticed(name: str) -> None:
    from public_modules import Mixing, normalised  # type: ignore[import-not-found]

    found = state_digest({"Mixing": Mixing, "normalised": normalised}[name]())
    given = {**OWN, "module": name} | ({} if found is None else {"state-sha256": found})
    if name == "normalised":
        # Its first layer is drawn: the digest is not that of the next one.
        with pytest.raises(ConfigurationError, match="other weights"):
            load_part(load("features", given), "features", "all", None, None)
        return
    task = load("features", given)
    with pytest.raises(ConfigurationError, match="it mixes them"):
        made(task).require(task.dataset(records()))


def test_a_module_that_gives_no_finite_numbers_is_refused() -> None:
    task = load("features", {**OWN, "module": "Endless"})
    with pytest.raises(ConfigurationError, match="NaN or an infinity: look at its weights"):
        made(task).require(task.dataset(records()))


def test_what_the_module_gives_must_have_the_studys_size() -> None:
    task = load("features", {**OWN, "module": "net", "state-sha256": digest(), "features": 6})
    with pytest.raises(TaskError, match="makes 5 numbers of each record, the study says 6: correct the parameter"):
        made(task).require(task.dataset(records()))


def test_features_of_one_record_are_one_row() -> None:
    """As many numbers in another order would be parts of several records."""
    task = load("features", {**OWN, "module": "Turned"})
    with pytest.raises(TaskError, match=r"\(5, 64\) of 64 records: a tensor is expected, one row for each"):
        made(task).of_inputs(task.inputs(records()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": "28by28"}, "shape is one to four numbers"),
        ({"low": 1.0}, "low must be below high"),
        ({"bound": 0.0}, "bound"),
        ({"state-sha256": "0" * 64}, "belongs to an installed module"),
        ({"shapes": 1}, "shapes"),
    ],
)
def test_parameters_out_of_range_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(TaskError, match=text):
        load("features", {**OWN, **change})


def test_records_of_another_shape_or_with_nan_are_refused() -> None:
    task = load("features", {**OWN, "module": "oriented-gradients"})
    with pytest.raises(DataError, match="records of shape 1x3x4 are expected, not 1x4x4"):
        task.inputs(Examples.of(np.zeros((2, 4, 4)), [0, 1]))
    with pytest.raises(DataError, match="1 of 2 records hold NaN"):
        task.inputs(Examples.of([np.zeros((3, 4)), np.full((3, 4), np.nan)], [0, 1]))
    with pytest.raises(DataError, match="takes arrays"):
        task.inputs(Table({"a": column_of(np.zeros(2))}, ("a", "b")))
    assert task.inspect(Examples.of(np.full((2, 3, 4), 2.0), [0, 1]))[0].clipped == 24


def test_a_file_without_a_program_and_two_places_for_a_module_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"neither")
    sha256 = hashlib.sha256(b"neither").hexdigest()
    given = ProgramFile(path)
    with pytest.raises(ConfigurationError, match="no ONNX file that can be run"):
        load_part(load("features", OWN), "features", "head", sha256, given)
    with pytest.raises(ConfigurationError, match="takes its module from one place"):
        load_part(load("features", {**OWN, "module": "oriented-gradients"}), "features", "head", sha256, given)
    with pytest.raises(ConfigurationError, match="trains its linear layer alone"):
        load_part(load("features", {**OWN, "module": "oriented-gradients"}), "features", "lora:2", None, None)
