"""The tests of a step's law: uniform p-values where it holds, alarms where a defect is planted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simulation.audit.laws import LawResult, LawTests

RECORDS, SIZE, STEPS, RATE, NOISE = 60, 12, 20, 0.5, 1.0


def _tested(seed: int, defect: str = "") -> LawResult:
    draw, tests = np.random.default_rng(seed), LawTests(seed)
    gradients = draw.normal(size=(RECORDS, SIZE))
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    first, coins = draw.normal(size=SIZE), draw.random(RECORDS) < RATE
    for _ in range(STEPS):
        batch = coins if defect == "fixed" else draw.random(RECORDS) < RATE
        noise = NOISE * (first if defect == "reused" else draw.normal(size=SIZE))
        scale = 3.0 if defect == "unclipped" else 1.0
        factor = 0.5 if defect == "halved" else 1.0
        tests.take(scale * gradients[batch].sum(axis=0) + factor * noise, gradients, RATE, NOISE)
    return tests.result()


@pytest.mark.parametrize(
    ("defect", "named"),
    [("fixed", ["batches"]), ("reused", ["repeats"]), ("unclipped", ["size"])],
)
def test_a_planted_defect_is_named(defect: str, named: Sequence[str]) -> None:
    for seed in range(2):
        assert set(named) <= set(_tested(seed, defect).alarms(0.01))


@pytest.mark.slow
def test_a_sound_study_fails_no_more_often_than_stated() -> None:
    """300 studies at 5 %: at most 27 alarms, which a sound test passes with a chance of 0.1 %."""
    assert sum(bool(_tested(seed).alarms(0.05)) for seed in range(300)) <= 27
