"""A patient of several rows is one record: its gradient is the mean of its rows', clipped as one."""

import logging
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients, UnsupportedLayer
from private_learning.records import DataError, Examples, Table
from private_learning.tasks import Task, TaskDataset, load
from private_learning.tasks.dataset import ABSENT
from private_learning.training import LocalTraining
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings

SILENT = 1e-7
ROWS = {"a": 3, "b": 1, "c": 2, "d": 5, "e": 1}
IMAGES = {"height": 6, "width": 5, "classes": 3, "filters": 2, "hidden": 4}
TABLE = {"label": "ill", "classes": 3, "column.x": "-3..3", "column.y": "-3..3", "hidden": 4}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def names() -> list[str]:
    """Every patient's rows, mixed with the others'."""
    listed = [name for name, count in ROWS.items() for _ in range(count)]
    return [listed[i] for i in np.random.default_rng(5).permutation(len(listed))]


def rows_of(task_name: str) -> tuple[Task, TaskDataset]:
    draw, count = np.random.default_rng(4), sum(ROWS.values())
    if task_name == "cnn":
        task = load("cnn", IMAGES)
        return task, task.dataset(Examples.of(draw.uniform(0, 255, (count, 6, 5)), draw.integers(0, 3, count), names()))
    task = load("mlp", TABLE)
    columns = {"x": draw.normal(size=count), "y": draw.normal(size=count), "ill": draw.integers(0, 3, count)}
    return task, task.dataset(Table.of({**columns, "who": names()}, patient_column="who"))


def model_of(task: Task, seed: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    return task.model().double().eval()


def patient_gradients(task: Task, rows: TaskDataset, model: nn.Module, most: int) -> dict[str, dict[str, Tensor]]:
    """One backward per row; the mean over each patient's first rows."""
    found: dict[str, dict[str, Tensor]] = {}
    for patient in dict.fromkeys(rows.patients):
        own = [i for i, other in enumerate(rows.patients) if other == patient][:most]
        total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for i in own:
            model.zero_grad()
            task.loss(model(rows.inputs[i : i + 1].double()), rows.targets[i : i + 1]).sum().backward()
            for name, p in model.named_parameters():
                assert p.grad is not None
                total[name] += p.grad / len(own)
        found[patient] = total
    return found


@pytest.mark.parametrize(("task_name", "method"), [("mlp", "layerwise"), ("cnn", "layerwise")])
@pytest.mark.parametrize("most", [2, 9])
def test_a_patients_gradient_is_the_mean_of_its_rows_and_is_clipped_as_one(
    task_name: str, method: str, most: int
) -> None:
    task, rows = rows_of(task_name)
    model = model_of(task)
    slow = patient_gradients(task, rows, model, most)
    together = rows.by_patient(most)
    assert set(together.patients) == set(ROWS)
    engine = PerRecordGradients(RowsOfPatients(model), LossOfPatients(task.loss))
    norms = [math.sqrt(sum(float(g.square().sum()) for g in slow[who].values())) for who in together.patients]
    # Some are clipped, some are not.
    bound = sorted(norms)[2] * 0.99
    part = engine.clipped_sum(together.inputs.double(), together.targets, clip_norm=bound)
    assert engine.method == method
    np.testing.assert_allclose(part.norms.numpy(), norms, rtol=1e-9)
    for name, summed in part.gradients.items():
        expected = sum(
            slow[who][name.removeprefix("model.")] * min(1.0, bound / norm)
            for who, norm in zip(together.patients, norms, strict=True)
        )
        np.testing.assert_allclose(summed.numpy(), expected.numpy(), rtol=1e-9, atol=1e-11)


def study(task_name: str, clip_norm: float, **training: object) -> StudySettings:
    how = {"task": task_name, "task_parameters": IMAGES if task_name == "cnn" else TABLE, "rows_per_patient": 5}
    return settings(
        training=how | training,
        clip_norm=clip_norm,
        sampling_rate=1.0,
        noise_multiplier=SILENT,
        expected_batch_size=1.0,
    )


@pytest.mark.quick("a-mlp", "b-mlp", "d-mlp")
@pytest.mark.parametrize("task_name", ["mlp", "cnn"])
@pytest.mark.parametrize("gone", list(ROWS))
def test_a_patient_with_all_rows_moves_the_sum_by_at_most_the_clip_norm(task_name: str, gone: str) -> None:
    task, rows = rows_of(task_name)
    weights = weights_of(model_of(task).float())

    def update(dataset: TaskDataset) -> np.ndarray:
        chosen = study(task_name, 0.05)
        local = LocalTraining(task, dataset.by_patient(5), chosen, SeededRandomness(1, allow_insecure=True))
        return np.concatenate([a.ravel().astype(np.float64) for a in local.update(weights, None).values()])

    moved = float(np.linalg.norm(update(rows) - update(rows.without([gone]))))
    # All gradients are longer than the bound, so removing a patient moves the sum by exactly it.
    assert 0.99 * 0.05 < moved <= 0.05 * (1 + 1e-5)


def test_training_on_patients_descends_along_their_mean() -> None:
    task, rows = rows_of("mlp")
    model = model_of(task).float()
    weights = weights_of(model)
    how = {"algorithm": "fedavg", "local_steps": 1, "learning_rate": 0.5}
    local = LocalTraining(
        task, rows.by_patient(5), study("mlp", 100.0, **how), SeededRandomness(1, allow_insecure=True)
    )
    update = local.update(weights, None)
    slow = patient_gradients(task, rows, model.double(), 5)
    for name, array in update.items():
        np.testing.assert_allclose(array, -0.5 * sum(g[name] for g in slow.values()), rtol=1e-3, atol=1e-4)


def test_plain_training_counts_a_patient_once() -> None:
    task, rows = rows_of("mlp")
    model = model_of(task).float()
    limit = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}
    chosen = study("mlp", 1e6).model_dump(mode="json")
    chosen["privacy"] |= {"scheme": "client", "limits": [limit]}
    local = LocalTraining(
        task, rows.by_patient(5), StudySettings.model_validate(chosen), SeededRandomness(1, allow_insecure=True)
    )
    found = local.update(weights_of(model), None)
    slow = patient_gradients(task, rows, model.double(), 5)
    for name, array in found.items():
        np.testing.assert_allclose(array, sum(g[name] for g in slow.values()), rtol=1e-4, atol=1e-6)


