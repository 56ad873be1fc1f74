"""The search over settings: which are tried, under which limits, and in which order they are shown."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace
from typing import Any

import pytest

from accounting.budget.forecast import forecast
from simulation.results.report import SeedSpread
from simulation.runs import Simulation
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from wardround.cli.lead.suggest import as_settings
from wardround.cli.lead.templates import study_values
from wardround.cli.researcher.search import TOGETHER, search


def _settings() -> StudySettings:
    values = study_values()
    values["privacy"] |= {"max_steps": 6, "expected_batch_size": 30.0}
    values["training"]["task_parameters"] = {"label": "ill", "column.age": "0..100"}
    return as_settings(values)


def test_the_best_changes_are_tried_together(capsys: pytest.CaptureFixture[str]) -> None:
    settings, tried = _settings(), list[StudySettings]()

    def run(simulation: Simulation) -> Any:
        assert not simulation.compares
        tried.append(simulation.settings)
        # Better the larger both are.
        value = simulation.settings.training.optimiser.learning_rate * simulation.settings.privacy.clip_norm
        return SimpleNamespace(metric="accuracy", reached=SeedSpread(value, None))

    simulation: Any = Simulation(settings, None, "loop", None)  # type: ignore[arg-type]
    search(simulation, run, as_json=False)
    shown = capsys.readouterr().out
    best = tried[-1]
    assert best.privacy.clip_norm == pytest.approx(2 * settings.privacy.clip_norm)
    assert best.training.optimiser.learning_rate == pytest.approx(3 * settings.training.optimiser.learning_rate)
    assert f"Best of the search: {TOGETHER}" in shown
    assert as_settings(tomllib.loads(shown[shown.index("# Best of") :])).digest() == best.digest()
    for one in tried[1:]:
        assert one.privacy.limits == settings.privacy.limits
        assert forecast(plan_of(one)).rounds >= one.privacy.max_steps
