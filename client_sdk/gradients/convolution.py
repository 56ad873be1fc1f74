"""Per-record gradients of convolutions in one and two dimensions.

The direct form copies the input once per kernel *column*; each kernel row is then a batched product over a slice of
that copy, which needs no further copy when rows are not strided. im2col would copy it once per kernel *entry*.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .layers import KEEP, Layer, gram


class ConvLayer(Layer):
    """nn.Conv1d and nn.Conv2d: grouped, strided, padded (any mode), dilated. Conv1d is treated as height 1."""

    def forward(self, x: Tensor) -> Tensor:
        return self.module._conv_forward(x, self.own("weight"), self.own("bias"))

    def _planes(self, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Padded input (batch, channels, height, width) and output gradient (batch, out, height, width)."""
        module = self.module
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        padded = functional.pad(a, module._reversed_padding_repeated_twice, mode=mode)
        return (padded, g) if a.dim() == 4 else (padded.unsqueeze(2), g.unsqueeze(2))

    def _geometry(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """(kernel, stride, dilation) as pairs."""
        module = self.module
        pairs = [(1, *value)[-2:] for value in (module.kernel_size, module.stride, module.dilation)]
        return pairs[0], pairs[1], pairs[2]

    def _columns(self, padded: Tensor, out_width: int) -> Tensor:
        """(batch, groups, channels per group, kernel width, height, out width): one copy per kernel column."""
        (_, kw), (_, sw), (_, dw) = self._geometry()
        span = sw * (out_width - 1) + 1
        shifted = torch.stack([padded[..., k * dw : k * dw + span : sw] for k in range(kw)], dim=2)
        groups = self.module.groups
        return shifted.view(shifted.shape[0], groups, -1, *shifted.shape[2:])

    def _direct(self, a: Tensor, g: Tensor) -> Tensor:
        """(kernel height, batch, groups, out per group, channels per group · kernel width) gradients."""
        padded, g = self._planes(a, g)
        (kh, _), (sh, _), (dh, _) = self._geometry()
        batch, out, height, width = g.shape
        groups = self.module.groups
        columns = self._columns(padded, width)
        signal = g.reshape(batch * groups, out // groups, height * width)
        rows = []
        for k in range(kh):
            part = columns[..., k * dh : k * dh + sh * (height - 1) + 1 : sh, :]
            part = part.reshape(batch * groups, -1, height * width)
            rows.append(torch.bmm(signal, part.transpose(1, 2)))
        return torch.stack(rows).view(kh, batch, groups, out // groups, -1)

    def _shaped(self, rows: Tensor, lead: tuple[int, ...]) -> Tensor:
        """Weight-shaped gradients from the direct form's layout, with leading axes `lead` after the kernel row."""
        module = self.module
        (kh, kw), _, _ = self._geometry()
        full = rows.reshape(kh, *lead, module.out_channels, module.in_channels // module.groups, kw)
        return full.movedim(0, -2).reshape(*lead, *module.weight.shape)

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if "weight" in self.names:
            out["weight"] = self._shaped(self._direct(a, g), (a.shape[0],))
        if "bias" in self.names:
            out["bias"] = g.flatten(2).sum(2)
        return out

    def _gram(self, a: Tensor, g: Tensor) -> Tensor:
        padded, g = self._planes(a, g)
        kernel, stride, dilation = self._geometry()
        groups = self.module.groups
        patches = functional.unfold(padded, kernel, dilation, 0, stride)
        patches = patches.view(a.shape[0] * groups, -1, patches.shape[-1]).transpose(1, 2)
        signal = g.reshape(a.shape[0] * groups, -1, patches.shape[1]).transpose(1, 2)
        return gram(patches, signal).view(a.shape[0], groups).sum(1)

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        values: dict[str, Tensor] = {}
        kept: dict[str, Tensor] = {}
        if "bias" in self.names:
            kept["bias"] = g.flatten(2).sum(2)
            values["bias"] = kept["bias"].square().sum(1)
        if "weight" in self.names:
            weight = self.module.weight
            positions, groups = g[0, 0].numel(), self.module.groups
            width, out = weight[0].numel(), weight.shape[0] // groups
            if positions * (width + out) < width * out:
                values["weight"] = self._gram(a, g)
            else:
                rows = self._direct(a, g)
                values["weight"] = rows.flatten(2).square().sum((0, 2))
                if rows.numel() <= KEEP:
                    kept["weight"] = rows
        return values, kept

    def weighted_sum(
        self, a: Tensor, g: Tensor, weights: dict[str, Tensor], kept: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if "bias" in self.names:
            out["bias"] = weights["bias"] @ g.flatten(2).sum(2)
        if "weight" in self.names:
            if "weight" in kept:
                out["weight"] = self._shaped(torch.matmul(weights["weight"], kept["weight"].flatten(2)), ())
            else:
                scaled = g * weights["weight"].view(-1, *(1,) * (g.dim() - 1))
                out["weight"] = self._aggregated(a, scaled)
        return out

    def _aggregated(self, a: Tensor, g: Tensor) -> Tensor:
        """Σ_i of the batch's weight gradients by the backend's own convolution."""
        padded, g = self._planes(a, g)
        _, stride, dilation = self._geometry()
        weight = self.module.weight.detach()
        plane = weight if weight.dim() == 4 else weight.unsqueeze(2)
        _, total, _ = torch.ops.aten.convolution_backward(
            g, padded, plane, None, stride, (0, 0), dilation, False, (0, 0), self.module.groups, (False, True, False)
        )
        return total.view(weight.shape)

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], kept: dict[str, Tensor]) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if "weight" in self.names:
            moved = self.module._conv_forward(a, centre["weight"], None)
            out["weight"] = (moved * g).flatten(1).sum(1)
        if "bias" in self.names:
            out["bias"] = g.flatten(2).sum(2) @ centre["bias"]
        return out
