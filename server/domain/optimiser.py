"""The server optimiser: what becomes of the model once the average is known. Post-processing, costs no privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.study.training import ServerOptimiser, Training
from client_sdk.protocol.wire.tensors import Array, Spec
from server.domain.aggregation import Real, require_finite

Weights = dict[str, NDArray[np.float32]]

_FIRST, _SECOND, _STEPS = "first/", "second/", "steps"


@dataclass(frozen=True)
class State:
    """Running moments after `steps` releases; `second` is empty for momentum, both are for the plain optimiser."""

    steps: int
    first: Mapping[str, Array]
    second: Mapping[str, Array]


def begin(optimiser: ServerOptimiser, model: Spec) -> State:
    """The state before the first release."""
    zeros = {name: np.zeros(shape, np.float32) for name, (shape, _) in model.items()}
    return State(0, zeros if optimiser.name != "plain" else {}, zeros if optimiser.name == "adam" else {})


def release(
    training: Training, weights: Mapping[str, Array], average: Mapping[str, Real], state: State
) -> tuple[Weights, State]:
    """One server step: against a gradient (fedsgd), along a difference of weights (fedavg).

    Returns:
        The new weights and the optimiser's state after them.

    Raises:
        NotFinite: the step leaves the range of float32.
    """
    sign = -1.0 if training.algorithm == "fedsgd" else 1.0
    new, first, second = Weights(), Weights(), Weights()
    with np.errstate(over="ignore", invalid="ignore"):
        for name in sorted(weights):
            step, mean, square = _step(training.optimiser, name, sign * average[name], state)
            new[name] = (weights[name] + training.optimiser.learning_rate * step).astype(np.float32)
            if mean is not None:
                first[name] = mean
            if square is not None:
                second[name] = square
    for tensors in (new, first, second):
        require_finite(tensors)
    return new, State(state.steps + 1, first, second)


_Step = tuple[Real, NDArray[np.float32] | None, NDArray[np.float32] | None]


def _step(optimiser: ServerOptimiser, name: str, direction: Real, state: State) -> _Step:
    match optimiser.name:
        case "plain":
            return direction, None, None
        case "momentum":
            # Polyak's heavy ball without dampening.
            velocity = optimiser.momentum * state.first[name].astype(np.float64) + direction
            return velocity, velocity.astype(np.float32), None
        case "adam":
            return _adam(optimiser, direction, state.first[name], state.second[name], state.steps + 1)


def _adam(optimiser: ServerOptimiser, direction: Real, first: Array, second: Array, steps: int) -> _Step:
    """Kingma and Ba 2015, Algorithm 1, with its bias corrections."""
    beta1, beta2 = optimiser.momentum, optimiser.second_momentum
    mean = beta1 * first.astype(np.float64) + (1 - beta1) * direction
    square = beta2 * second.astype(np.float64) + (1 - beta2) * direction**2
    step = (mean / (1 - beta1**steps)) / (np.sqrt(square / (1 - beta2**steps)) + optimiser.stability)
    return step, mean.astype(np.float32), square.astype(np.float32)


def state_spec(optimiser: ServerOptimiser, model: Spec) -> Spec:
    """Names, shapes and types of a saved state."""
    moments = {"plain": (), "momentum": (_FIRST,), "adam": (_FIRST, _SECOND)}[optimiser.name]
    spec: Spec = {_STEPS: ((1,), "float64")}
    return spec | {prefix + name: (shape, "float32") for prefix in moments for name, (shape, _) in model.items()}


def to_tensors(state: State) -> dict[str, Array]:
    """The state as it is saved."""
    first = {_FIRST + name: values for name, values in state.first.items()}
    second = {_SECOND + name: values for name, values in state.second.items()}
    return {_STEPS: np.array([state.steps], np.float64)} | first | second


def from_tensors(tensors: Mapping[str, Array]) -> State:
    """Inverse of `to_tensors`."""
    return State(int(tensors[_STEPS][0]), _under(_FIRST, tensors), _under(_SECOND, tensors))


def _under(prefix: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): values for name, values in tensors.items() if name.startswith(prefix)}
