"""First weights as torch draws them but with numpy: to open a study takes no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from private_learning.tasks.convolutions import ConvolutionLayout
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from private_learning.tasks.task import Task

Shapes = Mapping[str, tuple[int, ...]]


def drawn_weights(task: Task, random: np.random.Generator | None = None) -> dict[str, Array] | None:
    """Return the `initial_weights` that the very class of the task defines.

    None: there are none, and only the task itself can make a model.

    random  by default of the operating system
    """
    if "initial_weights" not in vars(type(task)):
        return None
    return task.initial_weights(np.random.default_rng() if random is None else random)


def network_weights(widths: Sequence[int], random: np.random.Generator) -> dict[str, Array]:
    """Return the weights of `tables.network`."""
    if len(widths) > 2:
        # Every second place of the sequence is a tanh.
        return uniform({str(2 * place): (wide, widths[place]) for place, wide in enumerate(widths[1:])}, random)
    return zeros({"weight": (widths[1], widths[0]), "bias": (widths[1],)})


def normalised(layout: ConvolutionLayout, random: np.random.Generator) -> dict[str, Array]:
    """Return the weights of normalised convolutions and the last layer."""
    weights: dict[str, Array] = {}
    for name, shape in layout.normalised.items():
        weights[f"{name}.conv.weight"] = even(shape, _fan_in_bound(shape), random)
        weights[f"{name}.norm.weight"] = np.full(shape[0], name not in layout.at_zero, np.float32)
        weights[f"{name}.norm.bias"] = np.zeros(shape[0], np.float32)
    return weights | uniform({"last": layout.last}, random)


def zeros(shapes: Shapes) -> dict[str, Array]:
    """Return zeros of these shapes, by name."""
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def uniform(layers: Shapes, random: np.random.Generator) -> dict[str, Array]:
    """Return weight and bias of each layer within ±1/√fan-in."""
    weights: dict[str, Array] = {}
    for name, shape in layers.items():
        weights[f"{name}.weight"] = even(shape, _fan_in_bound(shape), random)
        weights[f"{name}.bias"] = even(shape[:1], _fan_in_bound(shape), random)
    return weights


def even(shape: tuple[int, ...], bound: float, random: np.random.Generator) -> Array:
    """Return numbers within ±bound."""
    return random.uniform(-bound, bound, shape).astype(np.float32)


def _fan_in_bound(shape: tuple[int, ...]) -> float:
    """Return 1/√fan-in of a layer with a weight of this shape (LeCun et al. 1998, and torch with a = √5)."""
    return 1 / math.sqrt(math.prod(shape[1:]))
