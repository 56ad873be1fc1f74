"""Plain gradients of Poisson batches against autograd for single records, and the clipped update of a client."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.tasks import TaskDataset
from private_learning.training.gradients import poisson_batch
from private_learning.training.plain import PlainGradients
from study_protocol.randomness.source import Purpose, RoundRandomness, SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.settings import limit, settings

RECORDS, BATCH = 12, 5.0


def study(**privacy: Any) -> StudySettings:
    chosen = {"limits": [limit("client", epsilon=900.0)], "expected_batch_size": BATCH, "sampling_rate": 0.5}
    return settings("client", **{**chosen, **privacy})


def randomness(seed: int = 3) -> RoundRandomness:
    return SeededRandomness(seed, allow_insecure=True).in_round("mercy", 1)


def records() -> TaskDataset:
    draw = torch.Generator().manual_seed(1)
    names = tuple(f"p{row}" for row in range(RECORDS))
    return TaskDataset(torch.randn(RECORDS, 3, generator=draw), torch.randn(RECORDS, generator=draw), names)


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square()


def plain(loss: Any = squares, dataset: TaskDataset | None = None, **privacy: Any) -> PlainGradients:
    torch.manual_seed(2)
    return PlainGradients(nn.Linear(3, 1), loss, dataset or records(), study(**privacy), randomness())


def mean_over(gradients: PlainGradients, rows: Any, dataset: TaskDataset) -> dict[str, Tensor]:
    """One backward for each record, over the public denominator."""
    model = gradients._model
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for row in rows:
        loss = squares(model(dataset.inputs[row : row + 1]), dataset.targets[row : row + 1]).sum()
        for (name, _), value in zip(
            model.named_parameters(), torch.autograd.grad(loss, [*model.parameters()]), strict=True
        ):
            total[name] += value / BATCH
    return total


def test_a_step_is_the_mean_over_its_own_poisson_batch() -> None:
    gradients, dataset = plain(), records()
    for step in (1, 2):
        rows = poisson_batch(RECORDS, 0.5, source=randomness().of(Purpose.SAMPLE, step=step))
        assert 0 < len(rows) < RECORDS
        expected = mean_over(gradients, rows, dataset)
        for name, value in gradients.at(step).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)
    assert gradients.failed == 0
    assert gradients.accounts() == (None, None)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_a_record_without_a_finite_gradient_adds_zero_and_is_counted(bad: float) -> None:
    dataset = records()
    dataset.inputs[4, 0] = bad
    gradients = plain(dataset=dataset, sampling_rate=1.0)
    expected = mean_over(gradients, [row for row in range(RECORDS) if row != 4], dataset)
    for name, value in gradients.at(1).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)
    assert gradients.failed == 1


def test_a_loss_that_raises_for_one_record_leaves_the_others() -> None:
    dataset = records()
    dataset.targets[2] = 1000.0

    def picky(outputs: Tensor, targets: Tensor) -> Tensor:
        if bool((targets > 500).any()):
            raise ArithmeticError("no such patient")
        return squares(outputs, targets)

    gradients = plain(picky, dataset, sampling_rate=1.0)
    expected = mean_over(gradients, [row for row in range(RECORDS) if row != 2], dataset)
    for name, value in gradients.at(1).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


def test_without_any_sound_record_the_step_is_zero() -> None:
    gradients = plain(lambda outputs, targets: outputs[:, 0] * math.nan, sampling_rate=1.0)
    assert not any(value.any() for value in gradients.at(1).values())
    assert gradients.failed == RECORDS


@pytest.mark.parametrize("length", [0.5, 40.0])
def test_an_update_is_clipped_and_its_distance_is_charged_no_less_than_its_norm(length: float) -> None:
    privacy = study(clip_norm=2.0).privacy
    update = {"a": np.full(3, length / 2, np.float32), "b": np.full((1, 1), length / 2, np.float32)}
    contribution = plain(clip_norm=2.0).contribution(update)
    norm = math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in contribution.update.values()))
    assert norm <= min(length, 2.0)
    assert norm == pytest.approx(min(length, 2.0), rel=1e-5)
    assert contribution.client_distance is not None
    # On the scale of the noise, which leaves room for its grid.
    noise = privacy.noise_of_updates(4)
    assert noise is not None
    assert norm / noise.sensitivity <= contribution.client_distance / 2.0 <= 1.0


def test_an_update_that_is_not_finite_counts_as_zero_and_is_charged_in_full(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "private_learning")
    contribution = plain(clip_norm=2.0).contribution({"a": np.array([1.0, np.nan], np.float32)})
    assert contribution.update["a"].tolist() == [0.0, 0.0]
    assert contribution.client_distance == pytest.approx(2.0, rel=1e-3)
    assert "round 1: the update is not finite" in caplog.text


def test_where_no_client_is_protected_there_is_no_distance() -> None:
    update = {"a": np.ones(3, np.float32)}
    gradients = PlainGradients(nn.Linear(3, 1), squares, records(), settings("parallel"), randomness())
    assert gradients.contribution(update).client_distance is None
