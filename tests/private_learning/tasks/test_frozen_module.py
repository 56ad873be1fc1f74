"""A frozen module with one trained layer: features within their bound, and the digest of its state."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.inspection import trainable
from private_learning.tasks.frozen_module import OnFeatures, state_digest
from private_learning.tasks.task import TaskError


class Given(nn.Module):
    """Gives what it is told to."""

    def __init__(self, features: Any) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> Any:
        return self.features(x)


def test_features_longer_than_the_bound_are_scaled_to_it_and_shorter_ones_stay() -> None:
    head = nn.Linear(2, 3)
    model = OnFeatures(nn.Identity(), 2, 5.0, head)
    rows = np.array([[3.0, 4.0], [30.0, 40.0], [0.3, 0.4], [0.0, 0.0]])
    bounded = np.array([[3.0, 4.0], [3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    expected = bounded @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(model(torch.tensor(rows)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_module_is_frozen_in_eval_mode_and_the_head_is_trained() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Dropout(0.5))
    model = OnFeatures(module, 2, 1.0, nn.Linear(2, 1))
    assert set(trainable(model)) == {"head.weight", "head.bias"}
    assert not module.training
    inputs = torch.randn(3, 2, 2)
    assert torch.equal(model(inputs), model(inputs))


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (lambda x: x.T, r"\(2, 3\) of 3 records: a tensor is expected, one row for each"),
        (lambda x: (x, x), "tuple of 3 records"),
        (lambda x: x[:, :1], "makes 1 numbers of each record, the study says 2"),
    ],
    ids=["turned", "tuple", "fewer"],
)
def test_what_is_not_one_row_of_the_study_s_size_is_refused(features: Any, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        OnFeatures(Given(features), 2, 1.0, nn.Linear(2, 1))(torch.zeros(3, 2))


def test_the_digest_is_of_names_types_shapes_and_bytes_in_the_order_of_names() -> None:
    module = nn.Module()
    module.register_buffer("b", torch.tensor([1, 2], dtype=torch.int16))
    module.register_parameter("a", nn.Parameter(torch.tensor([[0.5]])))
    module.register_buffer("c", torch.zeros(0))
    expected = hashlib.sha256()
    expected.update(json.dumps(["a", "torch.float32", [1, 1]]).encode() + np.array([0.5], "<f4").tobytes())
    expected.update(json.dumps(["b", "torch.int16", [2]]).encode() + b"\1\0\2\0")
    expected.update(json.dumps(["c", "torch.float32", [0]]).encode())
    assert state_digest(module) == expected.hexdigest()


def test_a_module_without_state_has_no_digest_and_any_change_shows() -> None:
    assert state_digest(nn.Tanh()) is None
    module = nn.BatchNorm1d(2)
    before = state_digest(module)
    module.running_mean[0] += 1.0  # type: ignore[index]
    assert state_digest(module) != before
