"""Every built-in task from its template to predictions, on made-up records: what a person types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from private_learning.tasks import load
from private_learning.tasks.registry import BUILT_IN
from tests.factories.made_up import made_up, saved
from wardround.cli.lead.templates import study_text, study_values
from wardround.cli.main import build

WITH_BASELINES = ("regression", "piecewise-exponential")


def typed(*arguments: str | Path) -> Any:
    app = build()
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def settings_of(task: str, folder: Path) -> Path:
    values = study_values(task=task)
    values["privacy"] |= {"max_steps": 3, "expected_batch_size": 20.0}
    path = folder / "study.toml"
    path.write_text(study_text(values))
    return path


@pytest.mark.quick("logistic-regression")
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_task_is_checked_and_simulated_on_made_up_records(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))
    settings = settings_of(name, tmp_path)
    task = load(name, study_values(task=name)["training"]["task_parameters"])
    records = saved(made_up(task, 120), tmp_path)
    checked = typed("data", "check", records, "--settings", settings, "--json")
    assert checked.exit_code == 0, checked.output
    found = json.loads(checked.stdout)
    assert found["patients"] == 120
    assert found["unused"] == []
    assert found["labels"] or name == "regression"
    # What is trained beside takes longer than the study; once is enough.
    more = [] if name in WITH_BASELINES else ["--no-baselines"]
    done = typed("simulate", settings, "--data", records, "--clients", "4", "--json", *more)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["metric"] in ("accuracy", "rmse", "concordance", "dice")
    measured = [one["metrics"] for one in report["seeds"][0]["rounds"]]
    assert len(measured) == 3
    assert all(np.isfinite(list(one.values())).all() for one in measured)
    assert (report["summary"]["pooled"] is not None) == (name in WITH_BASELINES)
