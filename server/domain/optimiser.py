"""From the noised sum of a round to its model: average and server optimiser, piece by piece.

Pure. Everything here follows the noise: it is post-processing and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.domain.release import OutOfBounds, Real, require_finite
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.settings import StudySettings
from study_protocol.study.training import ServerOptimiser
from study_protocol.wire.tensor_files import Arrays, Piece, ReadableTensors, gather_tensors, pieces, runs
from study_protocol.wire.tensors import Array, Spec

_FIRST, _SECOND, _STEPS = "first/", "second/", "steps"
_Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class OptimiserState:
    """The optimiser's memory after `steps` releases.

    moments  None before the first release: all are 0. Else names as in `state_spec`.
    """

    steps: int
    moments: ReadableTensors | None

    def moment(self, prefix: str, name: str, start: int, stop: int) -> Array:
        if self.moments is None:
            return np.zeros(stop - start, np.float32)
        return self.moments.piece(prefix + name, start, stop)


def begin() -> OptimiserState:
    """Return the state before the first release."""
    return OptimiserState(0, None)


def restored(saved: ReadableTensors) -> OptimiserState:
    """Return a state out of the tensors that `new_state` made."""
    return OptimiserState(int(saved.piece(_STEPS, 0, 1)[0]), saved)


def state_spec(optimiser: ServerOptimiser, model: Spec) -> Spec:
    """Return Names, shapes and types of a saved state. The plain optimiser has none to save."""
    spec: Spec = {_STEPS: ((1,), "float64")}
    return spec | {
        prefix + name: (shape, "float32") for prefix in _moments(optimiser) for name, (shape, _) in model.items()
    }


def new_weights(
    settings: StudySettings, weights: ReadableTensors, total: ReadableTensors, state: OptimiserState
) -> Iterator[Piece]:
    """Yield the model after a round: one step against a gradient (fedsgd), along a difference of weights (fedavg).

    total  the noised sum, on the scale of the updates

    Raises:
        NotFinite: the step leaves the range of float32.
        OutOfBounds: it leaves that of weights.
    """
    optimiser = settings.training.optimiser
    for name, start, stop in pieces(weights.spec):
        direction = _direction(settings, weights, total, name, start, stop)
        # No warning: what overflows is found below.
        with np.errstate(over="ignore", invalid="ignore"):
            step = _step(optimiser, direction, state, name, start, stop)
            new = (weights.piece(name, start, stop) + optimiser.learning_rate * step).astype(np.float32)
        require_finite(new)
        if float(np.abs(new).max(initial=0.0)) > MAX_WEIGHT:
            raise OutOfBounds(f"the new {name} has a number beyond ±{MAX_WEIGHT:g}")
        yield name, start, new


def new_state(
    settings: StudySettings, weights: ReadableTensors, total: ReadableTensors, state: OptimiserState
) -> Iterator[Piece]:
    """Yield the optimiser's state after a round, in the order in which it is saved.

    weights  before the round

    Raises:
        NotFinite: a moment leaves the range of float32.
    """
    # As a float: float32 and float64 are the types of these files. Exact up to 2^53 steps.
    yield _STEPS, 0, np.array([state.steps + 1], np.float64)
    for prefix in _moments(settings.training.optimiser):
        for name in sorted(weights.spec):
            for _, start, stop in runs(name, math.prod(weights.spec[name][0])):
                direction = _direction(settings, weights, total, name, start, stop)
                with np.errstate(over="ignore", invalid="ignore"):
                    moment = _moment(settings.training.optimiser, prefix, direction, state, name, start, stop)
                    moments: _Float32 = moment.astype(np.float32)
                require_finite(moments)
                yield prefix + name, start, moments


def released(
    settings: StudySettings, weights: ReadableTensors, total: ReadableTensors, state: OptimiserState
) -> tuple[dict[str, Array], OptimiserState]:
    """Return the model after a round and the optimiser's state, in memory. Raises NotFinite."""
    model = weights.spec
    saved = gather_tensors(state_spec(settings.training.optimiser, model), new_state(settings, weights, total, state))
    return gather_tensors(model, new_weights(settings, weights, total, state)), restored(Arrays(saved))


def _moments(optimiser: ServerOptimiser) -> tuple[str, ...]:
    return {"plain": (), "momentum": (_FIRST,), "adam": (_FIRST, _SECOND)}[optimiser.name]


def _direction(
    settings: StudySettings, weights: ReadableTensors, total: ReadableTensors, name: str, start: int, stop: int
) -> Real:
    """Return the average's piece, over the public constant that stands for the realised count of clients."""
    average = total.piece(name, start, stop) / settings.privacy.expected_clients
    if settings.training.algorithm != "fedsgd":
        # A mean difference of weights points where the clients went. Each of their steps met the prior.
        return average
    prior = settings.training.prior
    if prior is not None:
        average = average + prior.gradient(name, weights.piece(name, start, stop))
    # A mean gradient points uphill.
    return -1.0 * average


def _step(optimiser: ServerOptimiser, direction: Real, state: OptimiserState, name: str, start: int, stop: int) -> Real:
    match optimiser.name:
        case "plain":
            return direction
        case "momentum":
            return _moment(optimiser, _FIRST, direction, state, name, start, stop)
        case "adam":
            # Kingma and Ba 2015, Algorithm 1, with its bias corrections.
            mean = _moment(optimiser, _FIRST, direction, state, name, start, stop)
            square = _moment(optimiser, _SECOND, direction, state, name, start, stop)
            steps = state.steps + 1
            unbiased = np.sqrt(square / (1 - optimiser.second_momentum**steps))
            return (mean / (1 - optimiser.momentum**steps)) / (unbiased + optimiser.stability)


def _moment(
    optimiser: ServerOptimiser, prefix: str, direction: Real, state: OptimiserState, name: str, start: int, stop: int
) -> Real:
    before = state.moment(prefix, name, start, stop).astype(np.float64)
    if optimiser.name == "momentum":
        # Polyak 1964, the heavy ball, without dampening.
        return optimiser.momentum * before + direction
    if prefix == _FIRST:
        return optimiser.momentum * before + (1 - optimiser.momentum) * direction
    return optimiser.second_momentum * before + (1 - optimiser.second_momentum) * direction**2
