"""The steps that an audit sees: all of them, at the noise of the certificate, and no study whose sums are others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from private_learning.tasks import load
from private_learning.tasks.registry import EXAMPLES
from simulation.audit.releases import RecordGradients, audited, law_of
from simulation.audit.shadows import halved
from simulation.engine import initial_weights
from study_protocol.study.settings import StudySettings
from tests.factories.settings import limit, settings, settings_json
from tests.factories.synthesis import SECTION
from tests.simulation.audit.studies import study

SEQUENCE = EXAMPLES["sequence"]


@pytest.mark.parametrize(
    ("scheme", "options", "named"),
    [
        ("client", {}, "protects whole hospitals"),
        ("parallel", {"bayesian": True}, "Bayesian limit"),
        ("parallel", {"training": {"clipping": "per-layer"}}, "per-layer"),
    ],
)
def test_other_sums_are_refused_in_words(scheme: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        audited(settings(scheme, **options))


def test_several_local_steps_become_as_many_rounds() -> None:
    chosen = audited(settings(training={"algorithm": "fedavg", "local_steps": 3}, max_steps=6))
    assert (chosen.rounds, chosen.training.algorithm) == (6, "fedsgd")


@pytest.mark.parametrize(
    "training",
    [{"learning_rate": 0.5, "learning_rate_schedule": {"name": "cosine"}}, {"local_optimiser": {"name": "adam"}}],
)
def test_entries_of_several_local_steps_are_left_out(training: dict[str, Any]) -> None:
    chosen = settings(training={"algorithm": "fedavg", "local_steps": 2, **training}, max_steps=6)
    assert audited(chosen).privacy.noise_multiplier == chosen.privacy.noise_multiplier


def test_questions_and_synthetic_records_are_left_out() -> None:
    limits = [limit("instance", enforcement="fixed-plan")]
    asked = {"max_queries": 9, "max_cells": 1000, "share": 0.5}
    chosen = StudySettings.model_validate(
        settings_json(statistics=asked, limits=limits) | {"synthesis": SECTION | {"allowance": 0.05}}
    )
    for changed in (audited(chosen), halved(chosen)):
        assert (changed.statistics, changed.synthesis) == (None, None)


def test_settings_that_no_study_can_have_are_refused_in_words() -> None:
    """Half of the patients are too few for the bits of an adaptive clip norm."""
    chosen = settings(expected_batch_size=30.0, adaptive_clip={"quantile": 0.5, "rate": 0.2})
    with pytest.raises(ConfigurationError, match=r"do not go together then: .*more noise"):
        halved(chosen)


@pytest.mark.slow
def test_a_model_that_cannot_be_vectorised_has_gradients_and_losses() -> None:
    task = load("sequence", SEQUENCE)
    dataset = task.dataset(task.synthetic_records(8, 1))
    gradients = RecordGradients(task, "sequence", grouped=False)
    weights = initial_weights(settings(training={"task": "sequence", "task_parameters": SEQUENCE}), 1, task)
    assert 0 < np.square(gradients.of(dataset, weights, 0.5)).sum(axis=1).max() <= 0.25 * (1 + 1e-9)
    assert np.isfinite(gradients.losses(dataset, weights)).all()


@pytest.mark.parametrize("scheme", ["parallel", "sequential"])
def test_a_release_is_the_sum_of_clipped_gradients_and_the_noise_of_the_certificate(scheme: str) -> None:
    """With all records in every batch the rest is noise: its spread over many numbers is the stated one."""
    attacked = study(scheme, sampling_rate=1.0, expected_batch_size=40.0, max_steps=15)
    releases = attacked.run(seed=5)
    assert len(releases) == 15
    gradients = RecordGradients(attacked.task, "logistic-regression", grouped=False)
    rests: list[float] = []
    for release in releases:
        known = [
            gradients.of(attacked.population.records_of(place), release.weights, release.clip_norm).sum(axis=0)
            for place in range(attacked.watched)
        ]
        rests += (release.total - np.sum(known, axis=0)).tolist()
    # 5 deviations of a standard deviation's estimate.
    assert np.std(rests) == pytest.approx(releases[0].noise, rel=5 / math.sqrt(2 * len(rests)))
    law = law_of(attacked.settings)
    assert releases[0].noise == pytest.approx(law.noise_multiplier, rel=0.01)


def test_a_run_can_end_early() -> None:
    assert len(study().run(seed=1, limit=2)) == 2


def test_gradients_are_clipped_and_have_the_closed_form_of_logistic_regression() -> None:
    attacked = study()
    gradients = RecordGradients(attacked.task, "logistic-regression", grouped=False)
    weights = initial_weights(attacked.settings, 1, attacked.task)
    dataset = attacked.population.records_of(0)
    whole = gradients.of(dataset, weights, np.inf)
    errors, inputs = 0.5 - dataset.targets.numpy(), np.asarray(dataset.inputs)
    # At zero weights the gradient of record j is (1/2 − y)·(x, 1), the bias in front: parameters go by their names.
    assert whole == pytest.approx(errors[:, None] * np.column_stack([np.ones(len(inputs)), inputs]), abs=1e-6)
    assert np.square(gradients.of(dataset, weights, 0.1)).sum(axis=1).max() <= 0.01 * (1 + 1e-9)
