"""Reconstruction: exact from a bare gradient, nothing from noise, for linear models, networks and images."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from private_learning.records import Examples
from private_learning.tasks import TaskDataset, load
from simulation.audit import reconstruction as reconstructed
from simulation.audit.pictures import reconstruction_section
from simulation.audit.reconstruction import ReconstructionReport, reconstruction
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings


def _population(task: Any) -> Population:
    return Population.of({f"h{place}": task.dataset(records(30, seed=place)) for place in range(4)})


def _attacked(name: str, noise: float, scheme: str = "parallel", **parameters: Any) -> ReconstructionReport:
    values = {**TASK_PARAMETERS, **parameters}
    chosen = settings(scheme, noise_multiplier=noise, training={"task": name, "task_parameters": values})
    task = load(name, values)
    return reconstruction(chosen, task, _population(task))


@pytest.mark.parametrize(("name", "parameters"), [("logistic-regression", {}), ("mlp", {"hidden": 8})])
def test_a_bare_gradient_is_the_record_and_noise_hides_it(name: str, parameters: dict[str, Any]) -> None:
    found = {view.name: view for view in _attacked(name, 100.0, **parameters).views}
    bare, noised = found[reconstructed.PATIENT], found[reconstructed.NOISED_PATIENT]
    assert (bare.cosine, bare.error) == pytest.approx((1.0, 0.0), abs=1e-4)
    assert bare.rank == 1
    assert abs(noised.cosine) < 0.6
    assert noised.rank > 20
    assert found[reconstructed.MASKED].rank > 20


def test_next_to_no_noise_hides_nothing() -> None:
    found = {view.name: view for view in _attacked("mlp", 1e-6, hidden=8).views}
    assert found[reconstructed.NOISED_PATIENT].cosine == pytest.approx(1.0, abs=1e-2)
    assert found[reconstructed.HOSPITAL].cosine < 0.9


@pytest.mark.parametrize(("scheme", "seen"), [("parallel", "NOISED_HOSPITAL"), ("sequential", "MASKED")])
def test_the_page_says_what_the_coordinator_sees(scheme: str, seen: str) -> None:
    report = _attacked("logistic-regression", 4.0, scheme)
    assert [view.name for view in report.views if view.seen] == [getattr(reconstructed, seen)]
    assert [bool(row[-1]) for row in reconstruction_section(report).rows] == [view.seen for view in report.views]
    assert ReconstructionReport.model_validate_json(report.model_dump_json()) == report


def test_a_study_of_whole_hospitals_is_refused() -> None:
    task = load("logistic-regression", TASK_PARAMETERS)
    with pytest.raises(ConfigurationError, match="whole hospitals"):
        reconstruction(settings("client"), task, _population(task))


def _images() -> tuple[StudySettings, Any, TaskDataset]:
    parameters = {"height": 12, "width": 12, "classes": 3}
    task = load("cnn", parameters)
    # Bars at places of their own, as a digit's strokes are.
    images = np.zeros((40, 12, 12), np.float32)
    draw = np.random.default_rng(0)
    for image in images:
        row, column = draw.integers(2, 8, size=2)
        image[row : row + 3, column : column + 2] = 1.0
    chosen = settings(training={"task": "cnn", "task_parameters": parameters})
    return chosen, task, task.dataset(Examples.of(images, np.arange(40) % 3))


@pytest.mark.slow
def test_an_image_is_recognised_in_a_bare_gradient_alone() -> None:
    chosen, task, dataset = _images()
    population = Population.split(dataset, [np.arange(20), np.arange(20, 40)])
    report = reconstruction(chosen, task, population, records=4)
    found = {view.name: view for view in report.views}
    assert report.method == "gradient matching"
    assert found[reconstructed.PATIENT].cosine > 0.7
    assert abs(found[reconstructed.NOISED_PATIENT].cosine) < 0.4
    assert report.picture is not None
    assert base64.b64decode(report.picture).startswith(b"\x89PNG")
    assert "<img" in reconstruction_section(report).chart
