"""What the comparison of parts of a model reports is what its results file holds, and nothing is chosen by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import forecast
from research.accuracy.transfer import (
    CHOOSING,
    DELTA,
    EPSILON,
    GRID,
    OWN,
    RESULTS,
    ROUNDS,
    SEEDS,
    WAYS,
    TransferBench,
    markdown,
)
from research.accuracy.transfer_data import CASES
from study_protocol.study.plan_of import plan_of

FOUND: dict[str, Any] = json.loads(RESULTS.read_text())
PAGE = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()


def test_the_page_has_the_table_of_the_results() -> None:
    assert markdown(FOUND) in PAGE
    assert set(FOUND["cases"]) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_settings_are_chosen_by_validation_and_results_are_of_other_seeds(name: str) -> None:
    assert not set(SEEDS) & set(CHOOSING)
    assert len(SEEDS) >= 10
    ways = FOUND["cases"][name]["ways"]
    assert tuple(ways) == WAYS
    for found in ways.values():
        assert len(found["validation"]) == len(GRID)
        best = max(found["validation"], key=lambda one: one["accuracy"])
        assert found["chosen"] == {"clip_norm": best["clip_norm"], "travel": best["travel"]}
        apart = np.array(found["accuracies"]) - np.array(ways[OWN]["accuracies"])
        assert len(apart) == len(SEEDS)
        if "minus_all_own" in found:
            assert found["minus_all_own"]["mean"] == pytest.approx(apart.mean())
            assert found["minus_all_own"]["standard_error"] == pytest.approx(apart.std(ddof=1) / np.sqrt(len(apart)))


@pytest.mark.quick("pneumonia")
@pytest.mark.parametrize("name", CASES)
def test_every_way_has_the_same_noise_and_keeps_the_limit(name: str) -> None:
    bench = TransferBench(CASES[name], Path("public.safetensors"), "0" * 64)
    studies = [bench.study(way, setting) for way in WAYS for setting in (GRID[0], GRID[-1])]
    assert {study.privacy.noise_multiplier for study in studies} == {FOUND["cases"][name]["noise_multiplier"]}
    (limit,) = forecast(plan_of(studies[0]), tight=False).limits
    assert forecast(plan_of(studies[0]), tight=False).rounds == ROUNDS
    assert (EPSILON, DELTA) == (1.0, 1e-5)
    assert limit is not None
