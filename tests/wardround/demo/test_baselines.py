"""What the study's accuracy is compared with, on records that one sees through."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from private_learning.records import Table
from private_learning.tasks import TaskDataset, load
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, limit, settings
from wardround.demo import baselines, scenarios
from wardround.demo.baselines import accuracy, alone_and_private, compute

TASK = load("logistic-regression", TASK_PARAMETERS)
# Two rounds fit: the noise is that of one hospital alone.
STUDY = settings(limits=[limit("instance", epsilon=30.0)], max_steps=2, sampling_rate=1.0, noise_multiplier=1.0)


def threshold(count: int, at: float) -> TaskDataset:
    """Ill from this age on: a linear model is right about all."""
    age = np.linspace(0, 100, count)
    columns = {"age": age, "rate": np.full(count, 5.0), "ill": (age >= at).astype(float)}
    return TASK.dataset(Table.of({**columns, "who": [f"p{n}" for n in range(count)]}, patient_column="who"))


def test_one_model_on_all_records_and_one_for_each_hospital() -> None:
    """The hospitals' thresholds are at 30 and at 70, the evaluation's at 30."""
    parts = {"low": threshold(60, 30.0), "high": threshold(60, 70.0)}
    found = compute(settings("sequential"), parts, threshold(101, 30.0))
    alone: Any = found["alone"]
    assert alone["low"] >= 0.97
    # The years from 30 to 70 are taken for healthy.
    assert alone["high"] == pytest.approx(0.6, abs=0.05)
    pooled: Any = found["pooled"]
    assert alone["high"] < pooled < alone["low"]
    # 71 of 101 are ill.
    assert found["majority"] == pytest.approx(71 / 101)
    assert "private" not in found


def test_a_hospital_alone_stops_with_its_budget() -> None:
    model, rounds = alone_and_private(TASK, threshold(40, 50.0), STUDY)
    assert rounds == 2
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert 0 <= accuracy(TASK, model, threshold(40, 50.0)) <= 1


def test_in_scheme_parallel_every_hospital_has_a_study_of_its_own() -> None:
    found = compute(STUDY, {"city": threshold(40, 50.0)}, threshold(40, 50.0))
    assert found["private_rounds"] == {"city": 2}
    assert set(found) == {"majority", "pooled", "alone", "private", "private_rounds"}


def test_the_command_reads_files_and_names_hospitals_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.json").write_text(settings("sequential").model_dump_json())
    paths = [str(scenarios.write(records(seed=seed), tmp_path / name)) for seed, name in enumerate(("eval", "city"))]
    words = [str(tmp_path / "settings.json"), str(tmp_path / "out.json"), *paths, "--patient-column", "patient"]
    monkeypatch.setattr(sys, "argv", ["baselines", *words])
    baselines.main()
    found = json.loads((tmp_path / "out.json").read_text())
    assert set(found["alone"]) == {"city"}
    assert found["alone"]["city"] == found["pooled"]
