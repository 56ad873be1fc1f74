"""Contributions that never leave the process, summed by the functions that the coordinator calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.tensor_files import Arrays
from client_sdk.protocol.wire.tensors import Array, decode, spec_of
from client_sdk.study.delivery import ClearDelivery
from server.domain.admission import Findings, body_spec, coordinates, examine
from server.domain.bounds import anchor, has_anchor, longest_update
from server.domain.optimiser import State, begin, released
from server.domain.release import noised_sum

# round -> draw(std, size): (size,) discrete Gaussian integers
Draws = Callable[[int], Callable[[float, int], NDArray[np.int64]]]


@dataclass
class MemoryStudy:
    """The other end: takes the bodies of a round as the coordinator would, and releases its model.

    weights   parameter name -> float32: what was released last
    draws     the coordinator's noise
    findings  of the round under way, by client

    Raises ConfigurationError for a study that sums under masks: there is nobody to hide from in one process.
    """

    settings: StudySettings
    weights: Mapping[str, Array]
    draws: Draws
    findings: dict[str, Findings] = field(default_factory=dict[str, Findings])
    _bodies: dict[str, dict[str, Array]] = field(default_factory=dict[str, dict[str, Array]])
    _state: State = field(default_factory=begin)
    _previous: Mapping[str, Array] | None = None

    def __post_init__(self) -> None:
        if self.settings.privacy.masking is not None:
            raise ConfigurationError("masking: contributions are delivered in memory without masks")
        self._model = spec_of(self.weights)

    def delivery(self, name: str) -> ClearDelivery:
        """One client's way here, with the very bytes that would travel."""
        return ClearDelivery(lambda round, body: self.take(name, round, body))

    def take(self, name: str, round: int, body: bytes) -> None:
        """One client's body; the one it replaces is forgotten.

        Raises:
            TensorError, Rejected: what the coordinator would not take either.
        """
        tensors = decode(body, body_spec(self.settings, self._model))
        # Examined first: a body that is refused replaces nothing.
        previous = None if self._previous is None else Arrays(self._previous)
        start = anchor(self.settings, Arrays(self.weights), previous) if has_anchor(self.settings) else 0.0
        longest = longest_update(self.settings, coordinates(self._model), round, anchor=start)
        self.findings[name] = examine(self.settings, self._model, Arrays(tensors), longest)
        self._bodies[name] = tensors

    def release(self, round: int) -> Mapping[str, Array]:
        """The weights after `round`, out of what was taken; the next round begins empty.

        Raises:
            NotFinite: nothing can be released from these updates.
        """
        # In the order of the names, whoever came first: sums of floats depend on it.
        bodies = [Arrays(self._bodies[name]) for name in sorted(self._bodies)]
        total = noised_sum(self.settings, self._model, bodies, None, self.draws(round))
        self._previous = self.weights
        self.weights, self._state = released(self.settings, Arrays(self.weights), Arrays(total), self._state)
        self._bodies, self.findings = {}, {}
        return self.weights
