"""Generated records: the same everywhere, of the right shapes, and of kinds that show what they should show."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.generated import (
    ExampleMakers,
    Shapes,
    inputs_of,
    max_records,
    outputs_like,
    targets_of,
)

LINEAR = nn.Linear(3, 2)


def shapes(inputs: torch.dtype, targets: torch.dtype = torch.int64, *sizes: int) -> Shapes:
    return Shapes(torch.Size([3]), inputs, torch.Size(sizes), targets)


def test_every_hospital_generates_the_same_records() -> None:
    for dtype in (torch.float32, torch.uint8, torch.int64):
        first, second = (list(inputs_of(shapes(dtype), 8, LINEAR)) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert all(kind.shape == (8, 3) and kind.dtype == dtype for kind in first)
    first_targets, second_targets = (list(targets_of(shapes(torch.float32), 8, 4, ExampleMakers())) for _ in range(2))
    assert [name for name, _ in first_targets] == [name for name, _ in second_targets]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(first_targets, second_targets, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
def test_no_kind_of_inputs_is_the_same_for_all_records(dtype: torch.dtype) -> None:
    for kind in inputs_of(shapes(dtype), 8, LINEAR):
        assert len(torch.unique(kind, dim=0)) > 1


def test_codes_are_ones_that_every_table_has() -> None:
    model = nn.Sequential(nn.Embedding(50, 2), nn.EmbeddingBag(4, 2), nn.Embedding(9, 2))
    kinds = list(inputs_of(shapes(torch.int64), 200, model))
    assert {int(kind.max()) for kind in kinds} == {3, 1}
    assert min(int(kind.min()) for kind in kinds) == 0


def test_classes_are_below_their_number_and_one_kind_has_all() -> None:
    kinds = dict(targets_of(shapes(torch.float32), 100, 4, ExampleMakers()))
    assert set(kinds["all classes"].tolist()) == {0, 1, 2, 3}
    assert kinds["a rare class"].sum() == 1
    assert set(kinds["two classes"].tolist()) == {0, 1}
    assert all(target.dtype == torch.int64 for target in kinds.values())


def test_targets_of_several_numbers_may_be_missing_or_times_with_events() -> None:
    kinds = dict(targets_of(shapes(torch.float32, torch.float32, 3), 50, 2, ExampleMakers()))
    missing = torch.isnan(kinds["targets that are partly missing"])
    assert missing.any()
    assert not missing[:, 0].any()
    times = kinds["times with events"]
    assert set(times[:, 1].tolist()) == {0.0, 1.0}
    assert float(kinds["numbers between 0 and 1"].min()) >= 0
    single = dict(targets_of(shapes(torch.float32, torch.float32), 50, 2, ExampleMakers()))
    assert "times with events" not in single
    assert set(single["signs"].tolist()) == {-1.0, 1.0}


def test_a_loss_of_single_rows_gets_targets_without_the_axis_of_rows() -> None:
    for _, values in targets_of(shapes(torch.float32, torch.float32, 4, 2), 6, 2, ExampleMakers(), rows=1):
        assert values.shape == (6, 2)


def test_the_task_s_own_targets_come_first_and_once_equal() -> None:
    def make(count: int, draw: np.random.Generator) -> Tensor:
        return torch.as_tensor(draw.integers(5, 9, count))

    (first, mixed), (second, equal), *_ = targets_of(shapes(torch.float32), 20, 2, ExampleMakers(targets=make))
    assert first == "targets of the task's example_targets"
    assert second == "equal targets of the task's example_targets"
    assert set(mixed.tolist()) <= {5, 6, 7, 8}
    assert len(set(mixed.tolist())) > 1
    assert equal.tolist() == [int(mixed[0])] * 20


def test_outputs_of_several_scales_begin_with_the_model_s_own() -> None:
    outputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    kinds = list(outputs_like(outputs))
    assert torch.equal(kinds[0], outputs)
    assert all(kind.shape == outputs.shape for kind in kinds)
    torch.testing.assert_close(kinds[-1].sum(1), torch.ones(6))
    assert any(not kind.any() for kind in kinds)
    assert float(max(kind.abs().max() for kind in kinds)) > 8


def test_a_loss_is_tried_on_few_large_records_and_on_two_at_least() -> None:
    assert max_records(3, 130) == 130
    assert max_records(1 << 18, 130) == 4
    assert max_records(1 << 40, 130) == 2
    assert max_records(0, 8) == 8
