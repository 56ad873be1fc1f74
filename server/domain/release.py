"""From the updates of a settled round to its model: sum or another aggregation, central noise, average, optimiser.

Pure: bodies, draws and the optimiser's state come in, tensors go out. What follows the noise is post-processing and
costs no privacy.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.secure_sum.parameters import unflatten
from client_sdk.protocol.secure_sum.vectors import RingVector, VectorSpec, decode
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.study.training import ServerOptimiser, Training
from client_sdk.protocol.wire.tensors import UPDATE, Array, Spec
from server.domain.admission import EXACT, CentralNoise, mechanism
from server.domain.bounds import draw_back

logger = logging.getLogger("wardround.worker")

Real = NDArray[np.float64]
# Numbers that are rounded or noised at once: temporaries of 2 MiB, whatever the size of a tensor.
_CHUNK = 1 << 18
Weights = dict[str, NDArray[np.float32]]
_FIRST, _SECOND, _STEPS = "first/", "second/", "steps"


@dataclass(frozen=True)
class Opened:
    """A sum of updates that was made under masks.

    words    (spec.words,)
    longest  L2 norm that it has at most if all are honest
    """

    spec: VectorSpec
    words: RingVector
    longest: float


class NotFinite(Exception):
    """The aggregate holds NaN or an infinity, or does not fit the grid: nothing can be released from it."""


def noised_sum(
    settings: StudySettings,
    model: Spec,
    updates: Iterable[Iterable[tuple[str, Array]]],
    opened: Opened | None,
    draw: Callable[[float, int], NDArray[np.int64]],
) -> dict[str, Real]:
    """The sum of a round's updates on their own scale, with the coordinator's noise where the study has it.

    Where the study asks for a median or a trimmed mean: that, times expected_clients.

    Args:
        updates: bodies that came in the clear, tensors in order of their names, one tensor in memory at a time.
        opened: the sum that was made under masks.
        draw: discrete Gaussian integers, draw(std in grid units, size) -> (size,).

    Returns:
        Parameter name -> float64 of the parameter's shape.

    Raises:
        NotFinite: NaN or an infinity, or a sum that is not on the grid of the noise or leaves its range.
    """
    if settings.robustness.aggregation != "mean":
        return robust_sum(settings, model, updates)
    total = Sum(model, mechanism(settings, model))
    if opened is not None:
        spacing = 2.0**-opened.spec.scale_bits
        # A division by a power of two is exact: these are whole numbers again.
        total.add_integers(decode(opened.spec, opened.words).astype(np.float64) / spacing, spacing)
    for body in updates:
        total.add(body)
    total.add_noise(draw)
    found = total.result()
    # After the noise, so that it is post-processing: who wrote too much into a sum under masks is not to be seen.
    if opened is not None and draw_back(found, opened.longest):
        logger.warning("an opened sum was longer than honest hospitals make it, and was drawn back")
    return found


def robust_sum(settings: StudySettings, model: Spec, updates: Iterable[Iterable[tuple[str, Array]]]) -> dict[str, Real]:
    """Median or trimmed mean of noised updates at every coordinate (Yin, Chen, Ramchandran & Bartlett 2018), times
    expected_clients: what follows divides by it.

    Memory: one tensor of every update.

    Raises:
        NotFinite: NaN or an infinity.
    """
    bodies = [(array for name, array in body if name.startswith(UPDATE)) for body in updates]
    found: dict[str, Real] = {}
    for (name, (shape, _)), *each in zip(sorted(model.items()), *bodies, strict=True):
        flat, middle = [array.reshape(-1) for array in each], np.empty(math.prod(shape), np.float64)
        for start in range(0, middle.size, _CHUNK):
            part = np.sort(np.stack([values[start : start + _CHUNK] for values in flat]).astype(np.float64), axis=0)
            middle[start : start + _CHUNK] = part[_kept(settings, len(part))].mean(axis=0)
        found[name] = middle.reshape(shape) * settings.privacy.expected_clients
    require_finite(found)
    return found


def _kept(settings: StudySettings, updates: int) -> slice:
    """Which of the sorted values of a coordinate are averaged: for a median the middle one, or the middle two."""
    trim = settings.robustness.trim
    cut = (updates - 1) // 2 if trim is None else trim
    return slice(cut, updates - cut)


def released(
    settings: StudySettings, weights: Mapping[str, Array], total: dict[str, Real], state: State
) -> tuple[Weights, State]:
    """The model after a round and the optimiser's state beside it; `total` is used up.

    Raises:
        NotFinite: the step leaves the range of float32.
    """
    mean = average(total, settings.privacy.expected_clients)
    return server_step(settings.training, weights, mean, state)


class Sum:
    """A running sum of updates in float64; memory: one accumulator, whatever the number of clients.

    With central noise every update is rounded to the grid first, and the totals are in grid units: exact integers.
    """

    def __init__(self, model: Spec, noise: CentralNoise | None) -> None:
        self._scale = 1.0 if noise is None else noise.spacing
        self._rounded = noise is not None
        self._noise = noise
        self._model = model
        # By name: masked vectors have this order, and an addressed draw must meet the same numbers each time.
        self.totals: dict[str, Real] = {name: np.zeros(shape, np.float64) for name, (shape, _) in sorted(model.items())}

    def add(self, body: Iterable[tuple[str, Array]]) -> None:
        """Add one client's update; tensors that are no part of it are passed over."""
        for name, array in body:
            if name.startswith(UPDATE):
                self._add(self.totals[name.removeprefix(UPDATE)].reshape(-1), array.reshape(-1))

    def add_integers(self, values: Real, spacing: float) -> None:
        """Add a sum that was made under masks: multiples of `spacing`, parameters in order of their names.

        Raises:
            NotFinite: with central noise, a sum that is not on its grid.
        """
        # The sensitivity counts one rounding, to this grid: off it the noise would be too small.
        if self._rounded and spacing != self._scale:
            raise NotFinite("the masked sum is not on the grid of the central noise")
        for name, part in unflatten(values, self._model).items():
            self.totals[name] += part if self._rounded else part * spacing

    def add_noise(self, draw: Callable[[float, int], NDArray[np.int64]]) -> None:
        """Add the mechanism's noise, once; `draw(std, size)` gives discrete Gaussian integers.

        Raises:
            NotFinite: the totals have left the range in which integers are exact.
        """
        if self._noise is None:
            return
        for total in self.totals.values():
            # Half of what is exact is left for the noise. Written so that NaN is refused, too.
            if total.size and not float(np.abs(total).max()) < EXACT / 2:
                raise NotFinite("the sum does not fit the grid")
            flat = total.reshape(-1)
            for start in range(0, flat.size, _CHUNK):
                part = flat[start : start + _CHUNK]
                part += draw(self._noise.units, part.size)

    def result(self) -> dict[str, Real]:
        """The sum on the scale of the updates; the accumulators are used up.

        Raises:
            NotFinite: NaN or an infinity.
        """
        for total in self.totals.values():
            # A power of two: exact.
            total *= self._scale
        require_finite(self.totals)
        return self.totals

    def _add(self, total: Real, values: Array) -> None:
        for start in range(0, total.size, _CHUNK):
            part = values[start : start + _CHUNK].astype(np.float64)
            if self._rounded:
                part /= self._scale
                # The noise's sensitivity has half a grid step in every coordinate for this.
                np.rint(part, out=part)
            total[start : start + _CHUNK] += part


