"""Readers of records for tests; imported in the processes that read."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from private_learning.records.records import Array


@dataclass
class Images:
    """A reader that is slow in an order of its own, and knows what it was asked for."""

    inputs: Array = field(repr=False)
    pauses: bool = False
    asked: list[list[int]] = field(default_factory=list[list[int]])
    threads: set[int] = field(default_factory=set[int])

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: Array) -> Array:
        self.asked.append(rows.tolist())
        self.threads.add(threading.get_ident())
        if self.pauses:
            time.sleep(float(np.random.default_rng(int(rows[0])).uniform(0, 0.004)))
        return self.inputs[rows]


@dataclass(frozen=True)
class Dying:
    """A reader whose process ends; in its own process it reads."""

    inputs: Array = field(repr=False)
    parent: int

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: Array) -> Array:
        if os.getpid() != self.parent:
            os._exit(1)
        return self.inputs[rows]


@dataclass(frozen=True)
class Plain:
    """A reader that can be sent to another process."""

    inputs: Array = field(repr=False)

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: Array) -> Array:
        return self.inputs[rows]
