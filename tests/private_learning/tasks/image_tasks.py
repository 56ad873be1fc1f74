"""Parameters, records and comparisons for the tasks on images and signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from private_learning.gradients import PerRecordGradients
from private_learning.tasks import Task
from tests.factories.made_up import made_up

IMAGES = {"height": 9, "width": 10, "filters": 4, "groups": 2}


MASKS = IMAGES | {"classes": 3, "depth": 1, "mask-values": "0|7|255", "unlabelled": 9}


SIGNALS = {"channels": 2, "length": 40, "classes": 3, "range": "-5..5|0..200", "filters": 4, "groups": 2}


NAMES = ("resnet", "multi-label-images", "segmentation", "signal-cnn")


def parameters_of(name: str) -> dict[str, Any]:
    own = {
        "resnet": IMAGES | {"classes": 3, "blocks": 2, "stages": 2},
        "multi-label-images": IMAGES | {"labels": "effusion|nodule|edema", "stages": 2},
        "segmentation": MASKS | {"dice": 0.7, "class-weights": "1|2|3"},
        "signal-cnn": SIGNALS,
    }
    return own[name]


def random_masks(draw: np.random.Generator, *shape: int) -> np.ndarray:
    masks = draw.choice([0, 7, 9, 255], shape)
    masks[:, 0, 0] = 7  # One pixel of each is labelled.
    return masks


def randomised(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """In float64, with weights of any size: also those that begin at 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.double().parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return model


def tensors(task: Task, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Made-up inputs in float64, and targets."""
    records = made_up(task, count)
    return task.inputs(records).double(), task.dataset(records).targets


def own_gradient(model: torch.nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """By one backward of one record alone."""
    model.zero_grad()
    loss(model(x[None]), y[None]).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compare(model: torch.nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor, clip: float = 0.3) -> None:
    """Norms and clipped sum of the closed forms against one backward per record."""
    expected: dict[str, torch.Tensor] = {}
    norms = []
    for record, target in zip(x, y, strict=True):
        own = own_gradient(model, loss, record, target)
        norms.append(math.sqrt(sum(float(value.square().sum()) for value in own.values())))
        for key, value in own.items():
            expected[key] = expected.get(key, torch.zeros_like(value)) + value * min(1.0, clip / norms[-1])
    found = PerRecordGradients(model, loss, method="layerwise").clipped_sum(x, y, clip_norm=clip)
    np.testing.assert_allclose(found.norms.numpy(), norms, rtol=1e-9)
    for key, value in expected.items():
        torch.testing.assert_close(found.gradients[key].double(), value, rtol=0, atol=1e-9)
