"""Detection of models that read numbers out of their records, so that their path can follow from one record.

Within book-keeping a whole pass takes one path: a branch that one record opens would be open for all. So a model that
turns a record's values into Python numbers, NumPy arrays or shapes runs record by record, for all values. Before the
first such reading every record takes the same path, so that one call is enough to find it.

PyTorch's own gradients read, too. That of a product along an axis looks for a zero anywhere in the batch. With one it
computes the gradients of all records another way, which does not underflow where the usual one does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd import profiler_legacy
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from private_learning.gradients.packing import Packing
from private_learning.gradients.random_draws import OperatorObserver

# Readings that pass by PyTorch's operators.
_METHODS = {"numpy", "__array__", "tolist", "data_ptr", "untyped_storage", "storage", "__dlpack__"}
_MASKS = (torch.bool, torch.uint8)


def follows_values(model: nn.Module, inputs: Tensor) -> bool:
    """Return whether values of records become numbers or shapes in the model. inputs: (records, ...).

    Raises NotLayerwise: packed sequences are unpacked to the length of the longest.
    """
    watch, methods = _Operators(), _Methods()
    with torch.no_grad(), ExitStack() as hooks, Packing(), methods, watch:
        for module in model.modules():
            # PyTorch's own, which read how many records a packed sequence has. Ours take their place.
            if type(module) in (nn.LSTM, nn.GRU, nn.RNN):
                hooks.callback(module.register_forward_pre_hook(watch.pause).remove)
                hooks.callback(module.register_forward_hook(watch.go_on).remove)
        model(inputs.clone())
    if not (watch.read or methods.read):
        return False

    def single_record(record: Tensor) -> Any:
        return model(record.unsqueeze(0))

    # Parameters and buffers may be read: only records are hidden by vmap.
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            vmap(single_record, randomness="different")(inputs.clone())
    # What vmap raises may have any type.
    except Exception:  # noqa: BLE001
        return True
    return False


class Runs(Protocol):
    """The object that computes the gradients of a pass."""

    def run(self, inputs: Tensor, targets: Tensor) -> object: ...


def gradients_follow_values(engine: Runs, inputs: Tensor, targets: Tensor) -> bool:
    """Return whether PyTorch reads numbers out of records on the way back. inputs: (records, ...).

    A dispatch mode cannot see it, because within one PyTorch takes the other way throughout. So does vmap, which is the
    way out. Readings on the way forward are the business of `follows_values`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The newer profiler writes lines of its own to the screen.
        legacy: Any = profiler_legacy
        with legacy.profile() as profile:
            engine.run(inputs.clone(), targets.clone())
    return any(event.name in _READINGS and _within_a_gradient(event) for event in profile.function_events)


def _within_a_gradient(event: Any) -> bool:
    """What is read after it, of gradients that are there, is this package's own: it treats each record by itself."""
    while (event := event.cpu_parent) is not None:
        if event.name.startswith(_BACKWARD):
            return True
    return False


# As a profiler calls the beginning of a gradient, and what turns values into numbers or shapes.
_BACKWARD = "autograd::engine::evaluate_function"
_READINGS = {f"aten::{name}" for name in ("_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero")}


class _Operators(OperatorObserver):
    """Notes operators whose results are Python numbers, or have shapes that follow from values."""

    read, _paused = False, False

    def pause(self, *_: Any) -> None:
        self._paused = True

    def go_on(self, *_: Any) -> None:
        self._paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tags = cast("Sequence[Any]", func.tags)
        packet = func.overloadpacket
        by_shape = torch.Tag.dynamic_output_shape in tags and (packet is not _INDEX or _masked(args))
        self.read |= (
            not self._paused and packet not in _PACKING and (by_shape or torch.Tag.data_dependent_output in tags)
        )
        return func(*args, **(kwargs or {}))


_INDEX = torch.ops.aten.index
# Packed sequences have a rule of their own (`private_learning.gradients.packing`).
_PACKING = (torch.ops.aten._pack_padded_sequence, torch.ops.aten._pad_packed_sequence)


def _masked(args: Sequence[Any]) -> bool:
    return any(isinstance(place, Tensor) and place.dtype in _MASKS for place in args[1])


class _Methods(TorchFunctionMode):
    """Notes what reads a tensor's memory, and shortens packed sequences."""

    read = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        self.read |= name in _METHODS
        if name == "_pack_padded_sequence":
            # The longest record shorter than the tensor: shapes that follow its length show for all records.
            padded, lengths, batch_first = args
            args = padded, lengths.clamp(max=max(1, padded.shape[1 if batch_first else 0] - 1)), batch_first
        return cast(Callable[..., Any], func)(*args, **(kwargs or {}))
