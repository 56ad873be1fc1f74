"""The line of CIFAR-10, whose pictures are not here: a user's own copy is measured, by one data holder."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from private_learning.records import DataError
from research.bayesian import central_softmax
from research.bayesian.central_inference import noise_for
from research.bayesian.readings import NoisedSteps, spent
from research.tables.catalogue import CatalogueEntry
from research.tables.pictures import own_features
from research.tables.result import Papers, Row

EPSILON, DELTA = 8.0, 1e-5
_CIFAR10 = Papers(
    "Triastcyn & Faltings 2020, Table 1",
    {"without privacy": 86, "DP": 73, "BDP": 73},
    {"DP": EPSILON, "BDP": 0.51},
    DELTA,
)
# Those of "MNIST at .62".
_RECIPE = central_softmax.SoftmaxRecipe(60, 0.35, 256.0, 0.9)


def measure_own(folder: Path, program: Path | None, seeds: Sequence[int]) -> Row:
    """A linear classifier on features of the folder's pictures. Raises DataError, ConfigurationError."""
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    begun, data = time.monotonic(), own_features(folder, program)
    inputs, labels, test, test_labels = map(
        torch.as_tensor, (data.inputs, data.labels, data.test_inputs, data.test_labels)
    )
    if max(labels.max(), test_labels.max()) >= 10:
        raise DataError("the line of CIFAR-10 has ten classes: give its files, or a folder with at most ten")
    noise, _ = noise_for(EPSILON, DELTA, _RECIPE.charged)
    watched = list[central_softmax.Floats]()
    model = central_softmax.fitted(inputs, labels, _RECIPE, noise, seeds, watched)
    plain = central_softmax.fitted(inputs, labels, _RECIPE, None, [0])
    return Row(
        table="ICML",
        name=_NAME,
        data=f"CIFAR-10, {len(labels):,} and {len(test_labels):,} images",
        papers=_CIFAR10,
        split="the test images of the folder, one data holder",
        seeds=list(seeds),
        accuracies=model.accuracies(test, test_labels),
        without_noise=plain.accuracies(test, test_labels),
        spent=spent(watched, NoisedSteps(_RECIPE.charged, 1.0, noise, _RECIPE.clip_norm, DELTA)),
        settings=asdict(_RECIPE) | {"noise_multiplier": noise, "features": inputs.shape[1], "model": "linear"},
        found_by="settings of the line MNIST at .62: no picture of this folder was used",
        seconds=time.monotonic() - begun,
    )


_NAME = "CIFAR-10, ε 8"
ENTRIES = (
    CatalogueEntry(
        "ICML",
        _NAME,
        _CIFAR10,
        None,
        {"data": "cifar-10", "epsilon": "8"},
        "needs the images of CIFAR-10",
        measure_own,
    ),
)