def average(total: dict[str, Real], expected_clients: float) -> dict[str, Real]:
    """Divide, in place, by the public constant that stands for the realised count, whoever came."""
    return {name: np.divide(values, expected_clients, out=values) for name, values in total.items()}


def require_finite(tensors: Mapping[str, Array]) -> None:
    """Raises NotFinite."""
    for values in tensors.values():
        if not bool(np.isfinite(values).all()):
            raise NotFinite("NaN or an infinity in the aggregate")


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


def server_step(
    training: Training, weights: Mapping[str, Array], average: Mapping[str, Real], state: State
) -> tuple[Weights, State]:
    """One server step: against a gradient (fedsgd), along a difference of weights (fedavg).

    Returns:
        The new weights and the optimiser's state after them.

    Raises:
        NotFinite: the step leaves the range of float32.
    """
    # A mean gradient points uphill, a mean difference of weights where the clients went.
    sign = -1.0 if training.algorithm == "fedsgd" else 1.0
    new, first, second = Weights(), Weights(), Weights()
    # No warning: `require_finite` finds it below.
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
            # Polyak 1964, the heavy ball, without dampening.
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
    # As a float: float32 and float64 are what these files may hold; exact up to 2^53 steps.
    return {_STEPS: np.array([state.steps], np.float64)} | first | second


def from_tensors(tensors: Mapping[str, Array]) -> State:
    """Inverse of `to_tensors`."""
    return State(int(tensors[_STEPS][0]), _under(_FIRST, tensors), _under(_SECOND, tensors))


def _under(prefix: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): values for name, values in tensors.items() if name.startswith(prefix)}
