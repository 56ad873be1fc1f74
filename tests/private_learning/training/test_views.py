"""Views of records: what each change does, whose draws they are, and what a step makes of them."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from client_sdk.errors import ConfigurationError
from private_learning.gradients import PerRecordGradients, Slots
from private_learning.records import Examples
from private_learning.tasks import TaskDataset, load
from private_learning.training import LocalTraining
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from private_learning.training.views import Views, changed_by
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness, SeededSource
from study_protocol.study.augmentation import Augmentation
from tests.factories.settings import settings
from tests.private_learning.gradients.test_slots import At

IMAGES = {"height": 8, "width": 8, "channels": 1, "filters": 4, "hidden": 8, "classes": 3, "low": 0.0, "high": 1.0}
TASK = load("cnn", IMAGES)
EVERYTHING = {
    "shift": 2,
    "flip": True,
    "rotation": 20.0,
    "scale": 0.2,
    "contrast": 0.3,
    "brightness": 0.2,
    "noise": 0.1,
}
SILENT = 1e-5


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def drawn(**words: float) -> np.ndarray:
    """Draws of one view; 0.5 stands in the middle of a range."""
    names = ("down", "right", "flip", "angle", "scale", "contrast", "brightness", "noise")
    return np.array([[round(words.get(name, 0.5) * 2**32) % 2**32 for name in names]], dtype=np.uint32)


def source(seed: int = 1) -> SeededSource:
    return SeededSource(seed, allow_insecure=True)


IMAGE = torch.arange(30.0).view(1, 1, 5, 6)
SIGNAL = torch.arange(8.0).view(1, 2, 4)


@pytest.mark.parametrize(
    ("change", "words", "expected"),
    [
        ({"shift": 1}, {"right": 0.99, "down": 0.5}, IMAGE[..., [0, 0, 1, 2, 3, 4]]),
        ({"shift": 1}, {"right": 0.5, "down": 0.0}, IMAGE[:, :, [1, 2, 3, 4, 4]]),
        ({"flip": True}, {"flip": 0.2}, IMAGE.flip(3)),
        ({"flip": True}, {"flip": 0.7}, IMAGE),
        ({"rotation": 180.0}, {"angle": 0.0}, IMAGE.flip(2).flip(3)),
        ({"contrast": 0.5}, {"contrast": 0.0}, 0.5 * IMAGE),
        ({"brightness": 0.5}, {"brightness": 0.0}, IMAGE - 0.5),
    ],
    ids=["to the right", "up", "mirrored", "not mirrored", "upside down", "paler", "darker"],
)
def test_a_change_of_an_image_is_what_it_is_called(change: Any, words: Any, expected: Tensor) -> None:
    found = changed_by(Augmentation(views=1, **change), IMAGE, drawn(**words))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_quarter_turn_and_a_larger_image_keep_the_middle() -> None:
    square = torch.randn(1, 1, 6, 6)
    turned = changed_by(Augmentation(views=1, rotation=90.0), square, drawn(angle=0.0))
    assert any(torch.allclose(turned, torch.rot90(square, k, (2, 3)), atol=1e-4) for k in (1, 3))
    wide = torch.zeros(1, 1, 4, 8)
    wide[0, 0, 1:3, 2:6] = 1.0
    # A quarter turn of a wide image keeps what is square in its middle: sides are not mixed up.
    wide[0, 0, 1:3, 2:3] = wide[0, 0, 1:3, 5:6] = 0.0
    turned = changed_by(Augmentation(views=1, rotation=90.0), wide, drawn(angle=0.0))
    torch.testing.assert_close(turned, wide, rtol=1e-4, atol=1e-4)
    larger = changed_by(Augmentation(views=1, scale=0.5), wide, drawn(scale=0.9999))
    assert float(larger.sum()) > 1.5 * float(wide.sum())


def test_changes_of_a_signal() -> None:
    shifted = changed_by(Augmentation(views=1, shift=1), SIGNAL, drawn(right=0.99))
    torch.testing.assert_close(shifted, torch.tensor([[[0.0, 0, 1, 2], [4, 4, 5, 6]]]))
    torch.testing.assert_close(changed_by(Augmentation(views=1, scale=0.5), SIGNAL, drawn(scale=0.0)), 0.5 * SIGNAL)
    noisy = changed_by(Augmentation(views=1, noise=0.5), torch.zeros(1, 1, 4000), drawn())
    # Of 4,000 normal numbers: the standard deviation is within 5 % but once in 100,000.
    assert abs(float(noisy.std()) - 0.5) < 0.025


def test_a_slot_s_views_are_its_own_whoever_is_beside_it_and_however_passes_are_cut() -> None:
    how, x, y = Augmentation(views=3, **EVERYTHING), torch.randn(12, 1, 8, 8), torch.arange(12)
    whole, targets = Views(how, source(), grouped=False).of(x, y, 0)
    assert whole.shape == (12, 3, 1, 8, 8)
    assert torch.equal(targets, y[:, None].expand(12, 3))
    assert not torch.equal(whole[:, 0], whole[:, 1])
    others = torch.cat([torch.randn(5, 1, 8, 8), x[5:6], torch.randn(6, 1, 8, 8)])
    assert torch.equal(Views(how, source(), grouped=False).of(others, y, 0)[0][5], whole[5])
    # Without noise, whose generator is a pass's: a pass that nobody is in was left out between two others.
    plain = Augmentation(views=3, **EVERYTHING | {"noise": 0.0})
    first = Views(plain, source(), grouped=False).of(x, y, 0)[0]
    in_parts = Views(plain, source(), grouped=False)
    torch.testing.assert_close(in_parts.of(x[:4], y[:4], 0)[0], first[:4])
    torch.testing.assert_close(in_parts.of(x[8:], y[8:], 8)[0], first[8:])


def test_a_record_moves_the_sum_by_the_mean_of_its_views_clipped() -> None:
    """The difference of two sums is what autograd says of one record alone, and at most the clip norm."""
    how, clip_norm = Augmentation(views=4, **EVERYTHING), 0.05
    torch.manual_seed(2)
    model, loss = RowsOfPatients(TASK.model().double()), LossOfPatients(TASK.loss)
    gradients = PerRecordGradients(model, loss)
    x, y = torch.randn(6, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])

    def summed(rows: list[int]) -> dict[str, Tensor]:
        views = Views(how, source(), grouped=False)
        return gradients.clipped_sum(x[rows], y[rows], clip_norm=clip_norm, slots=At(9, rows), views=views).gradients

    all_of_them, without = summed([0, 1, 2, 3, 4, 5]), summed([0, 1, 2, 3, 4])
    assert gradients.method == "layerwise"
    moved = {name: all_of_them[name] - without[name] for name in all_of_them}
    held = torch.zeros(9, 1, 8, 8, dtype=torch.float64)
    held[5] = x[5]
    seen = Views(how, source(), grouped=False).of(held, torch.zeros(9, dtype=torch.int64), 0)[0][5]
    each = [torch.autograd.grad(TASK.loss(model.model(one[None]), y[5:6]).sum(), [*model.parameters()]) for one in seen]
    mean = [torch.stack(parts).mean(0) for parts in zip(*each, strict=True)]
    norm = math.sqrt(sum(float(part.square().sum()) for part in mean))
    assert norm > clip_norm
    for value, part in zip(moved.values(), mean, strict=True):
        torch.testing.assert_close(value, part * (clip_norm / norm), rtol=1e-6, atol=1e-9)
    assert math.sqrt(sum(float(value.square().sum()) for value in moved.values())) <= clip_norm


def data(rows: int = 1) -> TaskDataset:
    draw = np.random.default_rng(5)
    patients = [f"p{i // rows}" for i in range(40 * rows)]
    examples = Examples.of(draw.random((40 * rows, 8, 8)), draw.integers(0, 3, 40 * rows), patients)
    return TASK.dataset(examples).by_patient(rows)


def training(
    scheme: str = "parallel", *, rows: int = 1, views: int = 3, seed: int = 7, **privacy: Any
) -> LocalTraining:
    how: dict[str, Any] = {"task": "cnn", "task_parameters": IMAGES, "rows_per_patient": rows}
    if views:
        how["augmentation"] = {"views": views, **EVERYTHING}
    chosen = settings(scheme, training=how, sampling_rate=1.0, expected_batch_size=40.0, **privacy)
    return LocalTraining(TASK, data(rows), chosen, SeededRandomness(7, allow_insecure=True))


@pytest.mark.quick("one row a patient-client", "two rows-client")
@pytest.mark.parametrize("scheme", ["parallel", "client"])
@pytest.mark.parametrize("rows", [1, 2], ids=["one row a patient", "two rows"])
def test_a_round_is_the_same_again_and_not_that_of_the_records_themselves(scheme: str, rows: int) -> None:
    level = {"limits": [{"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}]}
    privacy: dict[str, Any] = level if scheme == "client" else {"noise_multiplier": SILENT}
    torch.manual_seed(6)
    weights = weights_of(TASK.model())
    one, again, plain = (
        training(scheme, rows=rows, views=views, **privacy).update(weights, None) for views in (3, 3, 0)
    )
    assert all(np.array_equal(one[name], again[name]) for name in one)
    # No larger than what is averaged, and another.
    apart = math.sqrt(sum(float(np.square(one[name] - plain[name]).sum()) for name in one))
    size = math.sqrt(sum(float(np.square(value).sum()) for value in plain.values()))
    assert 0.01 * size < apart < 2 * size


def test_gradients_can_be_tried_before_anything_is_paid() -> None:
    here = training()
    here.require_trainable()
    here.try_gradients(3)
    assert here.slow_path() is None


@pytest.mark.parametrize(
    ("task", "parameters", "shape", "how", "words"),
    [
        ("last-layer", {"features": 8, "classes": 3, "bound": 1.0}, (8,), {"noise": 0.1}, "images and signals"),
        ("cnn", IMAGES, (8, 8), {"shift": 8}, "shift must be below 8"),
    ],
    ids=["features", "too far"],
)
def test_records_that_cannot_be_changed_so_are_refused(
    task: str, parameters: dict[str, Any], shape: tuple[int, ...], how: dict[str, Any], words: str
) -> None:
    made, draw = load(task, parameters), np.random.default_rng(1)
    examples = Examples.of(draw.random((10, *shape)), draw.integers(0, 3, 10))
    chosen = settings(
        training={"task": task, "task_parameters": parameters, "augmentation": {"views": 2, **how}}, sampling_rate=1.0
    )
    with pytest.raises(ConfigurationError, match=words):
        LocalTraining(
            made, made.dataset(examples), chosen, SeededRandomness(1, allow_insecure=True)
        ).require_trainable()


@pytest.mark.parametrize(
    ("how", "privacy", "words"),
    [
        ({"views": 4}, {}, "has no change"),
        ({"views": 0, "shift": 1}, {}, "greater than or equal to 1"),
        ({"views": 2, "rotation": 200}, {}, "less than or equal to 180"),
        ({"views": 2, "noise": math.nan}, {}, "finite"),
        ({"views": 2, "shift": 1}, {"bayesian": True}, "Bayesian limit at instance level do not go together"),
    ],
    ids=["no change", "no view", "beyond a half turn", "no number", "a Bayesian limit"],
)
def test_settings_that_make_no_views_are_refused(how: Any, privacy: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings(training={"augmentation": how}, **privacy)


def test_a_study_without_augmentation_keeps_its_digest() -> None:
    assert "augmentation" not in settings().as_json()["training"]
    assert Slots(3).passes(2, 4).__next__().first == 0
