"""Training a head on features of a frozen rest that are computed once, against training it in the whole model."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.records import Examples
from private_learning.tasks import Task, TaskDataset, load
from private_learning.tasks.registry import load_part
from private_learning.training import LocalTraining, weights_of
from private_learning.training.features import Features, NoFeatures, reading
from study_protocol.randomness.source import SeededRandomness
from tests.factories.parts import CNN, Fixed, backbone, images
from tests.factories.settings import settings


def head_task(folder: Path) -> Task:
    file = backbone(folder)
    return load_part(load("cnn", CNN), "cnn", "head", file.sha256, file.path)


def features_of(task: Task) -> Features:
    found = Features.of(task)
    assert found is not None
    return found


def test_a_record_has_the_same_features_with_any_companions(tmp_path: Path) -> None:
    features = features_of(head_task(tmp_path))
    inputs = head_task(tmp_path).inputs(images(70))
    together = features.of_inputs(inputs)
    for rows in ([3], [69, 3], [*range(3, 60)]):
        assert torch.equal(features.of_inputs(inputs[rows]), together[rows])


def test_they_are_what_the_head_is_given_in_the_whole_model(tmp_path: Path) -> None:
    task = head_task(tmp_path)
    model, inputs = task.model(), task.inputs(images(9))
    assert isinstance(model, nn.Sequential)
    torch.testing.assert_close(features_of(task).of_inputs(inputs), model[:7](inputs).detach())


def test_a_record_that_was_read_before_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = features_of(head_task(tmp_path)).task()
    first = task.inputs(images(20))
    passes: list[bool] = []
    computed = Features._computed
    monkeypatch.setattr(
        Features, "_computed", lambda self, given: passes.append(bool(given.any())) or computed(self, given)
    )
    assert torch.equal(task.inputs(images(20)), first)
    assert passes == []
    assert torch.equal(task.inputs(images(21))[:20], first)
    # Zeros, to see whether values are read; then the new record.
    assert passes == [False, True]


@pytest.mark.parametrize("scheme", ["parallel", "client"])
def test_an_update_is_that_of_the_whole_model_up_to_rounding(tmp_path: Path, scheme: str) -> None:
    task = head_task(tmp_path)
    chosen = settings(
        scheme,
        training={"task": "cnn", "task_parameters": CNN, "algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.1},
        max_steps=30,
    )
    dataset = task.dataset(images(40))
    features = features_of(task)
    assert reading(features.task()) is task
    made = [
        LocalTraining(each, records, chosen, SeededRandomness(3, allow_insecure=True))
        for each, records in ((task, dataset), (features.task(), features.of_dataset(dataset)))
    ]
    assert made[0].spec == made[1].spec == {"7.bias": ((3,), "float32"), "7.weight": ((3, 4), "float32")}
    updates = [one.update(weights_of(task.model()), None) for one in made]
    for name, whole in updates[0].items():
        assert np.abs(whole).max() > 1e-3
        # Noise is drawn on one grid: where a sum lies near the middle of two points it may be rounded to the other.
        np.testing.assert_allclose(updates[1][name], whole, rtol=0, atol=1e-4 * float(np.abs(whole).max()))


def test_rows_of_patients_stay_together(tmp_path: Path) -> None:
    task = head_task(tmp_path)
    rows = task.dataset(images(12))
    grouped = TaskDataset(rows.inputs, rows.targets, tuple(f"p{row // 3}" for row in range(12))).by_patient(3)
    features = features_of(task)
    found = features.of_dataset(grouped)
    assert found.grouped
    assert isinstance(found.inputs, Tensor)
    assert torch.equal(found.inputs.flatten(0, 1), features.of_inputs(rows.inputs))


class _Odd(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, inputs: Tensor) -> Tensor:
        if self.way == "raises" and bool((inputs == ODD).any()):
            raise ArithmeticError("no such record")
        return inputs.masked_fill(inputs == ODD, torch.nan)


ODD = 1234.5


class _Fails(Fixed):
    def __init__(self, way: str) -> None:
        self.way = way

    def model(self) -> nn.Module:
        whole = super().model()
        assert isinstance(whole, nn.Sequential)
        return nn.Sequential(_Odd(self.way), *whole)


@pytest.mark.parametrize("way", ["raises", "gives NaN"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_record_that_the_frozen_rest_fails_on_adds_zero_and_changes_no_other(way: str, rows: int) -> None:
    draw = np.random.default_rng(5)
    inputs, labels = draw.normal(size=(40, 6)).astype(np.float32), draw.integers(3, size=40)
    inputs[11, 2] = ODD
    part = load_part(_Fails(way), "own", "head", None, None)
    whole = part.dataset(Examples(inputs, labels, tuple(f"p{row // rows}" for row in range(40)))).by_patient(rows)
    here, failed = features_of(part), 11 // rows
    found = here.of_dataset(whole)
    keep = [row for row in range(len(whole)) if row != failed]
    rest = replace(
        whole, inputs=whole.inputs[keep], targets=whole.targets[keep], patients=tuple(whole.patients[i] for i in keep)
    )
    alone = here.of_dataset(rest).inputs
    assert bool(torch.isnan(found.inputs[failed]).any())
    assert isinstance(alone, Tensor)
    assert torch.equal(found.inputs[keep], alone)
    chosen = settings(
        training={"task": "own", "task_parameters": {}, "rows_per_patient": rows}, expected_batch_size=len(whole)
    )
    training = LocalTraining(here.task(), found, chosen, SeededRandomness(3, allow_insecure=True))
    assert training.try_gradients(len(whole)) == 1
    assert training.try_gradients(failed) == 0
    assert all(np.isfinite(array).all() for array in training.update(weights_of(part.model()), None).values())


class _GoesOn(Fixed):
    head = "0"


class _Squeezed(Fixed):
    def model(self) -> nn.Module:
        return nn.Sequential(super().model(), nn.Identity(), nn.Softplus())


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Fixed().model(), nn.Linear(3, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.head(self.body(inputs)))


class _HeadTwice(Fixed):
    def model(self) -> nn.Module:
        return _Twice()


@pytest.mark.parametrize(
    ("task", "text"),
    [(_GoesOn(), "continues after"), (_Squeezed(), "continues after"), (_HeadTwice(), "call its head once")],
    ids=["first layer", "something after the head", "the head twice"],
)
def test_a_model_that_cannot_be_cut_before_its_head_says_so(task: Task, text: str) -> None:
    part = load_part(task, "own", "head", None, None)
    rows = Examples(np.ones((4, 6), np.float32), np.array([0, 1, 2, 0]), tuple("abcd"))
    with pytest.raises(NoFeatures, match=text):
        features_of(part).require(part.dataset(rows))


def test_other_parts_have_no_features(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    for trainable in ("lora:2", ("7.*",)):
        assert Features.of(load_part(load("cnn", CNN), "cnn", trainable, file.sha256, file.path)) is None
    assert Features.of(load("cnn", CNN)) is None


def test_a_task_on_features_goes_to_another_process(tmp_path: Path) -> None:
    task = features_of(head_task(tmp_path)).task()
    again = pickle.loads(pickle.dumps(task))
    assert torch.equal(again.inputs(images(5)), task.inputs(images(5)))
    assert weights_of(again.model()).keys() == {"7.weight", "7.bias"}
