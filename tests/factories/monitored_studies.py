"""A study that monitors its model on later patients, and the answer of one of its windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.settings import StudySettings
from tests.factories.settings import limit, settings_json

QUESTION: dict[str, Any] = {
    "noise_multiplier": 13.3,
    "edges": [0.04, 0.1, 0.22, 0.45],
    "centre": 0.25,
}
SECTION: dict[str, Any] = {"column": "seen", "first_day": "2026-01-01", "windows": 4, "question": QUESTION}


def monitoring(**entries: Any) -> MonitoringSettings:
    return MonitoringSettings.model_validate(SECTION | entries)


def monitored_study(section: dict[str, Any] | None = None, **options: Any) -> StudySettings:
    """Wide limits, three rounds and four windows, unless `options` of the settings' factory say otherwise."""
    usual: dict[str, Any] = {
        "statistics": {"max_queries": 9, "max_cells": 100},
        "limits": [limit("instance", epsilon=1e6)],
        "max_steps": 3,
    }
    return StudySettings.model_validate(settings_json(**usual | options) | {"monitoring": section or SECTION})


def window_answer(chosen: MonitoringSettings, *, patients: int, slope: float, noise: float = 3.0) -> Answer:
    """The answer about so many patients with 20 % outcomes, whose logits are off by this slope."""
    draw = np.random.default_rng(3)
    question = chosen.document(1, 1).question
    spacing = question.grid().spacing
    columns = later_patients(draw, patients, slope)
    total = question.total(columns, spacing) * spacing + noise * draw.normal(size=question.cells)
    return question.answer(NoisedSum(total, noise, 1))


def later_patients(draw: np.random.Generator, patients: int, slope: float) -> Any:
    """Columns of so many patients of a window, whose logits are off by this slope."""
    logits = draw.normal(-1.66, 1.03, patients)
    outcome = (draw.random(patients) < 1 / (1 + np.exp(-slope * logits))).astype(float)
    return {PREDICTION: 1 / (1 + np.exp(-logits)), OUTCOME: outcome, "seen": np.zeros(patients)}
