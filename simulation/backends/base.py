"""The interface of a backend to the engine, and the plainest backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from server.domain.admission import Findings
from simulation.local_work import Accounts, ClientTask, LocalWork, Orders, Part
from study_protocol.secure_sum.vectors import RingVector, VectorSpec
from study_protocol.wire.tensor_files import Arrays, ReadableTensors
from study_protocol.wire.tensors import UPDATE, Array, Spec


@dataclass(frozen=True, repr=False)
class Done:
    """The results of a round's clients, in the order in which they were asked.

    updates   in the clear
    findings  of them
    sums      vector name -> (data words,), summed
    accounts  what every client keeps
    """

    updates: Sequence[ReadableTensors]
    findings: tuple[Findings, ...]
    sums: Mapping[str, RingVector]
    accounts: tuple[Accounts | None, ...]


class Backend(Protocol):
    """Runs clients. `exact`: gives the service's bytes, as every backend that runs the hospital's own step does."""

    exact: bool

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        """One round of these clients, in order of their places.

        Raises:
            ClientStopped: a client cannot do its part. The first in order of those that were asked is named.
        """
        ...

    def close(self) -> None:
        """End all processes that were started."""


OpenBackend = Callable[[LocalWork], Backend]
"""Made when the study is found possible; what it starts, it ends with `close`."""


class Loop:
    """One client after the other, here."""

    exact = True

    def __init__(self, work: LocalWork) -> None:
        self._work = work

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        sums = WordSums(orders.vectors)
        parts = [sums.take(self._work.part(task, orders)) for task in tasks]
        updates = [Arrays(part.update) for part in parts if part.update is not None]
        findings = tuple(part.findings for part in parts if part.findings is not None)
        return Done(updates, findings, sums.totals, tuple(part.accounts for part in parts))

    def close(self) -> None:
        """Nothing was started."""


@dataclass(repr=False)
class WordSums:
    """Totals of a session's words, as the ring adds them: in any order, to the bit."""

    specs: Sequence[VectorSpec]
    totals: dict[str, RingVector] = field(default_factory=dict[str, RingVector])

    def take(self, part: Part) -> Part:
        self.add(part.words)
        return part

    def add(self, words: Mapping[str, RingVector]) -> None:
        for name in words:
            if name in self.totals:
                self.totals[name] += words[name]
            else:
                self.totals[name] = words[name].copy()


@dataclass(frozen=True, repr=False)
class FlatUpdate:
    """An update as one flat array: (coordinates,) floats, parameters in order of their names. A `Tensors`."""

    spec: Spec
    starts: Mapping[str, int]
    numbers: NDArray[Any]

    def piece(self, name: str, start: int, stop: int) -> Array:
        begins = self.starts[name]
        return self.numbers[begins + start : begins + stop]


@dataclass(frozen=True)
class UpdateLayout:
    """The places of a model's parameters in a flat array."""

    spec: Spec
    starts: Mapping[str, int]
    size: int

    @classmethod
    def of(cls, model: Spec) -> UpdateLayout:
        starts: dict[str, int] = {}
        size = 0
        for name in sorted(model):
            starts[UPDATE + name] = size
            size += int(np.prod(model[name][0], dtype=np.int64))
        return cls({UPDATE + name: model[name] for name in sorted(model)}, starts, size)

    def write(self, update: Mapping[str, Array], into: NDArray[np.float32]) -> None:
        """Put the parameters of one update into a row. Its other tensors stay out."""
        for name, start in self.starts.items():
            values = update[name].reshape(-1)
            into[start : start + len(values)] = values

    def updates(self, rows: Iterable[NDArray[Any]]) -> list[ReadableTensors]:
        return [FlatUpdate(self.spec, self.starts, row) for row in rows]
