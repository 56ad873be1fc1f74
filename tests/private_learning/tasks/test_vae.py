"""The generator of images: its bound against torch's distributions, gradients of single records, and new images."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from private_learning.gradients import PerRecordGradients
from private_learning.tasks import TaskError, load
from private_learning.tasks.vae import CENTRE, ClassAutoencoder
from tests.factories.made_up import made_up
from tests.private_learning.tasks.image_tasks import compare, randomised, tensors

SMALL = {"height": 9, "width": 10, "classes": 3, "filters": 2, "latent": 4, "low": -100.0, "high": 300.0}


def _task(**changed: Any) -> ClassAutoencoder:
    return cast("ClassAutoencoder", load("vae", SMALL | changed))


@pytest.mark.parametrize(
    "changed", [{}, {"channels": 3, "classes": 2, "height": 4, "width": 5}], ids=["grey", "colour"]
)
def test_closed_forms_are_one_backward_per_record(changed: dict[str, Any]) -> None:
    task = _task(**changed)
    x, y = tensors(task, 5)
    compare(randomised(task.model(), 3).eval(), task.loss, x, y)


def test_loss_is_the_bound_of_torchs_distributions() -> None:
    task, draw = _task(), np.random.default_rng(0)
    mean, log_variance = (torch.as_tensor(draw.normal(size=(4, 4))) for _ in range(2))
    scores, images = torch.as_tensor(draw.normal(size=(4, 90))), torch.as_tensor(draw.uniform(-1, 1, (4, 90)))
    classes = torch.tensor([0, 1, 2, 1])
    priors = Normal(CENTRE * torch.eye(4)[classes].double(), 1.0)
    divergence = kl_divergence(Normal(mean, (log_variance / 2).exp()), priors).sum(1)
    white, p = (images + 1) / 2, torch.sigmoid(scores)
    errors = -(white * p.log() + (1 - white) * (1 - p).log()).sum(1)
    found = task.loss(torch.cat([mean, log_variance, scores, images], 1), classes)
    torch.testing.assert_close(found, (errors + divergence) / 90)


def test_codes_are_drawn_in_training_alone_and_no_record_is_in_anothers_output() -> None:
    task = _task()
    model, x = task.model(), task.example_inputs(4, np.random.default_rng(0))
    assert not torch.equal(model(x), model(x))
    model.eval()
    torch.testing.assert_close(model(x), torch.cat([model(x[place : place + 1]) for place in range(4)]))


def test_a_study_takes_the_layerwise_method() -> None:
    task = _task()
    records = made_up(task, 8)
    gradients = PerRecordGradients(task.model().train(), task.loss)
    found = gradients.clipped_sum(task.inputs(records), task.dataset(records).targets, clip_norm=1e-3)
    assert gradients.method == "layerwise"
    total = sum(float(value.square().sum()) for value in found.gradients.values()) ** 0.5
    assert total <= 8e-3 * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_noised_steps_learn_images_of_a_class(classes: int) -> None:
    """Class 0 is black in these records, and the others are grey noise."""
    task = _task(classes=classes)
    torch.manual_seed(0)
    model, generator = cast("Any", task.model()), torch.Generator().manual_seed(1)
    records, test = made_up(task, 64), made_up(task, 64, seed=1)
    x, y, gradients = task.inputs(records), task.dataset(records).targets, PerRecordGradients(model, task.loss)
    for _ in range(150):
        found = gradients.clipped_sum(x, y, clip_norm=0.5).gradients
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                noise = 0.1 * torch.randn(parameter.shape, generator=generator)
                parameter -= 2 * (found[key].to(parameter) + noise) / 64
    model.eval()
    black, grey = (task.generate(model, [label] * 50, seed=2).inputs.mean() for label in (0, 1))
    assert black < 0 < 60 < grey
    with torch.no_grad():
        measured = task.metrics(model(task.inputs(test)), task.dataset(test).targets)
    assert measured["accuracy"] > (0.9 if classes == 2 else 0.5)
    assert measured["reconstruction_error"] < 0.15


def test_new_images_have_the_records_form_and_depend_on_the_seed_alone() -> None:
    task = _task()
    model = cast("Any", task.model())
    first, again, other = (task.generate(model, [2, 0, 2], seed) for seed in (1, 1, 2))
    assert first.inputs.shape == (3, 1, 9, 10)
    assert ((first.inputs > -100) & (first.inputs < 300)).all()
    np.testing.assert_array_equal(first.inputs, again.inputs)
    assert not np.array_equal(first.inputs, other.inputs)
    assert task.dataset(first).targets.tolist() == [2, 0, 2]


@pytest.mark.parametrize("labels", [[], [3], [-1], [0.5], [[1]]], ids=str)
def test_other_labels_are_refused(labels: Any) -> None:
    task = _task()
    with pytest.raises(TaskError, match="whole numbers from 0 to 2"):
        task.generate(cast("Any", task.model()), labels, 0)


def test_each_class_needs_a_direction() -> None:
    with pytest.raises(TaskError, match="latent must be at least classes"):
        _task(latent=2)
