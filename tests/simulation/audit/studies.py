"""A study of five hospitals that is small enough to be attacked in a test."""

from __future__ import annotations

from typing import Any

from private_learning.tasks import load
from simulation.audit.releases import AttackedStudy, Plant, audited
from simulation.population import Population
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings


def study(scheme: str = "parallel", plant: Plant | None = None, patients: int = 40, **options: Any) -> AttackedStudy:
    chosen = audited(settings(scheme, **({"max_steps": 6} | options)))
    task = load("logistic-regression", TASK_PARAMETERS)
    population = Population.of({f"h{i}": task.dataset(records(patients, seed=i)) for i in range(5)})
    made = AttackedStudy(chosen, task, population, chosen.privacy.honest_adders)
    return made if plant is None else AttackedStudy(chosen, task, population, made.watched, plant)
