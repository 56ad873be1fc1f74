"""Many linear models at once: the gradients of every client's records in closed form, in batched products.

The gradient of one record is an outer product: its norm is the product of two norms (Goodfellow 2015), so that no
gradient of a record is ever formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from private_learning.gradients.clipping import SAFETY
from private_learning.gradients.losses import Loss
from private_learning.tasks import TaskDataset
from private_learning.training.gradients import poisson_batch
from study_protocol.randomness.source import RandomSource

Rows = NDArray[np.int64]
# Numbers of records that a block of clients gathers at once: 64 MiB of float64.
GATHERED = 1 << 23
# What the hospital's own step clips to, so that float32 never passes the clip norm.
_WITHIN = SAFETY[torch.float32]


class Stacked(nn.Module):
    """The linear models of some clients, one behind the other: weight (clients, k, p), bias (clients, k)."""

    def __init__(self, weight: Tensor, bias: Tensor, clients: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.expand(clients, *weight.shape).clone())
        self.bias = nn.Parameter(bias.expand(clients, *bias.shape).clone())


@dataclass(frozen=True, repr=False)
class ClientBatches:
    """One batch of every client: rows (clients, m) of the data set, and which of them count."""

    rows: Tensor
    counts: Tensor

    @classmethod
    def poisson(cls, client_rows: Sequence[Rows], rate: float, source: RandomSource) -> ClientBatches:
        """Poisson batches from the clients' own rows, all coins from one stream."""
        sizes = np.array([len(rows) for rows in client_rows])
        flat = np.concatenate(client_rows)
        client = np.repeat(np.arange(len(client_rows)), sizes)
        sampled = poisson_batch(len(flat), rate, source=source)
        return cls._padded(flat[sampled], client[sampled], len(client_rows))

    @classmethod
    def whole(cls, client_rows: Sequence[Rows]) -> ClientBatches:
        """Every record of every client, in its own order."""
        client = np.repeat(np.arange(len(client_rows)), [len(rows) for rows in client_rows])
        return cls._padded(np.concatenate(client_rows), client, len(client_rows))

    @classmethod
    def _padded(cls, flat: Rows, client: Rows, clients: int) -> ClientBatches:
        counts = np.bincount(client, minlength=clients)
        width = max(1, int(counts.max(initial=0)))
        starts = np.cumsum(counts) - counts
        rows = np.zeros((clients, width), np.int64)
        rows[client, np.arange(len(flat)) - starts[client]] = flat
        return cls(torch.as_tensor(rows), torch.as_tensor(np.arange(width) < counts[:, None]))

    @property
    def sizes(self) -> Tensor:
        """(clients,) records in each batch."""
        return self.counts.sum(1)


@dataclass(frozen=True, repr=False)
class LinearGradientSums:
    """Gradients of a batch of every client, added up in float64: weight (clients, k, p), bias (clients, k).

    norms: (clients, m) of the records, before clipping. 0 where there is none.
    """

    weight: Tensor
    bias: Tensor
    norms: Tensor


@dataclass(frozen=True)
class LinearRecords:
    """Records under a linear layer, and the derivative of their loss in its outputs."""

    dataset: TaskDataset
    signal: Loss

    def gradients(self, models: Stacked, batches: ClientBatches, clip_norm: float | None) -> LinearGradientSums:
        """clip_norm: L2 bound on each record's gradient. None: it counts as it is."""
        x, signals = self._signals(models, batches)
        lengths = torch.sqrt(x.square().sum(2) + 1.0)
        norms = torch.sqrt(signals.square().sum(2)) * lengths
        if clip_norm is not None:
            factors = torch.clamp(clip_norm * _WITHIN / norms.clamp_min(torch.finfo(torch.float64).tiny), max=1.0)
            signals = signals * factors.unsqueeze(2)
        return LinearGradientSums(torch.bmm(signals.transpose(1, 2), x), signals.sum(1), norms)

    def norms(self, models: Stacked, batches: ClientBatches) -> Tensor:
        """(clients, m) gradient norms of the records."""
        x, signals = self._signals(models, batches)
        return torch.sqrt(signals.square().sum(2) * (x.square().sum(2) + 1.0))

    def _signals(self, models: Stacked, batches: ClientBatches) -> tuple[Tensor, Tensor]:
        """(inputs, derivatives of the losses by the outputs) of the records, float64."""
        clients, width = batches.rows.shape
        x = self.dataset.inputs[batches.rows].double()
        weight, bias = models.weight.detach().double(), models.bias.detach().double()
        outputs = torch.bmm(x, weight.transpose(1, 2)) + bias.unsqueeze(1)
        targets = self.dataset.targets[batches.rows].flatten(0, 1)
        signals = self.signal(outputs.reshape(clients * width, -1), targets).view(outputs.shape)
        return x, signals * batches.counts.unsqueeze(2)


def blocks(client_rows: Sequence[Rows], width: int) -> list[slice]:
    """Runs of clients whose records, `width` numbers each, are gathered together."""
    slices: list[slice] = []
    start, longest = 0, 0
    for place, rows in enumerate(client_rows):
        longest = max(longest, len(rows))
        if place > start and (place + 1 - start) * longest * width > GATHERED:
            slices.append(slice(start, place))
            start, longest = place, len(rows)
    return [*slices, slice(start, len(client_rows))] if client_rows else []
