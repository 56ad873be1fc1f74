"""Per-record gradients of convolutions in one and two dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from private_learning.gradients.layers import KEEP, Layer, LayerCache, combined, gram, rounding, size_of, squared_norms

# The direct form works on a few records at a time, so that their gradients stay in the processor's cache.
CACHED = 1 << 20
# Up to so many input channels a forward convolution beats the backend's weight gradient (measured).
_FEW_CHANNELS = 3


class ConvLayer(Layer):
    """nn.Conv1d and nn.Conv2d: grouped, strided, padded (any mode), dilated.

    The records of a batch become groups of one convolution (Rochette, Manoel, Tramel 2019). The backend's own weight
    gradient then gives every record's, at nearly the speed of the summed one. The rows of a record are the batch of
    that convolution, which sums over them.

    Inputs and signals are (batch, channels, ...), or (batch, rows, channels, ...).
    """

    def forward(self, x: Tensor) -> Tensor:
        return self.module._conv_forward(x, self.parameter("weight"), self.parameter("bias"))

    def _padded(self, a: Tensor) -> tuple[Tensor, list[int]]:
        """Return (input, zero padding that the backend still has to add), for modes and amounts unknown to it."""
        module = self.module
        edges = module._reversed_padding_repeated_twice
        if module.padding_mode != "zeros":
            return functional.pad(a, edges, mode=module.padding_mode), [0] * len(module.kernel_size)
        before, after = edges[::2], edges[1::2]
        # padding="same" with an even kernel pads one side more, which the backend cannot express.
        if before != after:
            return functional.pad(a, edges), [0] * len(module.kernel_size)
        return a, list(reversed(before))

    def _backward(self, a: Tensor, g: Tensor, weight: Tensor, pad: list[int], groups: int, *, of_input: bool) -> Any:
        module = self.module
        zeros = [0] * len(pad)
        output_mask = (of_input, not of_input, False)
        grads = torch.ops.aten.convolution_backward(
            g, a, weight, None, module.stride, pad, module.dilation, False, zeros, groups, output_mask
        )
        return grads[0] if of_input else grads[1]

    def signal(self, x: Tensor, g: Tensor) -> Tensor:
        padded, pad = self._padded(x)
        if padded is not x:
            # The padding is part of the forward here: autograd leads the gradient back through it.
            return super().signal(x, g)
        return self._backward(x, g, self.parameter("weight").to(g.dtype), pad, self.module.groups, of_input=True)

    def _by_rows(self, values: Tensor) -> Tensor:
        """Return (batch, rows, channels, ...), with one row where there is no such axis."""
        return values if values.dim() == len(self.module.kernel_size) + 3 else values.unsqueeze(1)

    def _direct(self, a: Tensor, g: Tensor) -> Iterator[Tensor]:
        """Yield (records, *weight shape) gradients, a few records at a time."""
        a, g = self._by_rows(a), self._by_rows(g)
        padded, pad = self._padded(a.flatten(0, 1))
        a = torch.unflatten(padded, 0, a.shape[:2])
        step = max(1, CACHED // self.module.weight.numel())
        return (self._grouped(x, s, pad) for x, s in zip(torch.split(a, step), torch.split(g, step), strict=True))

    def _correlated(self, a: Tensor, g: Tensor, pad: list[int]) -> Tensor:
        """Return the gradients as a forward convolution whose filters are the signals.

        Stride and dilation change places.
        """
        module, shape = self.module, self.module.weight.shape
        groups = len(a) * module.groups
        # Rows are input channels of a group: a convolution sums over these.
        inputs = torch.unflatten(a, 2, (module.groups, shape[1])).movedim(3, 0).transpose(2, 3)
        inputs = inputs.reshape(shape[1], -1, *a.shape[3:])
        filters = g.transpose(1, 2).reshape(-1, *g.shape[1:2], *g.shape[3:])
        convolve = functional.conv1d if a.dim() == 4 else functional.conv2d
        gradients = convolve(inputs, filters, None, module.dilation, pad, module.stride, groups)
        for axis, width in enumerate(shape[2:], 2):
            # Where the stride leaves columns over, offsets beyond the kernel come out as well.
            gradients = gradients.narrow(axis, 0, width)
        return torch.unflatten(gradients, 1, (len(a), shape[0])).movedim(0, 2)

    def _grouped(self, a: Tensor, g: Tensor, pad: list[int]) -> Tensor:
        shape = self.module.weight.shape
        if shape[1] <= _FEW_CHANNELS:
            return self._correlated(a, g, pad)
        # Only its shape is read. An expanded scalar would be copied out first.
        like = a.new_empty(len(a) * shape[0], *shape[1:])
        signals, inputs = (of.transpose(0, 1).reshape(of.shape[1], -1, *of.shape[3:]) for of in (g, a))
        gradients = self._backward(inputs, signals, like, pad, len(a) * self.module.groups, of_input=False)
        return gradients.view(len(a), *shape)

    def _summed(self, a: Tensor, g: Tensor) -> Tensor:
        a, pad = self._padded(a)
        return self._backward(a, g, self.parameter("weight"), pad, self.module.groups, of_input=False)

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if "weight" in self.names:
            out["weight"] = torch.cat(list(self._direct(a, g)))
        if "bias" in self.names:
            out["bias"] = self._of_bias(g)
        return out

    def _of_bias(self, g: Tensor) -> Tensor:
        """Return (batch, outputs) gradients of the bias."""
        if g.dim() == len(self.module.kernel_size) + 2:
            return g.flatten(2).sum(2)
        return g.flatten(3).sum(3).sum(1)

    def _gram(self, a: Tensor, g: Tensor) -> Tensor:
        module, records = self.module, len(a)
        a, g = (self._by_rows(of).flatten(0, 1) for of in (a, g))
        a, pad = self._padded(a)
        if a.dim() == 3:
            # `unfold` knows two dimensions only.
            a, g = a.unsqueeze(2), g.unsqueeze(2)
        kernel, stride, dilation, edges = (
            (default, *value)[-2:]
            for default, value in ((1, module.kernel_size), (1, module.stride), (1, module.dilation), (0, pad))
        )
        patches = functional.unfold(a, kernel, dilation, edges, stride)
        # (records · groups, rows · positions, width)
        patches, signal = (
            of.reshape(records, -1, module.groups, of.shape[1] // module.groups, patches.shape[-1])
            .permute(0, 2, 1, 4, 3)
            .flatten(2, 3)
            .flatten(0, 1)
            for of in (patches, g.flatten(2))
        )
        return gram(patches, signal).view(records, module.groups).sum(1)

    def _few_positions(self, g: Tensor) -> bool:
        """Return whether the Gram form costs less.

        Unfolding and small products make it twice as slow per product (measured).
        """
        weight, groups = self.module.weight, self.module.groups
        positions, width, out = g[0].numel() // len(weight), weight[0].numel(), len(weight) // groups
        return 2 * positions * (width + out) < width * out

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], LayerCache]:
        values: dict[str, Tensor] = {}
        cache: LayerCache = {}
        if "bias" in self.names:
            cache["bias"] = [self._of_bias(g)]
            values["bias"] = squared_norms(cache["bias"][0])
        if "weight" in self.names:
            if self._few_positions(g):
                values["weight"] = self._gram(a, g)
            elif len(a) * self.module.weight.numel() <= KEEP:
                cache["weight"] = list(self._direct(a, g))
                values["weight"] = torch.cat([squared_norms(part) for part in cache["weight"]])
            else:
                # Each part of the batch is forgotten once it is measured.
                values["weight"] = torch.cat([squared_norms(part) for part in self._direct(a, g)])
        return values, cache

    def weighted_sum(self, a: Tensor, g: Tensor, weights: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        out = super().weighted_sum(a, g, weights, cache) if cache else {}
        if "weight" in self.names and "weight" not in cache:
            if self._few_positions(g):
                scaled = self._by_rows(g * weights["weight"].view(-1, *(1,) * (g.dim() - 1)))
                out["weight"] = self._summed(self._by_rows(a).flatten(0, 1), scaled.flatten(0, 1))
            else:
                # The same numbers as were measured: of positions that cancel, another order leaves something else.
                out["weight"] = combined(weights["weight"], self._direct(a, g))
        return out

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        out = super().inner(a, g, centre, cache) if cache else {}
        if "weight" in self.names and "weight" not in cache:
            # ⟨Σ_t g_t a_tᵀ, v⟩ = Σ_t ⟨g_t, v a_t⟩: the forward with the centre as weight, without a gradient.
            flat = self._by_rows(a).flatten(0, 1)
            moved = self.module._conv_forward(flat, centre["weight"], None)
            out["weight"] = (moved.view(g.shape) * g).flatten(1).sum(1)
            out["weight"] -= self._lost(self._size(a, g), g) * squared_norms(centre["weight"].unsqueeze(0)).sqrt()
        return out

    def _size(self, a: Tensor, g: Tensor) -> Tensor:
        """Return (batch,) as `size_of`: every input is seen by at most a kernel's places."""
        module = self.module
        padded = a if module.padding_mode == "zeros" else self._padded(self._by_rows(a).flatten(0, 1))[0]
        return math.sqrt(math.prod(module.kernel_size)) * size_of(padded.reshape(len(a), -1), g.flatten(1))

    def _lost(self, size: Tensor, g: Tensor) -> Tensor:
        """Return (batch,) how far rounding can move a weight's gradient."""
        return rounding(size, g.dtype, g[0].numel() // self.module.weight.shape[0])
