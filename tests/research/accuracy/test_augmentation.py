"""What the comparison of views reports is what its results file holds, and nothing is chosen by it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import ClassicalAccountant
from research.accuracy.augmentation import (
    CASES,
    CHOOSING,
    DELTA,
    EPSILON,
    LEARNING_RATES,
    RATE,
    RESULTS,
    SEEDS,
    STEPS,
    WAYS,
)

FOUND: dict[str, Any] = json.loads(RESULTS.read_text())
PAGE = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()


@pytest.mark.parametrize("name", CASES)
def test_the_page_has_what_was_found(name: str) -> None:
    base = FOUND[name]["as they are"]
    assert f"({100 * base['mean']:.1f} %" in PAGE
    for way in (way for way in WAYS if way != "as they are"):
        apart = 100 * (np.array(FOUND[name][way]["accuracies"]) - np.array(base["accuracies"]))
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        assert re.search(rf"\b{abs(apart.mean()):.1f} ± {error:.1f}\b", PAGE)


@pytest.mark.parametrize("name", CASES)
def test_settings_are_chosen_by_validation_and_results_are_of_other_seeds(name: str) -> None:
    assert not set(SEEDS) & set(CHOOSING)
    assert FOUND["seeds"] == list(SEEDS)
    assert len(SEEDS) >= 10
    for way in WAYS:
        tried = FOUND[name][way]["validation"]
        assert set(tried) == set(map(str, LEARNING_RATES))
        assert FOUND[name][way]["learning rate"] == float(max(tried, key=lambda rate: tried[rate]))
        assert len(FOUND[name][way]["accuracies"]) == len(SEEDS)


@pytest.mark.parametrize("name", CASES)
def test_every_way_has_the_noise_that_the_limit_needs(name: str) -> None:
    accountant = ClassicalAccountant(delta=DELTA, method="pld")
    accountant.step(noise_multiplier=FOUND[name]["noise_multiplier"], sampling_rate=RATE, count=STEPS)
    assert accountant.epsilon() == pytest.approx(FOUND[name]["epsilon"])
    assert accountant.epsilon() <= EPSILON
