"""One recurrent layer in one direction over whole sequences, time first: its outputs and its signals.

The fused forward gives every state h_t, so every h_{t−1} is known afterwards. The gates of all steps follow from one
product, and the cell states from a recursion of elementwise products. The signals at the gates follow from one backward
recursion with one small product a step. With these a layer is linear in x_t and h_{t−1}.

Sources: Hochreiter and Schmidhuber 1997. Cho et al. 2014. Werbos 1990, "Backpropagation Through Time".

Shapes: T steps, B records, F features in, H units, P outputs (H, unless a projection follows the cell).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from private_learning.gradients.capture import Capture, Use
from private_learning.gradients.clipping import product
from private_learning.gradients.composite import Affine


class Maps(NamedTuple):
    """The affine maps of one layer in one direction. hr: the projection of an LSTM."""

    ih: Affine
    hh: Affine
    hr: Affine | None = None

    @property
    def weights(self) -> list[Tensor]:
        """Return the tensors in the order of torch's fused functions."""
        affine = [part.parameter(key) for key in ("weight", "bias") for part in (self.ih, self.hh)]
        projection = [] if self.hr is None else [self.hr.parameter("weight")]
        return [value for value in (*affine, *projection) if value is not None]


class RecursionGradients(NamedTuple):
    """The result of a backward recursion.

    hidden, cell: gradients of the states before the first step, (B, P), (B, H).
    """

    to_input: Tensor  # (T, B, gates · H), at the map of x_t
    to_state: Tensor  # the same at the map of h_{t−1}
    hidden: Tensor
    cell: Tensor | None = None

    # Records can be read off gradients.
    __repr__ = object.__repr__


