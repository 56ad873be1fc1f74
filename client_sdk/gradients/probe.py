"""Before layer-wise book-keeping is trusted with a model, it is compared with autograd on a few records.

Three things are tested, on batches of two and three records: that every captured call has the records on its first
axis, that a record's loss does not move when another record is exchanged, and that the per-record gradients and their
squared norms equal autograd's, loss by loss, under the same randomness (so dropout needs no special case).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from client_sdk.gradients.errors import NotLayerwise, UnsupportedLayer
from client_sdk.gradients.layerwise import Layerwise, Loss, Signals, checked_losses


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """Relative difference that rounding explains; autocast lets autograd round its own gradients to 8 bits."""
    if torch.is_autocast_enabled(device.type) or dtype not in (torch.float32, torch.float64):
        return 5e-2
    return 1e-7 if dtype == torch.float64 else 2e-3


def a_few(values: Tensor, count: int) -> Tensor:
    """`count` records of the batch; where it is too short, its records again with their entries rolled."""
    rows = [values[i % len(values)] for i in range(count)]
    # Rolled: between equal records an exchange would show nothing.
    rolled = [row.flatten().roll(i).view(row.shape) if i >= len(values) else row for i, row in enumerate(rows)]
    return torch.stack(rolled)


@contextmanager
def repeatable(device: torch.device) -> Generator[Callable[[], None]]:
    """Yields a function that rewinds the generators dropout draws from; afterwards they stand where they stood."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # pyright: ignore[reportUnknownMemberType]
        cpu, cuda = torch.get_rng_state(), [torch.cuda.get_rng_state(d) for d in devices]

        def rewind() -> None:
            torch.set_rng_state(cpu)
            for d, state in zip(devices, cuda, strict=True):
                torch.cuda.set_rng_state(state, d)

        yield rewind


def refuse_interaction(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> None:
    """Raise UnsupportedLayer when exchanging one record changes another's loss, or when buffers move."""
    x, y = a_few(inputs, 3), a_few(targets, 3)
    # Record 1 becomes a copy of record 2; the losses of 0 and 2 must not move.
    exchanged = x[torch.tensor([0, 2, 2], device=x.device)]
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    with torch.no_grad(), repeatable(x.device) as rewind:
        before = checked_losses(loss, x, model(x), y)
        rewind()
        after = checked_losses(loss, x, model(exchanged), y)
    for name, value in model.named_buffers():
        if not torch.equal(value, buffers[name]):
            # Put back before the refusal: it holds something of the records now.
            value.copy_(buffers[name])
            raise UnsupportedLayer(f"buffer {name!r} stores statistics of the data; use a layer without running state")
    if not torch.allclose(before[[0, 2]], after[[0, 2]], rtol=tolerance(before.dtype, x.device), atol=1e-6):
        raise UnsupportedLayer(
            "a record's loss changes with the other records of its batch; use layers that treat records separately "
            "(GroupNorm, LayerNorm or InstanceNorm instead of batch statistics)"
        )


def verify(engine: Layerwise, inputs: Tensor, targets: Tensor) -> int:
    """Numbers held per record. Raises NotLayerwise when a gradient differs from autograd's on two or three records."""
    try:
        # Two sizes: an axis that happens to have one of them is not taken for the records'.
        return max(compare(engine, a_few(inputs, count), a_few(targets, count)) for count in (2, 3))
    except RuntimeError as why:
        raise NotLayerwise(f"layer-wise book-keeping failed: {why}") from why


def compare(engine: Layerwise, x: Tensor, y: Tensor) -> int:
    """Numbers held per record, once every record's gradient has been found right."""
    with repeatable(x.device) as rewind:
        done = engine.run(x, y)
        rewind()
        with torch.enable_grad():
            losses = checked_losses(engine.loss, x, engine.model(x), y)
    for i in range(len(x)):
        compare_record(engine, done, losses[i], i)
    return done.footprint


def _length(value: Tensor) -> float:
    return float(cast(Tensor, value.norm()))  # pyright: ignore[reportUnknownMemberType]


def compare_record(engine: Layerwise, done: Signals, loss: Tensor, i: int) -> None:
    """Raise NotLayerwise where record i's gradients or norms are not those of autograd for its own loss."""
    parameters = engine.parameters
    # Torch's annotation leaves out the None of an unused parameter.
    found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
    true = cast("tuple[Tensor | None, ...]", found)
    size = math.sqrt(sum(_length(grad) ** 2 for grad in true if grad is not None))
    chosen = torch.zeros(done.batch, dtype=next(iter(parameters.values())).dtype, device=loss.device)
    chosen[i] = 1.0
    ours: dict[str, Tensor] = {}
    done.add_weighted(dict.fromkeys(parameters, chosen), ours)
    for (name, parameter), grad in zip(parameters.items(), true, strict=True):
        own = 0.0 if grad is None else _length(grad)
        norm = math.sqrt(float(done.squares[name][i]))
        zero = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
        expected = zero if grad is None else grad
        # In place: on a large layer every copy counts.
        apart = ours.pop(name).sub_(expected) if name in ours else expected
        away = max(_length(apart), abs(norm - own))
        # Some gradients are zero but for rounding, such as a bias before a normalisation.
        if not away <= tolerance(parameter.dtype, loss.device) * (own + 1e-3 * size) + 1e-30:
            raise NotLayerwise(f"the closed form for {name!r} disagrees with autograd on this model")
