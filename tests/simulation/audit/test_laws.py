"""The tests of a step's law: uniform p-values where it holds, an alarm of the named test where a defect is planted."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.audit.laws import LawResult, LawTests

RECORDS, COPIES, STEPS, NOISE = 30, 270, 40, 1.0


def _tested(seed: int, defect: str = "", *, rate: float = 0.5, size: int = 12) -> LawResult:
    draw = np.random.default_rng(seed)
    gradients = draw.normal(size=(RECORDS + 1, size))
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    tests = LawTests(gradients[:-1], gradients[-1], COPIES, rate=rate, noise=NOISE, seed=seed)
    each = np.concatenate([gradients[:-1], np.repeat(gradients[-1:], COPIES, axis=0)])
    first, batch_again = draw.normal(size=size), draw.random(len(each)) < rate
    for _ in range(STEPS):
        taken = batch_again if defect == "same batches" else draw.random(len(each)) < rate
        if defect == "batches":
            taken = draw.permutation(len(each)) < rate * len(each)
        noise = NOISE * (first if defect == "same noise" else draw.normal(size=size))
        lengths = np.where(np.arange(len(each)) >= RECORDS, 3.0, 1.0) if defect == "clipping" else np.ones(len(each))
        tests.take(lengths[taken] @ each[taken] + (0.5 if defect == "noise" else 1.0) * noise)
    return tests.result(1.0)


@pytest.mark.quick("batches-12", "clipping-12", "noise-12", "same batches-12", "same noise-12")
@pytest.mark.parametrize("size", [12, 200])
@pytest.mark.parametrize("defect", ["noise", "clipping", "batches", "same batches", "same noise"])
def test_a_planted_defect_is_named(defect: str, size: int) -> None:
    for seed in range(3):
        assert defect in _tested(seed, defect, size=size).alarms(0.01)


@pytest.mark.parametrize("defect", ["noise", "clipping", "same noise"])
def test_at_rate_one_there_are_no_batches_to_test(defect: str) -> None:
    found = _tested(1, defect, rate=1.0)
    assert set(found.p_values) == {"noise", "clipping", "same noise"}
    assert defect in found.alarms(0.01)


def test_runs_are_not_compared_with_one_another() -> None:
    """Two runs that begin with one seed have the same noise, which is no defect of either."""
    draw = np.random.default_rng(3)
    tests = LawTests(np.eye(4)[:3], np.eye(4)[3], 5, rate=1.0, noise=1.0, seed=3)
    total = np.eye(4)[:3].sum(axis=0) + 5 * np.eye(4)[3] + draw.normal(size=4)
    for _ in range(30):
        tests.begin()
        tests.take(total)
    assert "same noise" not in tests.result(1.0).p_values


@pytest.mark.slow
@pytest.mark.parametrize("size", [12, 200])
def test_a_sound_study_fails_no_more_often_than_stated(size: int) -> None:
    """300 studies at 5 %: at most 27 alarms, which a sound test passes with a chance of 0.1 %."""
    assert sum(bool(_tested(seed, size=size).alarms(0.05)) for seed in range(300)) <= 27
