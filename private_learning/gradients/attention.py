"""Per-record gradients of nn.MultiheadAttention.

Its projections are affine maps of positions, and attention itself has no parameters. The rule takes self-attention,
attention to a memory, and separate keys and values. It takes masks of both kinds, with or without returned weights,
and records along the first axis or the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients.capture import Capture
from private_learning.gradients.composite import Affine, Composite
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.layers import Layer

_PACKED, _SEPARATE = "in_proj_weight", ("q_proj_weight", "k_proj_weight", "v_proj_weight")


class AttentionRule(Composite):
    """Run attention with its affine maps as layers.

    The maps are those of the call: one for query, key and value together, or one for each, with its own rows.
    """

    def __init__(self, name: str, module: Any, names: dict[str, str]) -> None:
        super().__init__(name, module, names)
        if module.bias_k is not None or module.bias_v is not None or module.add_zero_attn:
            raise NotLayerwise(f"{name!r} adds a position to its keys (add_bias_kv or add_zero_attn)")
        if type(module.out_proj) is not nn.modules.linear.NonDynamicallyQuantizableLinear:
            raise NotLayerwise(f"{name!r} has another layer in the place of its last projection")
        self._out = Affine(name, module, names, "out_proj.weight", "out_proj.bias")
        self._all = None if module.in_proj_weight is None else Affine(name, module, names, _PACKED, "in_proj_bias")
        self._q, self._k, self._v = (self._map(i, i + 1) for i in range(3))
        # Of a memory that is key and value at once.
        self._kv = None if module.in_proj_weight is None else self._map(1, 3)

    def _map(self, start: int, stop: int) -> Affine:
        """Return the projections number `start` to `stop`, of query, key and value."""
        width, whole = self.module.embed_dim, self.module.in_proj_weight is not None
        rows = slice(start * width, stop * width)
        weight = _PACKED if whole else _SEPARATE[start]
        row_slices = {"weight": rows, "bias": rows} if whole else {"bias": rows}
        return Affine(self.name, self.module, self.names, weight, "in_proj_bias", row_slices)

    @staticmethod
    def expected(module: Any) -> set[str]:
        return {_PACKED, *_SEPARATE, "in_proj_bias", "out_proj.weight", "out_proj.bias"} | (
            # Registered only where there are some. Otherwise they are plain attributes that are None.
            {name for name in ("bias_k", "bias_v") if name in module._parameters}
        )

    @property
    def parts(self) -> Sequence[Layer]:
        return [part for part in (self._all, self._q, self._k, self._v, self._kv, self._out) if part is not None]

    def forward(
        self,
        capture: Capture,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the result of nn.MultiheadAttention with the same arguments."""
        self._require_positions(query, key, value)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal needs an attn_mask")
        heads = self._heads(capture, query, key, value)
        # A mask that the caller declares causal need not be examined where no other result is needed.
        is_causal_alone = is_causal and key_padding_mask is None and not need_weights
        mask = None if is_causal_alone else self._mask(heads, key_padding_mask, attn_mask)
        dropout = self.module.dropout if self.module.training else 0.0
        if need_weights:
            mixed, weights = _weighed(*heads, mask, dropout)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            mixed = functional.scaled_dot_product_attention(*heads, mask, dropout, is_causal_alone)
            weights = None
        return self._laid_out(capture.call(self._out, mixed.transpose(1, 2).flatten(2))), weights

    def _require_positions(self, *inputs: Tensor) -> None:
        if any(x.is_nested or x.dim() != 3 for x in inputs):
            raise NotLayerwise(f"{self.name!r} is given inputs that are not (records, positions, features)")

    def _laid_out(self, out: Tensor) -> Tensor:
        """Return the output with the axes of the module's own, and in training with its layout in memory."""
        if not self.module.batch_first:
            return out.transpose(0, 1)
        # Dropout draws in the order of memory: in training the output lies there as the module's own does.
        return out.transpose(0, 1).contiguous().transpose(0, 1) if self.module.training else out

    def _heads(self, capture: Capture, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value, each (batch, heads, positions, width of a head)."""
        first = self.module.batch_first
        # One tensor stays one: what is the same is projected together.
        turned = {id(x): x if first else x.transpose(0, 1) for x in (query, key, value)}
        q, k, v = (turned[id(x)] for x in (query, key, value))
        if self._all is not None and query is key is value:
            projected = capture.call(self._all, q).chunk(3, -1)
        elif self._kv is not None and key is value:
            projected = (capture.call(self._q, q), *capture.call(self._kv, k).chunk(2, -1))
        else:
            projected = tuple(capture.call(p, x) for p, x in ((self._q, q), (self._k, k), (self._v, v)))
        q, k, v = (torch.unflatten(x, -1, (self.module.num_heads, -1)).transpose(1, 2) for x in projected)
        return q, k, v

    def _mask(self, heads: tuple[Tensor, Tensor, Tensor], padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Return the mask to add to the scores of shape (batch, heads, queries, keys), or None without a mask."""
        q, k, _ = heads
        if mask is not None:
            mask = self._added(mask, q.dtype)
            mask = mask.view(len(q), -1, *mask.shape[1:]) if mask.dim() == 3 and len(mask) > 1 else mask
        if padding is None:
            return mask
        padding = self._added(padding, q.dtype).view(len(k), 1, 1, k.shape[2])
        return padding if mask is None else mask + padding

    def _added(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        if mask.dtype == torch.bool:
            return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
        if not mask.is_floating_point():
            raise NotLayerwise(f"{self.name!r} is given a mask that is neither of truth values nor of numbers to add")
        return mask


def _weighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> tuple[Tensor, Tensor]:
    """Return (mixed values, weights), both by batch and head."""
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    if dropout > 0:
        weights = functional.dropout(weights, dropout)
    return weights @ v, weights
