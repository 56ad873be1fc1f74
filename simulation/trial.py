"""A trial of a study on one hospital's records: dealt out to several hospitals, and as if each had as many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from private_learning.tasks import Task, TaskDataset, of_study
from private_learning.tasks.multilabel import MultiLabel
from private_learning.tasks.regression import Regression
from simulation.backends.base import Loop, OpenBackend
from simulation.baselines import baselines
from simulation.engine import Engine, OnRound
from simulation.population import Population
from simulation.records import Dealer
from simulation.results.report import SeedSpread
from study_protocol.study.settings import StudySettings

# Rows of a trial's table.
STUDY, POOLED, ALONE, CONSTANT = "study", "without_privacy", "alone", "constant"
_METRICS = ("accuracy", "roc_auc", "rmse", "r2", "concordance")


@dataclass
class TrialResult:
    """Metrics on held-out records, of every seed.

    hospitals, patients  how many hospitals, and of how many patients each trains on
    measured             STUDY, POOLED, ALONE or CONSTANT -> the metrics of each seed, by name
    """

    hospitals: int
    patients: int
    measured: dict[str, list[Mapping[str, float]]] = field(default_factory=dict[str, "list[Mapping[str, float]]"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that are shown, the most important first."""
        return tuple(name for name in _METRICS if all(name in metrics for metrics in self.measured[STUDY]))

    def spread(self, row: str, metric: str) -> SeedSpread | None:
        """Return mean and standard deviation over the seeds, or None where a seed lacks the metric."""
        measured = self.measured.get(row, [])
        return SeedSpread.of([each[metric] for each in measured]) if all(metric in each for each in measured) else None

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        rows: dict[str, Any] = {}
        for row in self.measured:
            spreads = {metric: self.spread(row, metric) for metric in self.metrics}
            rows[row] = {metric: spread.to_dict() for metric, spread in spreads.items() if spread is not None}
        return {"hospitals": self.hospitals, "patients": self.patients, "metrics": rows}


@dataclass
class Trial:
    """Runs a study on one table, seed by seed.

    dealer    of one file: it holds patients out and deals the others out to the hospitals
    settings  patients of one hospital -> the study's settings for hospitals of this size
    backend   how hospitals are simulated
    """

    dealer: Dealer
    settings: Callable[[int], StudySettings]
    backend: OpenBackend = Loop
    dealt_out: TrialResult | None = None
    of_this_size: TrialResult | None = None

    def run(self, seed: int, on_round: OnRound | None = None) -> None:
        """Run one seed, twice.

        dealt_out     every hospital has its part of the training patients, and no patient is in two
        of_this_size  every hospital has all of them, so the noise is that of hospitals as large as this one. The
                      gain from other patients is not seen

        Raises:
            ClientStopped, StudyPaused, TrainingStopped, DataError: as `Engine.run` and `Dealer.deal`.
        """
        first = self.settings(1_000)
        task = of_study(first.training)
        dealt = self.dealer.deal(task, first, seed)
        assert dealt.test is not None
        parts, everyone = dealt.population, np.arange(len(dealt.population.dataset))
        copies = Population(parts.dataset, (everyone,) * len(parts), parts.names)
        references = baselines(task, parts, dealt.test, seed)
        constant = _constant(task, parts.everybody(), dealt.test, references.most_frequent)
        means = {name: float(np.mean([each[name] for each in references.alone])) for name in references.alone[0]}
        reached = [self._metrics(task, population, dealt.test, seed, on_round) for population in (parts, copies)]
        # Both together: a seed that is interrupted leaves nothing of itself.
        self.dealt_out = self.dealt_out or TrialResult(len(parts), _patients(parts))
        self.of_this_size = self.of_this_size or TrialResult(len(copies), _patients(copies))
        results = (self.dealt_out, self.of_this_size)
        for result, study, single in zip(results, reached, (means, references.pooled), strict=True):
            for row, metrics in ((STUDY, study), (POOLED, references.pooled), (ALONE, single), (CONSTANT, constant)):
                result.measured.setdefault(row, []).append(metrics)

    def _metrics(
        self, task: Task, population: Population, test: TaskDataset, seed: int, on_round: OnRound | None
    ) -> Mapping[str, float]:
        """Return the newest metrics of a study of these hospitals, empty if no model was measured."""
        settings = self.settings(_patients(population))
        outcome = Engine(settings, population, seed, self.backend, test=test, task=task).run(on_round)
        return next((each.metrics for each in reversed(outcome.rounds) if each.metrics), dict[str, float]())


def _patients(population: Population) -> int:
    return round(sum(map(len, population.rows)) / len(population))


def _constant(task: Task, train: TaskDataset, test: TaskDataset, most_frequent: float | None) -> dict[str, float]:
    """Return the metrics of one answer for all patients: the most frequent class, or the mean."""
    if most_frequent is not None:
        return {"accuracy": most_frequent, "roc_auc": 0.5}
    if isinstance(task, Regression):
        errors = task.outcomes(test.row_targets) - task.outcomes(train.row_targets).mean()
        return {"rmse": float(errors.square().mean().sqrt()), "r2": 0.0}
    if isinstance(task, MultiLabel):
        is_ill, usual = test.row_targets == 1, train.row_targets.nanmean(0) > 1 / 2
        present = ~test.row_targets.isnan()
        shares = ((is_ill == usual) & present).sum(0) / present.sum(0)
        return {"accuracy": float(shares.nanmean()), "roc_auc": 0.5}
    return {"concordance": 0.5}
