"""Which layers are known, which are refused with advice, and which send a model to the slower way."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from private_learning.gradients.errors import NotLayerwise, UnsupportedLayer
from private_learning.gradients.inspection import RULES, known_layers, refuse_cross_record, risky_layers, trainable
from private_learning.gradients.layers import LinearLayer


def test_shared_parameters_count_once_and_frozen_ones_not_at_all() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    assert list(trainable(model)) == ["0.weight", "0.bias", "1.bias", "2.bias"]
    assert [layer.names for layer in known_layers(model)] == [
        {"weight": "0.weight", "bias": "0.bias"},
        {"weight": "0.weight", "bias": "1.bias"},
        {"bias": "2.bias"},
    ]


def test_layers_without_trainable_parameters_are_passed_over() -> None:
    model = nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.ReLU(), nn.Linear(3, 1, bias=False))
    (layer,) = known_layers(model)
    assert (type(layer), layer.name, layer.names) == (LinearLayer, "2", {"weight": "2.weight"})
    assert layer.parameter("bias") is None


def test_every_known_type_is_exact() -> None:
    class Own(nn.Linear):
        pass

    with pytest.raises(NotLayerwise, match="Own"):
        known_layers(Own(2, 2))
    assert Own not in RULES


def patched() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.forward = torch.sin  # type: ignore[method-assign, assignment]
    return layer


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.PReLU()), r"0 \(PReLU\) has no closed form"),
        (patched(), "re-parametrised or patched"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "no closed form|patched|computes its weight"),
    ],
    ids=["unknown", "patched", "weight norm"],
)
def test_why_a_model_is_not_done_layer_by_layer_is_said(model: nn.Module, words: str) -> None:
    with pytest.raises(NotLayerwise, match=words):
        known_layers(model)


@pytest.mark.parametrize(
    ("layer", "advice"),
    [
        (nn.BatchNorm1d(3), "GroupNorm"),
        (nn.BatchNorm1d(3, track_running_stats=False).eval(), "GroupNorm"),
        (nn.InstanceNorm2d(3, track_running_stats=True), "track_running_stats=False"),
        (nn.EmbeddingBag(3, 2, max_norm=1.0), "max_norm=None"),
        (nn.Embedding(3, 2, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_layers_through_which_records_meet_are_refused_by_their_place(layer: nn.Module, advice: str) -> None:
    model = nn.Sequential(nn.Identity(), layer)
    with pytest.raises(UnsupportedLayer, match=advice) as caught:
        refuse_cross_record(risky_layers(model))
    assert str(caught.value).startswith(f"1 ({type(layer).__name__})")


def test_layers_that_may_mix_but_do_not_are_let_through() -> None:
    layers = [nn.BatchNorm1d(3).eval(), nn.InstanceNorm1d(3), nn.InstanceNorm1d(3, track_running_stats=True).eval()]
    found = risky_layers(nn.Sequential(*layers, nn.Embedding(3, 2), nn.Linear(2, 2)))
    assert len(found) == 4
    refuse_cross_record(found)
