"""Before layer-wise book-keeping is trusted with a model, it is compared with autograd on a few records.

Three things are tested, on batches of two and three records: that every captured call has the records on its first
axis, that a record's loss does not move when another record is exchanged, and that the per-record gradients and their
squared norms equal autograd's, loss by loss, in the very same forward pass (so dropout needs no special case).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .errors import NotLayerwise, UnsupportedLayer
from .layerwise import Layerwise, Loss, checked_losses

RELATIVE = {torch.float64: 1e-7, torch.float32: 2e-3}


def a_few(values: Tensor, count: int) -> Tensor:
    """`count` records of the batch, later ones rolled along their own axis where the batch is too short."""
    rows = [
        values[i] if i < len(values) else values[i % len(values)].flatten().roll(i).view(values.shape[1:])
        for i in range(count)
    ]
    return torch.stack(rows)


def refuse_interaction(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> None:
    """Raise UnsupportedLayer when exchanging one record changes another's loss, or when buffers move."""
    x, y = a_few(inputs, 3), a_few(targets, 3)
    order = torch.tensor([0, 2, 2], device=x.device)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    devices = [x.device] if x.is_cuda else []
    losses: list[Tensor] = []
    with torch.no_grad(), torch.random.fork_rng(devices):
        state = torch.get_rng_state()
        cuda = torch.cuda.get_rng_state(x.device) if x.is_cuda else None
        for rows in (x, x[order]):
            torch.set_rng_state(state)
            if cuda is not None:
                torch.cuda.set_rng_state(cuda, x.device)
            losses.append(checked_losses(loss, model(rows), y, 3))
    for name, value in model.named_buffers():
        if not torch.equal(value, buffers[name]):
            with torch.no_grad():
                value.copy_(buffers[name])
            raise UnsupportedLayer(f"buffer {name!r} stores statistics of the data; use a layer without running state")
    kept = losses[0][[0, 2]], losses[1][[0, 2]]
    if not torch.allclose(*kept, rtol=RELATIVE.get(kept[0].dtype, 2e-2), atol=1e-6):
        raise UnsupportedLayer(
            "a record's loss changes with the other records of its batch; use layers that treat records separately "
            "(GroupNorm, LayerNorm or InstanceNorm instead of batch statistics)"
        )


def verify(engine: Layerwise, inputs: Tensor, targets: Tensor) -> None:
    """Raise NotLayerwise when a parameter's per-record gradient differs from autograd's on two or three records."""
    for count in (2, 3):
        x, y = a_few(inputs, count), a_few(targets, count)
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            state = torch.get_rng_state()
            done = engine.run(x, y)
            torch.set_rng_state(state)
            with torch.enable_grad():
                losses = checked_losses(engine.loss, engine.model(x), y, count)
            wanted = list(engine.parameters.values())
            for i in range(count):
                true = torch.autograd.grad(losses[i], wanted, retain_graph=True, allow_unused=True)
                one_hot = torch.zeros(count, dtype=wanted[0].dtype, device=x.device)
                one_hot[i] = 1
                into: dict[str, Tensor] = {}
                done.weighted_sum(dict.fromkeys(engine.parameters, one_hot), into)
                for (name, p), grad in zip(engine.parameters.items(), true, strict=True):
                    compare(name, into.get(name, torch.zeros_like(p)), grad, done.squares.get(name), i)


def compare(name: str, ours: Tensor, true: Tensor | None, squares: Tensor | None, record: int) -> None:
    expected = torch.zeros_like(ours) if true is None else true
    tolerance = RELATIVE.get(ours.dtype, 2e-2)
    size = float(expected.norm())
    square = 0.0 if squares is None else float(squares[record])
    close = float((ours - expected).norm()) <= tolerance * size + 1e-9
    if not close or abs(max(square, 0.0) ** 0.5 - size) > tolerance * size + 1e-9:
        raise NotLayerwise(f"the closed form for {name!r} disagrees with autograd on this model")
