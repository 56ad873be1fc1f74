"""First weights of the built-in tasks, as torch draws them but with numpy: to open a study takes no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from private_learning.tasks.arrays import LastLayer, SmallCnn
from private_learning.tasks.bayesian import BayesianLogisticRegression
from private_learning.tasks.convolutions import ConvolutionLayout
from private_learning.tasks.multilabel import TableMultiLabel
from private_learning.tasks.on_module import ModuleFeatures
from private_learning.tasks.regression import TableRegression
from private_learning.tasks.residual import ImageLabels, ResidualNetwork
from private_learning.tasks.segmentation import Segmentation
from private_learning.tasks.sequence_weights import drawn_sequences
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.signals import SignalNetwork
from private_learning.tasks.survival import DiscreteTime, PiecewiseConstant, SurvivalTask
from private_learning.tasks.tables import LogisticRegression, MultilayerPerceptron
from private_learning.tasks.task import Task
from study_protocol.wire.tensors import Array

Shapes = Mapping[str, tuple[int, ...]]


def drawn_weights(task: Task, random: np.random.Generator | None = None) -> dict[str, Array] | None:
    """Return parameter name -> float32 array, as in a new model of the task.

    None: only the task itself can make one.

    random  by default of the operating system
    """
    # The very class: one that derives from it may have another model.
    if type(task) is LogisticRegression:
        return _zeros({"weight": (task.outputs, task.features), "bias": (task.outputs,)})
    if type(task) is BayesianLogisticRegression:
        shape = (1, task.features + 1)
        return _zeros({"mean.weight": shape}) | {"spread.weight": np.full(shape, task.start_log_std, np.float32)}
    if type(task) is LastLayer:
        return _zeros({"weight": (task.outputs, task.parameters.features), "bias": (task.outputs,)})
    if type(task) is ModuleFeatures:
        # Of the one layer that is trained, for every module.
        return _zeros({"head.weight": (task.outputs, task.parameters.features), "head.bias": (task.outputs,)})
    source = np.random.default_rng() if random is None else random
    if type(task) is MultilayerPerceptron or type(task) is TableRegression or type(task) is TableMultiLabel:
        return _network(task.widths, source)
    if type(task) is DiscreteTime or type(task) is PiecewiseConstant:
        return _survival(task, source)
    if type(task) is CodeSequences:
        return drawn_sequences(task, source)
    if type(task) is ResidualNetwork or type(task) is ImageLabels:
        return _normalised(task.layout, source)
    if type(task) is SignalNetwork or type(task) is Segmentation:
        return _normalised(task.layout, source)
    return _uniform(_convolutions(task), source) if type(task) is SmallCnn else None


def _network(widths: Sequence[int], random: np.random.Generator) -> dict[str, Array]:
    if len(widths) > 2:
        return _uniform(_layers(widths), random)
    return _zeros({"weight": (widths[1], widths[0]), "bias": (widths[1],)})


def _survival(task: SurvivalTask, random: np.random.Generator) -> dict[str, Array]:
    """Return the weights of the network, but for the constants of the intervals."""
    weights, hidden = _network(task.widths, random), task.parameters.layers
    constants = np.full(len(task.cuts), task.start, np.float32)
    if not task.parameters.proportional:
        return weights | {f"{2 * hidden}.bias" if hidden else "bias": constants}
    last = f"{2 * hidden}"
    score = weights.pop(f"{last}.weight" if hidden else "weight")
    del weights[f"{last}.bias" if hidden else "bias"]
    return weights | {f"{last}.weight": score, f"{2 * hidden + 1}.bias": constants}


def _layers(widths: Sequence[int]) -> Shapes:
    """Return the shapes of the linear layers: every second place of the sequence is a tanh."""
    return {str(2 * place): (wide, widths[place]) for place, wide in enumerate(widths[1:])}


def _convolutions(task: SmallCnn) -> Shapes:
    p = task.parameters
    flat = 2 * p.filters * -(-p.height // 4) * -(-p.width // 4)
    filters = {"0": (p.filters, p.channels, 3, 3), "2": (2 * p.filters, p.filters, 3, 3)}
    return filters | {"5": (p.hidden, flat), "7": (task.outputs, p.hidden)}


def _normalised(layout: ConvolutionLayout, random: np.random.Generator) -> dict[str, Array]:
    weights: dict[str, Array] = {}
    for name, shape in layout.normalised.items():
        weights[f"{name}.conv.weight"] = _even(shape, shape, random)
        weights[f"{name}.norm.weight"] = np.full(shape[0], name not in layout.at_zero, np.float32)
        weights[f"{name}.norm.bias"] = np.zeros(shape[0], np.float32)
    return weights | _uniform({"last": layout.last}, random)


def _zeros(shapes: Shapes) -> dict[str, Array]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def _uniform(layers: Shapes, random: np.random.Generator) -> dict[str, Array]:
    """Return weight and bias of each layer within ±1/√fan-in."""
    weights: dict[str, Array] = {}
    for name, shape in layers.items():
        weights[f"{name}.weight"] = _even(shape, shape, random)
        weights[f"{name}.bias"] = _even(shape[:1], shape, random)
    return weights


def _even(shape: tuple[int, ...], weight: tuple[int, ...], random: np.random.Generator) -> Array:
    """Return numbers within ±1/√fan-in of a layer with such a weight.

    Sources: LeCun et al. 1998, and torch with a = √5.
    """
    bound = 1 / math.sqrt(math.prod(weight[1:]))
    return random.uniform(-bound, bound, shape).astype(np.float32)
