"""Linear models of many clients at once: batches row by row, and gradients against autograd for single records."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from private_learning.gradients.clipping import SAFETY
from private_learning.gradients.losses import signal_of
from private_learning.tasks import TaskDataset, load
from private_learning.training.gradients import poisson_batch
from simulation.backends import linear
from simulation.backends.linear import ClientBatches, LinearRecords, Stacked, blocks
from study_protocol.randomness.source import SeededSource
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS

TASK = load("logistic-regression", TASK_PARAMETERS)
ROWS = [np.array([3, 1, 7]), np.array([0]), np.array([9, 2, 4, 5])]


def data() -> TaskDataset:
    return TASK.dataset(records(12))


def linear_records() -> LinearRecords:
    signal = signal_of(TASK.loss)
    assert signal is not None
    return LinearRecords(data(), signal)


def models() -> Stacked:
    stacked = Stacked(torch.randn(1, 2, generator=torch.Generator().manual_seed(1)), torch.zeros(1), len(ROWS))
    with torch.no_grad():
        for place in range(len(ROWS)):
            stacked.weight[place] += place
            stacked.bias[place] -= place / 2
    return stacked


def test_whole_batches_are_padded_to_the_longest_client() -> None:
    batches = ClientBatches.whole(ROWS)
    assert batches.rows.shape == batches.counts.shape == (3, 4)
    assert batches.sizes.tolist() == [3, 1, 4]
    for place, rows in enumerate(ROWS):
        assert batches.rows[place][batches.counts[place]].tolist() == rows.tolist()


def test_poisson_batches_are_the_clients_own_rows_by_one_stream_of_coins() -> None:
    batches = ClientBatches.poisson(ROWS, 0.5, SeededSource(3, allow_insecure=True))
    sampled = set(poisson_batch(8, 0.5, source=SeededSource(3, allow_insecure=True)).tolist())
    flat = np.concatenate(ROWS)
    assert 0 < len(sampled) < 8
    starts = [0, 3, 4]
    for place, (start, rows) in enumerate(zip(starts, ROWS, strict=True)):
        expected = [int(flat[start + offset]) for offset in range(len(rows)) if start + offset in sampled]
        assert batches.rows[place][batches.counts[place]].tolist() == expected


@pytest.mark.parametrize("clip_norm", [None, 0.3])
def test_sums_and_norms_are_those_of_one_backward_for_each_record(clip_norm: float | None) -> None:
    stacked, batches, dataset = models(), ClientBatches.whole(ROWS), data()
    summed = linear_records().gradients(stacked, batches, clip_norm)
    for place, rows in enumerate(ROWS):
        weight = stacked.weight[place].detach().double().requires_grad_()
        bias = stacked.bias[place].detach().double().requires_grad_()
        total = [torch.zeros_like(weight), torch.zeros_like(bias)]
        for column, row in enumerate(rows):
            outputs = dataset.inputs[int(row) : int(row) + 1].double() @ weight.T + bias
            each = torch.autograd.grad(
                TASK.loss(outputs, dataset.targets[int(row) : int(row) + 1]).sum(), [weight, bias]
            )
            norm = torch.sqrt(sum((g.square().sum() for g in each), torch.zeros((), dtype=torch.float64)))
            torch.testing.assert_close(summed.norms[place, column], norm, rtol=1e-9, atol=1e-12)
            factor = 1.0 if clip_norm is None else min(1.0, clip_norm * SAFETY[torch.float32] / float(norm))
            total = [t + factor * g for t, g in zip(total, each, strict=True)]
        torch.testing.assert_close(summed.weight[place], total[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(summed.bias[place], total[1], rtol=1e-9, atol=1e-12)
        assert not summed.norms[place, len(rows) :].any()
    torch.testing.assert_close(linear_records().norms(stacked, batches), summed.norms, rtol=1e-12, atol=1e-15)


def test_blocks_hold_every_client_once_and_no_more_numbers_than_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "GATHERED", 100)
    sizes = np.random.default_rng(5).integers(1, 9, 60)
    clients = [np.arange(size) for size in sizes]
    slices = blocks(clients, 4)
    assert [place for part in slices for place in range(part.start, part.stop)] == list(range(60))
    for part in slices:
        members = sizes[part]
        assert len(members) == 1 or len(members) * members.max() * 4 <= 100
    assert blocks([], 4) == []
    # One client that is larger than the room is a block by itself.
    assert blocks([np.arange(90)], 4) == [slice(0, 1)]
