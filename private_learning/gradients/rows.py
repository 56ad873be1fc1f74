"""Records of several rows, whose rows run through the model one beside the other: a record's gradient is their sum."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from private_learning.gradients.convolution import ConvLayer
from private_learning.gradients.layers import EmbeddingLayer, Layer, LinearLayer

# Positions are summed over, and rows are more of them.
_POSITIONS = (LinearLayer, EmbeddingLayer, ConvLayer)


class RowsOf(Layer):
    """Any layer: the gradients of single rows, added up. Inputs and signals: (batch, rows, ...)."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer.name, layer.module, layer.names)
        self._layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self._layer.forward(x)

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        each = self._layer.per_record(a.flatten(0, 1), g.flatten(0, 1))
        return {key: torch.unflatten(each[key], 0, a.shape[:2]).sum(1) for key in self.names}


def by_records(layer: Layer, a: Tensor, g: Tensor, rows: int) -> tuple[Layer, Tensor, Tensor]:
    """Return a use of batch · rows records as one of (batch, rows, ...), and the layer that takes it so."""
    if rows == 1:
        return layer, a, g
    a, g = torch.unflatten(a, 0, (-1, rows)), torch.unflatten(g, 0, (-1, rows))
    return (layer if isinstance(layer, _POSITIONS) else RowsOf(layer)), a, g


@runtime_checkable
class RowsBeside(Protocol):
    """A model whose layers see several rows of each record beside each other."""

    def rows_beside(self, inputs: Tensor) -> int:
        """Return how many rows lie beside each other, 1 for the records themselves."""
        ...


def rows_beside(model: nn.Module, inputs: Tensor) -> int:
    """Return how many rows of each record the model's layers see beside each other, 1 where it does not say."""
    return model.rows_beside(inputs) if isinstance(model, RowsBeside) else 1
