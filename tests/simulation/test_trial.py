"""The result of a trial: metrics of every seed, their mean and deviation."""

from __future__ import annotations

import pytest

from simulation.trial import ALONE, STUDY, TrialResult


def result(*seeds: dict[str, float]) -> TrialResult:
    return TrialResult(4, 48, {STUDY: list(seeds), ALONE: [{"accuracy": 0.5} for _ in seeds]})


def test_only_metrics_of_every_seed_are_shown() -> None:
    measured = result({"accuracy": 0.7, "roc_auc": 0.8, "loss": 1.0}, {"accuracy": 0.9, "loss": 2.0})
    assert measured.metrics == ("accuracy",)
    spread = measured.spread(STUDY, "accuracy")
    assert spread is not None
    assert (spread.mean, spread.deviation) == (pytest.approx(0.8), pytest.approx(0.02**0.5))
    assert measured.spread(STUDY, "roc_auc") is None
    assert measured.spread("without_privacy", "accuracy") is None


def test_one_seed_has_no_deviation() -> None:
    measured = result({"accuracy": 0.7}).to_dict()
    assert measured["metrics"][STUDY] == {"accuracy": {"mean": 0.7, "standard_deviation": None}}
    assert (measured["hospitals"], measured["patients"]) == (4, 48)
