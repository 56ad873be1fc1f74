"""Losses as functions of one output and one target, so that no loss ever sees two records.

Losses that are built in are known to keep records apart and run as they are. Every other loss runs on single rows.
Therefore its value and its gradient for one record cannot depend on another record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import vmap

from private_learning.gradients.losses import SeparateLoss, is_built_in

Loss = Callable[[Tensor, Tensor], Tensor]


class NotOneNumber(ValueError):
    """The loss of one record is not one number."""


def separated(loss: Loss) -> Loss:
    """Return a loss that keeps records apart: a built-in one as it is, any other as a `Separated`."""
    return loss if is_built_in(loss) else Separated(loss)


def of_rows(loss: Loss) -> tuple[Loss, int]:
    """Return the loss that a user wrote, and how many axes of rows lie before those that it sees."""
    axes = 0
    while isinstance(loss, SeparateLoss) and is_built_in(loss) and loss.of_rows is not None:
        loss, axes = loss.of_rows, axes + 1
    return loss, axes


class Separated:
    """A loss that is run on one output and one target at a time.

    `torch.func.vmap` does it for all records at once, with random numbers of its own for each. For losses that vmap
    cannot run (values that become Python numbers, NumPy), single rows run one after the other. The first call decides,
    and `settle` ends the choice before records are seen.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.vectorised: bool | None = None

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return (batch,) losses of outputs with the records along the first axis: a tensor, or tensors in containers.

        Raises ValueError: the loss of one record is not one number, or outputs have another length than targets.
        """
        if isinstance(outputs, Tensor) and outputs.shape[:1] != targets.shape[:1]:
            raise ValueError(
                f"the model must give one output per record, got shape {tuple(outputs.shape)} for {len(targets)} "
                "records"
            )
        if not len(targets):
            return torch.zeros(0, dtype=outputs.dtype, device=outputs.device)
        if self.vectorised is not None:
            return self._together(outputs, targets) if self.vectorised else self._one_by_one(outputs, targets)
        try:
            losses = self._together(outputs, targets)
        # What a loss raises under vmap may have any type.
        except Exception:  # noqa: BLE001
            losses = self._one_by_one(outputs, targets)
            self.vectorised = False
            return losses
        self.vectorised = True
        return losses

    def settle(self, together: bool | None = None) -> bool:
        """Return whether rows run at once, from now on.

        The argument decides, or else the calls so far. Where both are missing, rows run one by one.
        """
        self.vectorised = bool(self.vectorised) if together is None else together
        return self.vectorised

    def _together(self, outputs: Any, targets: Tensor) -> Tensor:
        with warnings.catch_warnings():
            # Operations without a batching rule run in a loop: slower, and exactly as right.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return vmap(self._of_one, randomness="different")(outputs, targets)

    def _of_one(self, output: Any, target: Tensor) -> Tensor:
        return self._single(each_tensor(lambda value: value.unsqueeze(0), output), target.unsqueeze(0))

    def _one_by_one(self, outputs: Any, targets: Tensor) -> Tensor:
        def single(i: int) -> Tensor:
            return self._single(each_tensor(lambda value: value[i : i + 1], outputs), targets[i : i + 1])

        return torch.stack([single(i) for i in range(len(targets))])

    def _single(self, output: Any, target: Tensor) -> Tensor:
        losses = self.loss(output, target)
        if not isinstance(losses, Tensor) or losses.shape != (1,):  # pyright: ignore[reportUnnecessaryIsInstance]
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotOneNumber(
                f"loss must return one value per record, got shape {shape} for one record. Use reduction='none', and "
                "squeeze(-1) in place of squeeze()"
            )
        return losses[0]


def settled(loss: Loss, together: bool | None = None) -> bool | None:
    """Settle how a loss of a user's own runs, also one of single rows inside of another: as `Separated.settle`.

    Returns None: all of the loss is built in.
    """
    if isinstance(loss, Separated):
        return loss.settle(together)
    inner = loss.of_each_row if isinstance(loss, SeparateLoss) else None
    return None if inner is None else settled(inner, together)


def each_tensor(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """Return the same containers (tuples, lists, mappings) with every tensor changed.

    Raises TypeError: something else is in them.
    """
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, Mapping):
        items = cast("Mapping[Any, Any]", values).items()
        return {key: each_tensor(change, value) for key, value in items}
    if isinstance(values, (tuple, list)):
        parts = [each_tensor(change, value) for value in cast("list[Any]", values)]
        if isinstance(values, tuple) and hasattr(cast(Any, values), "_fields"):
            return cast(Any, type(cast(Any, values)))(*parts)
        return tuple(parts) if isinstance(values, tuple) else parts
    if values is None:
        return None
    raise TypeError(f"a model's output must be a tensor, or tensors in tuples, lists or mappings, not {type(values)}")


def tensors_in(values: Any) -> list[Tensor]:
    """Return every tensor in the containers, in their order."""
    tensors: list[Tensor] = []

    def keep(value: Tensor) -> Tensor:
        tensors.append(value)
        return value

    each_tensor(keep, values)
    return tensors
