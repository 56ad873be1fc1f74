"""Sum the updates, add the central noise, divide by a public constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.secure_sum.layout import unflatten
from client_sdk.protocol.wire.tensors import UPDATE, Array, Spec
from server.domain.mechanism import EXACT, CentralNoise

Real = NDArray[np.float64]
_CHUNK = 1 << 18


class NotFinite(Exception):
    """The aggregate holds NaN or an infinity, or does not fit the grid: nothing can be released from it."""


class Sum:
    """A running sum of updates in float64; memory: one accumulator, whatever the number of clients.

    With central noise every update is rounded to the grid first, and the totals are in grid units: exact integers.
    """

    def __init__(self, model: Spec, noise: CentralNoise | None) -> None:
        self._scale = 1.0 if noise is None else noise.spacing
        self._rounded = noise is not None
        self._noise = noise
        self._model = model
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
            total *= self._scale
        require_finite(self.totals)
        return self.totals

    def _add(self, total: Real, values: Array) -> None:
        for start in range(0, total.size, _CHUNK):
            part = values[start : start + _CHUNK].astype(np.float64)
            if self._rounded:
                part /= self._scale
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
