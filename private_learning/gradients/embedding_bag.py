"""Per-record gradients of nn.EmbeddingBag on (records, tokens): every mode, token weights and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from private_learning.gradients.capture import Capture
from private_learning.gradients.composite import Composite
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.layers import EmbeddingLayer, Layer, LayerCache, added_up, distinct, squared_norms


class BagSums(Layer):
    """Sums or means of rows: a record's gradient is its output's, times the weight of each token.

    ‖Σ_t w_t e_t gᵀ‖² = ‖g‖² Σ_v c_v², where c_v is the sum of w over the places of token v.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self._of(x, self.parameter("weight"))

    def _of(self, x: Tensor, weight: Tensor) -> Tensor:
        module = self.module
        return functional.embedding_bag(x, weight, mode=module.mode, padding_idx=module.padding_idx)

    def signal(self, x: Tensor, g: Tensor) -> Tensor:
        raise NotLayerwise(f"{self.name!r} is given tokens that have a gradient")

    def _token_weights(self, a: Tensor, g: Tensor) -> Tensor:
        """Return (batch, tokens) weights of the tokens, 0 for padding."""
        padding = self.module.padding_idx
        counts = torch.ones_like(a, dtype=g.dtype) if padding is None else (a != padding).to(g.dtype)
        return counts if self.module.mode == "sum" else counts / counts.sum(1, keepdim=True).clamp_min(1)

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        rows = self._token_weights(a, g).unsqueeze(2) * g.unsqueeze(1)
        out = g.new_zeros(len(a), *self.module.weight.shape)
        record = torch.arange(len(a), device=a.device).unsqueeze(1).expand_as(a)
        return {"weight": out.index_put_((record, a), rows, accumulate=True)}

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], LayerCache]:
        size = self.module.num_embeddings
        numbered = a + size * torch.arange(len(a), device=a.device).unsqueeze(1)
        pairs, inverse = distinct(numbered)
        # In float64, as a token may be there very often. Once, because the sum over the records takes the same numbers.
        counts = added_up(self._token_weights(a, g).flatten(), inverse.flatten(), len(pairs))
        count_squares = added_up(counts.square(), pairs // size, len(a))
        return {"weight": squared_norms(g) * count_squares}, {"weight": [pairs, counts]}

    def weighted_sum(self, a: Tensor, g: Tensor, weights: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        pairs, counts = cache["weight"]
        size = self.module.num_embeddings
        rows = (g * weights["weight"].unsqueeze(1))[pairs // size] * counts.unsqueeze(1)
        out = torch.zeros_like(self.parameter("weight"), dtype=g.dtype)
        return {"weight": out.index_add_(0, pairs % size, rows)}

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        pairs, counts = cache["weight"]
        size = self.module.num_embeddings
        products = (g[pairs // size] * centre["weight"][pairs % size]).sum(1) * counts
        return {"weight": added_up(products, pairs // size, len(a))}


class Bag(Composite):
    """Sums and means have a layer of their own. In all other modes autograd works on the looked-up rows."""

    def __init__(self, name: str, module: Any, names: dict[str, str]) -> None:
        super().__init__(name, module, names)
        self._sums, self._rows = BagSums(name, module, names), EmbeddingLayer(name, module, names)

    @staticmethod
    def expected(module: Any) -> set[str]:
        return {"weight"}

    @property
    def parts(self) -> Sequence[Layer]:
        return self._sums, self._rows

    def forward(
        self, capture: Capture, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Return the result of nn.EmbeddingBag with the same arguments."""
        if input.dim() != 2 or offsets is not None:
            raise NotLayerwise(f"{self.name!r} is given bags by offsets: give it one row of tokens for each record")
        mode, padding = self.module.mode, self.module.padding_idx
        if mode != "max" and per_sample_weights is None:
            return capture.call(self._sums, input)
        rows = capture.call(self._rows, input)
        hidden = torch.zeros_like(input, dtype=torch.bool) if padding is None else input == padding
        if mode == "max":
            return _largest(rows, hidden)
        if per_sample_weights is None or mode != "sum":
            raise NotLayerwise(f"{self.name!r} takes weights for mode 'sum' alone")
        return (rows * per_sample_weights.masked_fill(hidden, 0.0).unsqueeze(2)).sum(1)


def _largest(rows: Tensor, hidden: Tensor) -> Tensor:
    """Return the (batch, width) largest entries of the rows that are not hidden, and zeros where all are hidden."""
    largest = rows.masked_fill(hidden.unsqueeze(2), -torch.inf).max(1).values
    return largest.masked_fill(hidden.all(1).unsqueeze(1), 0.0)
