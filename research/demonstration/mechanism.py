"""The study's mechanism in one process: numpy and the closed-form gradient of logistic regression, for many seeds.

Clipping, noise, denominators and averaging are those of the study's settings; the noise is continuous here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting.values import FloatArray
from private_learning.records import Records
from private_learning.tasks import load
from study_protocol.study.settings import StudySettings
from wardround.demo.scenarios import Scenario

Site = tuple[FloatArray, FloatArray]


def arrays(scenario: Scenario) -> tuple[list[Site], Site]:
    """Inputs with a column of ones, and labels, of every hospital and of the evaluation set."""
    task = load(scenario.task, scenario.task_parameters)

    def site(records: Records) -> Site:
        dataset = task.dataset(records)
        ones = np.ones(len(dataset))
        return np.column_stack([dataset.inputs.double().numpy(), ones]), dataset.targets.double().numpy()

    return [site(records) for records in scenario.hospitals.values()], site(scenario.evaluation)


def models(sites: Sequence[Site], settings: StudySettings, rounds: int, seed: int) -> FloatArray:
    """The models released by a full-batch study, shape (rounds, parameters)."""
    privacy, random = settings.privacy, np.random.default_rng(seed)
    weights = np.zeros(sites[0][0].shape[1])
    released: list[FloatArray] = []
    for _ in range(rounds):
        total = np.zeros_like(weights)
        for inputs, labels in sites:
            gradients = (1 / (1 + np.exp(-inputs @ weights)) - labels)[:, None] * inputs
            norms = np.linalg.norm(gradients, axis=1)
            total += (gradients * np.minimum(1, privacy.clip_norm / np.maximum(norms, 1e-12))[:, None]).sum(axis=0)
            total += random.normal(size=len(weights)) * privacy.noise_multiplier * privacy.clip_norm
        rate = settings.training.optimiser.learning_rate
        weights = weights - rate * total / privacy.expected_batch_size / privacy.expected_clients
        released.append(weights)
    return np.array(released)


def right(weights: FloatArray, site: Site) -> float:
    """Accuracy."""
    inputs, labels = site
    return float(np.mean((inputs @ weights > 0) == (labels > 0.5)))