def test_the_shape_follows_from_the_setting_and_not_from_who_has_how_many_rows() -> None:
    _, rows = rows_of("mlp")
    alone = TaskDataset(rows.inputs[:2], rows.targets[:2], ("x", "y"))
    for dataset in (rows, alone, rows.without(["d"]), rows.without(["a", "c", "d"])):
        grouped = dataset.by_patient(7)
        assert grouped.grouped
        assert grouped.inputs.shape[1:] == (7, *rows.inputs.shape[1:])
        assert grouped.targets.shape == (len(grouped), 7)
        assert grouped.longest == max(map(list(dataset.patients).count, dataset.patients))
    single = alone.by_patient(1)
    assert not single.grouped
    assert single.inputs.shape == alone.inputs.shape
    assert single.longest == 1


def test_rows_beyond_the_public_cap_are_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    _, rows = rows_of("mlp")
    cut = rows.by_patient(2)
    assert "2 patients have more than 2 rows" in caplog.text
    counts = dict(zip(cut.patients, (cut.targets != ABSENT).sum(1).tolist(), strict=True))
    assert counts == {name: min(count, 2) for name, count in ROWS.items()}
    for place, patient in enumerate(cut.patients):
        first = [i for i, other in enumerate(rows.patients) if other == patient][:2]
        assert torch.equal(cut.inputs[place, : len(first)], rows.inputs[first])


def test_several_rows_are_refused_where_the_study_knows_of_none() -> None:
    task, rows = rows_of("mlp")
    with pytest.raises(DataError, match="7 records belong to a patient who has another"):
        rows.by_patient(1)
    with pytest.raises(DataError, match="rows_per_patient"):
        LocalTraining(task, rows, settings(), SeededRandomness(1, allow_insecure=True))
    with pytest.raises(ValueError, match="at least 1"):
        rows.by_patient(0)


def test_excluded_patients_leave_with_all_their_rows() -> None:
    _, rows = rows_of("mlp")
    assert "d" not in rows.without(["d"]).patients
    assert set(rows.by_patient(5).without(["d"]).patients) == set(ROWS) - {"d"}


def test_a_loss_of_rows_that_looks_at_other_rows_is_refused() -> None:
    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        weight = (targets == 0).sum() / targets.sum().clamp_min(1)
        return nn.functional.binary_cross_entropy_with_logits(
            outputs[:, 0], targets, reduction="none", pos_weight=weight
        )

    engine = PerRecordGradients(RowsOfPatients(nn.Linear(2, 1)), LossOfPatients(weighted))
    with pytest.raises(UnsupportedLayer, match="other records of its batch"):
        engine.norms(torch.ones(5, 3, 2), torch.ones(5, 3))


def _per_row(kind: str, outputs: Tensor, targets: Tensor) -> Tensor:
    if kind == "labels":
        known = ~torch.isnan(targets)
        return torch.where(known, outputs - torch.where(known, targets, 0.0), 0.0).square().sum(1)
    if kind == "masks":
        return (outputs.view(-1, 2, 2) - targets).square().sum((1, 2))
    return (outputs.squeeze(1) - targets).square()


@pytest.mark.parametrize(("kind", "shape"), [("numbers", ()), ("labels", (2,)), ("masks", (2, 2))])
def test_targets_of_every_kind_have_the_mean_of_their_rows_gradients(kind: str, shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(6)
    count, outputs = sum(ROWS.values()), math.prod(shape)
    inputs = torch.randn(count, 3, generator=draw, dtype=torch.float64)
    targets = torch.randint(0, 2, (count, *shape), generator=draw)
    if kind != "masks":
        targets = targets.double()
    if kind == "labels":
        targets[::3, 1] = math.nan
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).double()
    together = TaskDataset(inputs, targets, tuple(names())).by_patient(9)
    loss = partial(_per_row, kind)
    norms = PerRecordGradients(RowsOfPatients(model), LossOfPatients(loss)).norms(together.inputs, together.targets)
    listed = names()
    for patient, norm in zip(together.patients, norms.tolist(), strict=True):
        own = [i for i, other in enumerate(listed) if other == patient]
        mean = loss(model(inputs[own]), targets[own]).mean()
        true = torch.autograd.grad(mean, list(model.parameters()))
        assert norm == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in true)), rel=1e-9)
