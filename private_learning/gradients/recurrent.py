"""Rules for LSTM, GRU and RNN, whole or as cells: affine maps of the inputs x_t and of the states h_{t−1}."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from private_learning.gradients.capture import Capture
from private_learning.gradients.composite import Affine, Composite
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.layers import Layer
from private_learning.gradients.packing import PackedLayout
from private_learning.gradients.recurrent_backward import CellSweep, GatedSweep, Maps, PlainSweep, Sweep


class RecurrentRule(Composite):
    """nn.LSTM, nn.GRU, nn.RNN: any number of layers, one direction or both, padded or packed."""

    packs = True

    def __init__(self, name: str, module: nn.Module, names: dict[str, str]) -> None:
        super().__init__(name, module, names)
        # Layer by layer, forwards before backwards, as torch numbers the states.
        self._maps = [self._of(suffix) for suffix in _suffixes(self.module)]

    def _of(self, suffix: str) -> Maps:
        affine = partial(Affine, f"{self.name}.{suffix}", self.module, self.names)
        ih, hh = (
            affine(f"weight_{kind}_{suffix}", f"bias_{kind}_{suffix}" if self.module.bias else None)
            for kind in ("ih", "hh")
        )
        return Maps(ih, hh, affine(f"weight_hr_{suffix}") if self.module.proj_size else None)

    @staticmethod
    def expected(module: Any) -> set[str]:
        kinds = ["weight_ih", "weight_hh"]
        kinds += ["bias_ih", "bias_hh"] if module.bias else []
        kinds += ["weight_hr"] if module.proj_size else []
        return {f"{kind}_{suffix}" for suffix in _suffixes(module) for kind in kinds}

    @property
    def parts(self) -> Sequence[Layer]:
        return [part for maps in self._maps for part in maps if part is not None]

    def _sweep(self, capture: Capture, maps: Maps, lengths: Tensor | None) -> Sweep:
        if isinstance(self.module, nn.LSTM):
            return CellSweep(capture, maps, lengths)
        if isinstance(self.module, nn.GRU):
            return GatedSweep(capture, maps, lengths)
        return PlainSweep(capture, maps, lengths, relu=self.module.nonlinearity == "relu")

    def forward(self, capture: Capture, input: Any, hx: Any = None) -> Any:  # torch's names
        if isinstance(input, PackedSequence):
            self._check(input.data, hx, input.batch_sizes)
            layout = PackedLayout.of(input)
            rows, *last = self._layers(capture, input.data, hx, layout)
            return PackedSequence(rows, *input[1:]), self._state(last)
        if input.dim() != 3:
            raise NotLayerwise(f"{self.name!r} was given one sequence and no batch")
        self._check(input, hx, None)
        first = self.module.batch_first
        y, *last = self._layers(capture, input.transpose(0, 1) if first else input, hx, None)
        return (y.transpose(0, 1) if first else y), self._state(last)

    def _check(self, values: Tensor, hx: Any, sizes: Tensor | None) -> None:
        """Raises what the module raises for sizes that do not fit."""
        self.module.check_input(values, sizes)
        if hx is not None:
            self.module.check_forward_args(values, hx, sizes)

    def _state(self, last: Sequence[Tensor]) -> Any:
        return tuple(last) if isinstance(self.module, nn.LSTM) else last[0]

    def _layers(self, capture: Capture, x: Tensor, hx: Any, layout: PackedLayout | None) -> list[Tensor]:
        """[outputs, last states (, last cell states)] from inputs that are time first or packed."""
        records = x.shape[1] if layout is None else len(layout.lengths)
        hidden, cells = self._starts(x, hx, records)
        ends: list[tuple[Tensor, Tensor | None]] = []
        ways = 2 if self.module.bidirectional else 1
        for depth in range(self.module.num_layers):
            outputs: list[Tensor] = []
            for k in range(depth * ways, (depth + 1) * ways):
                y, h, c = self._swept(capture, k, x, hidden[k], cells[k], layout)
                outputs.append(y)
                ends.append((h, c))
            x = outputs[0] if ways == 1 else torch.cat(outputs, -1)
            if depth + 1 < self.module.num_layers:
                x = self._dropped(x, layout)
        results = [x, torch.stack([h for h, _ in ends])]
        return (
            [*results, torch.stack([cast(Tensor, c) for _, c in ends])] if isinstance(self.module, nn.LSTM) else results
        )

    def _starts(self, x: Tensor, hx: Any, records: int) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
        """States and cell states before the first step, one (records, …) of each for every layer and direction."""
        module, count = self.module, len(self._maps)
        if hx is None:
            zero = x.new_zeros(records, module.proj_size or module.hidden_size)
            cell = x.new_zeros(records, module.hidden_size) if isinstance(module, nn.LSTM) else None
            return [zero] * count, [cell] * count
        if isinstance(module, nn.LSTM):
            return hx[0].unbind(0), hx[1].unbind(0)
        return hx.unbind(0), [None] * count

    def _swept(
        self, capture: Capture, k: int, x: Tensor, h: Tensor, c: Tensor | None, layout: PackedLayout | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """(outputs, last state, last cell state) of one layer in one direction."""
        reverse = self.module.bidirectional and k % 2 == 1
        if layout is None:
            y, cell = self._sweep(capture, self._maps[k], None)(x.flip(0) if reverse else x, h, c)
            return (y.flip(0) if reverse else y), y[-1], cell
        y, cell = self._sweep(capture, self._maps[k], layout.lengths)(layout.padded(x, reverse), h, c)
        return layout.rows(y, reverse), layout.last(y), cell

    def _dropped(self, x: Tensor, layout: PackedLayout | None) -> Tensor:
        """Dropout between two layers, drawn as torch draws it."""
        share = self.module.dropout if self.module.training else 0.0
        if share and layout is not None:
            raise NotLayerwise(f"{self.name!r} drops units of packed sequences, whose places follow other records")
        return functional.dropout(x, share) if share else x


class RecurrentCell(Composite):
    """nn.LSTMCell, nn.GRUCell, nn.RNNCell: one step, called as often as the model wants."""

    def __init__(self, name: str, module: nn.Module, names: dict[str, str]) -> None:
        super().__init__(name, module, names)
        self._ih, self._hh = (Affine(name, module, names, f"weight_{kind}", f"bias_{kind}") for kind in ("ih", "hh"))

    @staticmethod
    def expected(module: Any) -> set[str]:
        return {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}

    @property
    def parts(self) -> Sequence[Layer]:
        return [self._ih, self._hh]

    def forward(self, capture: Capture, input: Tensor, hx: Any = None) -> Any:  # torch's names
        if input.dim() != 2:
            raise NotLayerwise(f"{self.name!r} was given one record and no batch")
        if hx is None:
            zero = input.new_zeros(len(input), self.module.hidden_size)
            hx = (zero, zero) if isinstance(self.module, nn.LSTMCell) else zero
        if isinstance(self.module, nn.LSTMCell):
            h, c = hx
            i, f, g, o = self._gate_sums(capture, input, h).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c
        if isinstance(self.module, nn.GRUCell):
            of_x, of_h = (capture.call(part, a).chunk(3, 1) for part, a in ((self._ih, input), (self._hh, hx)))
            r, z = (torch.sigmoid(of_x[k] + of_h[k]) for k in (0, 1))
            n = torch.tanh(of_x[2] + r * of_h[2])
            return n + z * (hx - n)
        sums = self._gate_sums(capture, input, hx)
        return torch.tanh(sums) if self.module.nonlinearity == "tanh" else torch.relu(sums)

    def _gate_sums(self, capture: Capture, x: Tensor, h: Tensor) -> Tensor:
        return capture.call(self._ih, x) + capture.call(self._hh, h)


def _suffixes(module: Any) -> list[str]:
    """Of the parameters' names, layer by layer."""
    ways = ("", "_reverse") if module.bidirectional else ("",)
    return [f"l{depth}{way}" for depth in range(module.num_layers) for way in ways]
