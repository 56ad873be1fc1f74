"""Weights as arrays that travel: copies, names of what is trained, and numbers within their bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from private_learning.training.weights import arrays_of, load_weights, spec_of_model, weight_out_of_bounds, weights_of
from study_protocol.study.bounds import MAX_WEIGHT


def model() -> nn.Sequential:
    made = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False))
    made[0].bias.requires_grad_(False)
    return made


def test_only_what_is_trained_travels_in_the_order_of_names() -> None:
    assert list(spec_of_model(model()).items()) == [
        ("0.weight", ((2, 3), "float32")),
        ("1.weight", ((1, 2), "float32")),
    ]
    assert set(weights_of(model())) == {"0.weight", "1.weight"}


def test_arrays_do_not_change_with_the_model() -> None:
    layer = nn.Linear(2, 1)
    before = weights_of(layer)
    kept = {name: array.copy() for name, array in before.items()}
    with torch.no_grad():
        layer.weight.add_(1.0)
    for name, array in before.items():
        np.testing.assert_array_equal(array, kept[name])
    half = arrays_of({"a": torch.tensor([1.5, 2.0], dtype=torch.float64)})["a"]
    assert half.dtype == np.float32


def test_arrays_go_into_a_model_also_transposed_ones() -> None:
    layer = nn.Linear(3, 2)
    weight = np.arange(6, dtype=np.float32).reshape(3, 2).T
    load_weights(layer, {"weight": weight})
    np.testing.assert_array_equal(weights_of(layer)["weight"], weight)
    with pytest.raises(KeyError):
        load_weights(layer, {"other": weight})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -2 * MAX_WEIGHT])
def test_a_number_beyond_the_bound_is_named_by_its_parameter(bad: float) -> None:
    good = {"a": np.array([MAX_WEIGHT, -MAX_WEIGHT], np.float32), "empty": np.zeros(0, np.float32)}
    assert weight_out_of_bounds(good) is None
    assert weight_out_of_bounds(good | {"b": np.array([0.0, bad], np.float32)}) == "b"
