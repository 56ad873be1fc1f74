"""Detection of random numbers that a loss or a model draws when it is called."""

from __future__ import annotations

import hashlib
import random as python_random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")
# Calls of which every one has to move a generator: another thread of the process may move it during some of them.
_TRIES = 4


def draws(device: torch.device | None = None) -> tuple[object, ...]:
    """Return where the process's random number generators stand, that of a GPU included."""
    return *_torch_state(device), *_other_state()


def call_and_watch(call: Callable[[], T], device: torch.device | None = None) -> tuple[T, bool]:
    """Return the result of a call, and whether it draws random numbers.

    Generators are the process's own, so that other threads move them, too. PyTorch says which of its operators may
    draw, and says it in this thread alone. A generator that stands still during one call proves that the call draws no
    number.
    """
    tries = 0
    while True:
        watch, torch_state, other_state = _Seeded(), _torch_state(device), _other_state()
        with watch:
            returned = call()
        tries += 1
        torch_moved = watch.has_drawn and _torch_state(device) != torch_state
        random = torch_moved or _other_state() != other_state
        if not random or tries == _TRIES:
            return returned, random


class OperatorObserver(TorchDispatchMode):
    """A mode that sees every operator.

    No call is compiled here: the compiler, which takes seconds to import, stays out.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Seeded(OperatorObserver):
    """Notes operators that may draw from a generator."""

    has_drawn = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.has_drawn |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _torch_state(device: torch.device | None) -> tuple[object, ...]:
    return (
        hashlib.sha256(torch.get_rng_state().numpy().tobytes()).digest(),
        torch.cuda.get_rng_state(device).numpy().tobytes() if device and device.type == "cuda" else None,
    )


def _other_state() -> tuple[object, ...]:
    numpy_state = cast("tuple[Any, ...]", np.random.get_state())
    return hashlib.sha256(numpy_state[1].tobytes()).digest(), numpy_state[2:], python_random.getstate()
