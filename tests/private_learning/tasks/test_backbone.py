"""Public weights from a file: the digest, the numbers, and the places that they go to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import nn

from client_sdk.errors import ConfigurationError
from private_learning.tasks import Task, load
from private_learning.tasks.backbone import place, tensors_in, verified_bytes
from private_learning.tasks.backbone_file import ProgramFile
from private_learning.tasks.registry import load_part
from study_protocol.study.bounds import MAX_WEIGHT
from tests.factories.parts import CNN, Backbone, backbone


def part(trainable: Any, file: Backbone, task: Task | None = None) -> nn.Module:
    return load_part(task or load("cnn", CNN), "cnn", trainable, file.sha256, file.path).model()


def test_public_weights_at_the_bound_are_taken(tmp_path: Path) -> None:
    file = backbone(tmp_path, {"0.bias": torch.tensor([MAX_WEIGHT, -MAX_WEIGHT])})
    assert dict(part("head", file).named_parameters())["0.bias"].tolist() == [MAX_WEIGHT, -MAX_WEIGHT]


def test_the_file_is_believed_by_its_digest_alone(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    task = load("cnn", CNN)
    with pytest.raises(ConfigurationError, match="give it with --backbone FILE"):
        load_part(task, "cnn", "head", file.sha256, None)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_part(task, "cnn", "head", file.sha256, tmp_path / "nowhere")
    other = tmp_path / "other.safetensors"
    save_file({name: tensor + 1 for name, tensor in file.tensors.items()}, other)
    with pytest.raises(ConfigurationError, match="is not the file that the study names"):
        load_part(task, "cnn", "head", file.sha256, other)
    pickled = tmp_path / "weights.pt"
    torch.save(file.tensors, pickled)
    with pytest.raises(ConfigurationError, match="no safetensors file: pickled weights"):
        load_part(task, "cnn", "head", hashlib.sha256(pickled.read_bytes()).hexdigest(), pickled)


def test_bytes_are_those_of_the_digest_and_of_the_kind_that_the_study_names(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"weights")
    sha256 = "9b8d5f0b"  # No digest of it.
    right = hashlib.sha256(b"weights").hexdigest()
    assert verified_bytes(path, right) == b"weights"
    assert verified_bytes(ProgramFile(path), right, program=True) == b"weights"
    with pytest.raises(ConfigurationError, match=f"its SHA-256 is {right}, the study's is {sha256}"):
        verified_bytes(path, sha256)
    # What is run on the records, a person here names as a program, and weights as weights.
    with pytest.raises(ConfigurationError, match="needs a program"):
        verified_bytes(path, right, program=True)
    with pytest.raises(ConfigurationError, match="needs public weights"):
        verified_bytes(ProgramFile(path), right)


def test_numbers_of_every_type_are_read_and_none_beyond_the_bound() -> None:
    tensors = {"a": torch.tensor([1.5, -2.0]), "b": torch.tensor([7], dtype=torch.int64), "c": torch.zeros(0)}
    read = tensors_in(save(tensors))
    assert {name: tensor.tolist() for name, tensor in read.items()} == {"a": [1.5, -2.0], "b": [7], "c": []}
    for wrong in (torch.tensor([torch.nan]), torch.tensor([2 * MAX_WEIGHT]), torch.tensor([1 << 40])):
        with pytest.raises(ConfigurationError, match="'a' holds NaN or a number beyond"):
            tensors_in(save({"a": wrong}))
    with pytest.raises(ConfigurationError, match="no safetensors file"):
        tensors_in(b"PK\x03\x04")


def test_tensors_go_to_their_names_and_what_is_trained_may_be_absent() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    weight = torch.arange(6.0).view(3, 2)
    head = {"2.weight", "2.bias"}
    tensors = {"0.weight": weight, "0.bias": torch.ones(3), "1.weight": torch.ones(3), "1.bias": torch.zeros(3)}
    tensors |= {"1.running_mean": torch.full((3,), 0.5), "2.weight": torch.ones(9, 3), "unused": torch.ones(1)}
    place(model, tensors, begun=head, head=head)
    state = model.state_dict()
    assert torch.equal(state["0.weight"], weight)
    assert state["1.running_mean"].tolist() == [0.5] * 3
    assert state["2.weight"].shape == (2, 3)
    with pytest.raises(ConfigurationError, match=r"'2\.weight' has shape \(9, 3\), .* needs \(2, 3\)"):
        place(model, tensors, begun=head, head=())
    with pytest.raises(ConfigurationError, match=r"no tensor '0\.bias' and lacks 3 more"):
        place(model, {"0.weight": weight, "1.weight": torch.ones(3)}, begun=(), head=())


def test_a_model_that_a_hospital_adapted_is_no_public_backbone() -> None:
    weights = {"weight": torch.ones(2)}
    assert list(tensors_in(save(weights, {"study": "sepsis"}))) == ["weight"]
    with pytest.raises(ConfigurationError, match="adapted to a hospital's own patients"):
        tensors_in(save(weights, {"adapted_from": "0" * 64, "adapted": "intercept"}))