@dataclass(repr=False)
class Sweep(ABC):
    """One call of one layer in one direction.

    lengths: (B,) of the sequences where they differ. Steps behind the end of a sequence count zero.
    """

    capture: Capture
    maps: Maps
    lengths: Tensor | None = None
    # (T + 1, B, P): the state before the first step, then those after each.
    states: Tensor = field(init=False)
    inputs: Tensor = field(init=False)
    use: Use = field(init=False)

    @abstractmethod
    def fused(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Run torch's own function: (T, B, P) outputs and, of an LSTM, the (B, H) last cell state."""

    @abstractmethod
    def recursion(self, outputs: Sequence[Tensor], cell: Tensor | None) -> RecursionGradients:
        """Return the signals from the T gradients (B, P) of the outputs and that of the last cell state."""

    def __call__(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return (T, B, P) outputs, zero behind a sequence's end, and the (B, H) last cell states of an LSTM.

        x: (T, B, F). h, c: (B, P) and (B, H), the states before the first step.
        """
        self.use = self.capture.record(self.maps.ih, x.transpose(0, 1))
        # Where all is frozen, signals are wanted only if something before is not.
        anchor = self.capture.anchor if any(part is not None and part.names for part in self.maps) else None
        return _Swept.apply(x, h, c, anchor, self)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        y, last = self.fused(x, h, c)
        y = self._zero_behind_ends(y)
        dtype = self.maps.hh.parameter("weight").dtype
        # A copy: the model may change what it is given.
        self.inputs, self.states = x.to(dtype), torch.cat((h.unsqueeze(0), y)).to(dtype)
        return y, last

    def backward(
        self, outputs: Tensor | None, cell: Tensor | None, needs_input_grad: bool
    ) -> tuple[Tensor | None, ...]:
        """Return gradients of x (where it is needed), h and c. The uses of the maps get theirs."""
        dtype = self.states.dtype
        output_grads = (
            torch.zeros_like(self.states[1:]) if outputs is None else self._zero_behind_ends(outputs).to(dtype)
        )
        grads = self.recursion(output_grads.unbind(0), None if cell is None else cell.to(dtype))
        self.use.output_grad = grads.to_input.transpose(0, 1)
        self.recorded(self.maps.hh, self.states[:-1], grads.to_state)
        if not needs_input_grad:
            return None, grads.hidden, grads.cell
        flat = grads.to_input.reshape(-1, grads.to_input.shape[-1])
        to_x = product(flat, self.maps.ih.parameter("weight").T).view(self.inputs.shape)
        return to_x, grads.hidden, grads.cell

    def _zero_behind_ends(self, steps: Tensor) -> Tensor:
        if self.lengths is None:
            return steps
        inside = torch.arange(len(steps), device=steps.device)[:, None] < self.lengths
        # Not a product: behind the end there may be anything.
        return torch.where(inside.unsqueeze(2), steps, steps.new_zeros(()))

    def recorded(self, part: Affine, a: Tensor, g: Tensor) -> None:
        """A use of a map of which everything is known: (T, B, …) inputs and gradients of its outputs."""
        self.capture.record(part, a.transpose(0, 1)).output_grad = g.transpose(0, 1)

    def applied(self, part: Affine, a: Tensor) -> Tensor:
        """(T, B, rows of the weight): one product for all steps."""
        return product(a.reshape(-1, a.shape[-1]), part.parameter("weight"), part.parameter("bias")).view(
            *a.shape[:2], -1
        )


class _Swept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor | None, anchor: Tensor | None, sweep: Sweep) -> Any:
        ctx.set_materialize_grads(False)
        ctx.sweep = sweep
        return sweep.forward(x, h, c)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        sweep: Sweep = ctx.sweep
        with torch.autocast(sweep.states.device.type, enabled=False):
            return *sweep.backward(*grads, needs_input_grad=ctx.needs_input_grad[0]), None, None


class PlainSweep(Sweep):
    """h_t = φ(W x_t + b + U h_{t−1} + d), φ the hyperbolic tangent or max(0, ·)."""

    def __init__(self, *args: Any, relu: bool) -> None:
        super().__init__(*args)
        self.relu = relu

    def fused(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        run: Callable[..., Any] = torch.rnn_relu if self.relu else torch.rnn_tanh
        return _run(run, x, h.unsqueeze(0), self.maps)[0], None

    def recursion(self, outputs: Sequence[Tensor], cell: Tensor | None) -> RecursionGradients:
        after, weight = self.states[1:], self.maps.hh.parameter("weight")
        # Slopes first, in the end the signals.
        signals = (after > 0).to(after.dtype) if self.relu else 1 - after.square()
        for t, at in reversed(list(enumerate(signals.unbind(0)))):
            at.mul_(outputs[t] if t + 1 == len(outputs) else torch.addmm(outputs[t], signals[t + 1], weight))
        return RecursionGradients(signals, signals, signals[0] @ weight)


class GatedSweep(Sweep):
    """GRU: r, z = σ(…), n = tanh(W x_t + b + r ⊙ (U h_{t−1} + d)), h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}."""

    def fused(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return _run(torch.gru, x, h.unsqueeze(0), self.maps)[0], None

    def _slopes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the factors of h_t's gradient as a tuple of four.

        They are (T, B, 3, H) factors at U h_{t−1}, those for n at W x_t, then z, and the factor r. The first two gates
        have one signal at both maps.
        """
        before = self.states[:-1]
        size = (*before.shape[:2], 3, before.shape[2])
        of_x, of_h = self.applied(self.maps.ih, self.inputs).view(size), self.applied(self.maps.hh, before).view(size)
        r, z = (of_x[:, :, :2] + of_h[:, :, :2]).sigmoid_().unbind(2)
        inner = of_h[:, :, 2].clone()
        n = torch.addcmul(of_x[:, :, 2], r, inner).tanh_()
        to_n = (1 - z) * (1 - n.square())
        slopes = of_h
        slopes[:, :, 0] = to_n * inner * (r * (1 - r))
        slopes[:, :, 1] = (before - n) * (z * (1 - z))
        torch.mul(to_n, r, out=slopes[:, :, 2])
        return slopes, to_n, z, of_x

    def recursion(self, outputs: Sequence[Tensor], cell: Tensor | None) -> RecursionGradients:
        weight = self.maps.hh.parameter("weight")
        signals, to_n, z, room = self._slopes()
        flat, update_gates = signals.flatten(2), z.unbind(0)
        grads = list(outputs)
        for t, at in reversed(list(enumerate(signals.unbind(0)))):
            if t + 1 < len(outputs):
                grads[t] = torch.addmm(outputs[t], flat[t + 1], weight).addcmul_(grads[t + 1], update_gates[t + 1])
            at.mul_(grads[t].unsqueeze(1))
        room[:, :, :2] = signals[:, :, :2]
        torch.mul(to_n, torch.stack(grads), out=room[:, :, 2])
        return RecursionGradients(room.flatten(2), flat, torch.addcmul(flat[0] @ weight, grads[0], update_gates[0]))


class CellSweep(Sweep):
    """LSTM: the gates i, f, g, o with c_t = f ⊙ c_{t−1} + i ⊙ g and m_t = o ⊙ tanh c_t.

    Then h_t = m_t or its projection.
    """

    # (T, B, 4, H) i, f, g, o and (T + 1, B, H) cell states, kept only where the forward needs them.
    gates: tuple[Tensor, Tensor] | None = None
    start: Tensor

    def fused(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert c is not None
        self.start = c.to(self.maps.hh.parameter("weight").dtype)
        y, _, last = _run(torch.lstm, x, (h.unsqueeze(0), c.unsqueeze(0)), self.maps)
        return y, last[0]

    def forward(self, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        y, last = super().forward(x, h, c)
        if self.lengths is not None:
            # The fused function's is that behind the longest sequence.
            with torch.autocast(x.device.type, enabled=False):
                self.gates = self._gates()
            last = self.gates[1][self.lengths, torch.arange(len(self.lengths), device=x.device)].to(y.dtype)
        return y, last

    def _gates(self) -> tuple[Tensor, Tensor]:
        before, (ih, hh, _) = self.states[:-1], self.maps
        steps, records, _ = before.shape
        stacked = torch.cat((self.inputs, before), 2).flatten(0, 1)
        bias = None if ih.parameter("bias") is None else ih.parameter("bias") + hh.parameter("bias")
        flat = product(stacked, torch.cat((ih.parameter("weight"), hh.parameter("weight")), 1), bias)
        gates = flat.view(steps, records, 4, -1)
        gates[:, :, :2].sigmoid_()
        gates[:, :, 2].tanh_()
        gates[:, :, 3].sigmoid_()
        cells = gates.new_empty(steps + 1, *self.start.shape)
        cells[0] = self.start
        torch.mul(gates[:, :, 0], gates[:, :, 2], out=cells[1:])
        each, forget_gates = cells.unbind(0), gates[:, :, 1].unbind(0)
        for t, f in enumerate(forget_gates):
            each[t + 1].addcmul_(f, each[t])
        return gates, cells

    def recursion(self, outputs: Sequence[Tensor], cell: Tensor | None) -> RecursionGradients:
        gates, cells = self._gates() if self.gates is None else self.gates
        self.gates = None
        slopes, to_cell, forget_gates, emitted = _slopes(gates, cells)
        hidden = self.maps.hh.parameter("weight")
        projection = None if self.maps.hr is None else self.maps.hr.parameter("weight")
        flat, output_grads = slopes.flatten(2), list(outputs)
        late = self._late(cell, len(outputs))
        into = torch.zeros_like(cells[0]) if cell is None or late is not None else cell
        through, reach = to_cell.unbind(0), forget_gates.unbind(0)
        for t, at in reversed(list(enumerate(slopes.unbind(0)))):
            if t + 1 < len(outputs):
                output_grads[t] = torch.addmm(outputs[t], flat[t + 1], hidden)
            g = output_grads[t] if projection is None else output_grads[t] @ projection
            into = torch.addcmul(into if late is None else into + late[t], g, through[t])
            at[:, :3].mul_(into.unsqueeze(1))
            at[:, 3].mul_(g)
            into = into * reach[t]
        if self.maps.hr is not None:
            self.recorded(self.maps.hr, emitted, torch.stack(output_grads))
        return RecursionGradients(flat, flat, flat[0] @ hidden, into)

    def _late(self, cell: Tensor | None, steps: int) -> Tensor | None:
        """Return (T, B, H) the gradient of the last cell state at the step where each sequence ends."""
        if cell is None or self.lengths is None:
            return None
        late = cell.new_zeros(steps, *cell.shape)
        late[self.lengths - 1, torch.arange(len(cell), device=cell.device)] = cell
        return late


def _slopes(gates: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (T, B, 4, H) factors at the gates, and o(1 − tanh² c), f, m.

    The factors multiply c_t's gradient (i, f, g) or m_t's (o).
    """
    i, f, g, o = gates.unbind(2)
    bent = torch.tanh(cells[1:])
    slopes = torch.empty_like(gates)
    slopes[:, :, :2] = gates[:, :, :2] * (1 - gates[:, :, :2])
    slopes[:, :, 0] *= g
    slopes[:, :, 1] *= cells[:-1]
    torch.mul(i, 1 - g.square(), out=slopes[:, :, 2])
    emitted = o * bent
    torch.mul(emitted, 1 - o, out=slopes[:, :, 3])
    return slopes, torch.addcmul(o, emitted, bent, value=-1), f, emitted


def _run(run: Callable[..., Any], x: Tensor, state: Any, maps: Maps) -> Any:
    """Run one of torch's fused functions on one layer in one direction, time first."""
    biased = maps.ih.parameter("bias") is not None
    return run(x, state, maps.weights, biased, 1, 0.0, False, False, False)
