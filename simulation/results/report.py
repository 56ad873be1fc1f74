"""The results of a simulation, over its seeds: as JSON, and as the numbers that its tables and charts show."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from accounting.units import PRIVACY_LOSS_DISTRIBUTION
from simulation.baselines import Baselines
from simulation.engine import RoundShown, SimulationOutcome
from study_protocol.study.settings import StudySettings


@dataclass(frozen=True)
class SeedRun:
    """One seed.

    plain   the same rounds without noise. None, as `beside`, where no comparison was asked for, or it failed
    missed  comparisons that failed, and why
    """

    seed: int
    clients: int
    records: int
    outcome: SimulationOutcome
    plain: tuple[RoundShown, ...] | None
    beside: Baselines | None
    missed: tuple[str, ...] = ()

    def without(self, comparison: str, error: Exception) -> SeedRun:
        """Return the same run, where this comparison failed."""
        return replace(
            self, missed=(*self.missed, f"seed {self.seed}, nothing to compare with ({comparison}): {error}")
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON, without the weights."""
        outcome = self.outcome
        return {
            "seed": self.seed,
            "clients": self.clients,
            "records": self.records,
            "rounds": [asdict(view) for view in outcome.rounds],
            "stop_reason": outcome.stop_reason,
            "limits": outcome.statements,
            "ledger": [{"kind": e.kind, "round": e.round, **e.body} for e in outcome.events],
            "without_noise": None if self.plain is None else [asdict(view) for view in self.plain],
            "baselines": None if self.beside is None else asdict(self.beside),
            "missed": list(self.missed),
        }


@dataclass(frozen=True)
class SeedSpread:
    """Mean over the seeds, and their standard deviation. None for one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedSpread | None:
        """None: there are none."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def to_dict(self) -> dict[str, float | None]:
        return {"mean": self.mean, "standard_deviation": self.deviation}


@dataclass(frozen=True)
class ReportPoint:
    """After so many released models: the metric, and ε of every limit as the costliest seed has it."""

    released: int
    metric: SeedSpread | None
    spent: tuple[float | None, ...]


@dataclass(frozen=True)
class SimulationReport:
    """All runs of one simulation. metric: the one that is shown, by its name. None: there was no measurement."""

    settings: StudySettings
    backend: str
    runs: tuple[SeedRun, ...]

    @property
    def metric(self) -> str | None:
        """Accuracy where the task has it, else its first."""
        metrics = next((r.metrics for run in self.runs for r in run.outcome.rounds if r.metrics), None)
        if metrics is None:
            return None
        return "accuracy" if "accuracy" in metrics else next(iter(metrics))

    def points(self) -> list[ReportPoint]:
        """By the number of released models, as long as every seed has so many."""
        released = [[view for view in run.outcome.rounds if view.reason is None] for run in self.runs]
        points: list[ReportPoint] = []
        for number, views in enumerate(zip(*released, strict=False), start=1):
            spent = zip(*(view.spent for view in views), strict=True)
            points.append(
                ReportPoint(number, self._spread(view.metrics for view in views), tuple(map(_max_spent, spent)))
            )
        return points

    def running(self) -> dict[str, float | None]:
        """Return by limit the running ε at the end, of the costliest seed, as a budget states it beside the guarantee.

        None where no finite one covers it.
        """
        epsilons: dict[str, list[float | None]] = {}
        for run in self.runs:
            for limit in run.outcome.statements:
                running = [r["epsilon"] for r in limit["reports"] if r["name"] == PRIVACY_LOSS_DISTRIBUTION]
                if running:
                    epsilons.setdefault(f"{limit['level']} {limit['definition']}", []).extend(running)
        return {name: _max_spent(values) for name, values in epsilons.items()}

    @property
    def reached(self) -> SeedSpread | None:
        """Of the last model of every seed."""
        return self._spread(_last(run.outcome.rounds) for run in self.runs)

    @property
    def without_noise(self) -> SeedSpread | None:
        """After the same number of rounds."""
        return self._spread(_last(run.plain) for run in self.runs if run.plain is not None)

    @property
    def pooled(self) -> SeedSpread | None:
        """Return the metric of one model on all records."""
        return self._spread(run.beside.pooled for run in self.runs if run.beside is not None)

    @property
    def single_client(self) -> SeedSpread | None:
        """A client by itself, on average."""
        return self._spread(_mean_of(run.beside.alone) for run in self.runs if run.beside is not None)

    @property
    def frequent_class(self) -> SeedSpread | None:
        """Always the most frequent class."""
        if self.metric != "accuracy":
            return None
        shares = [run.beside.most_frequent for run in self.runs if run.beside is not None]
        return SeedSpread.of([value for value in shares if value is not None])

    def warnings(self) -> list[str]:
        """Return warnings that should come before the study: it is no better than doing without."""
        reached, warnings = self.reached, list[str]()
        if reached is None or self.metric != "accuracy":
            return warnings
        if self.single_client is not None and reached.mean <= self.single_client.mean:
            warnings.append("a hospital alone does better on average: no hospital gains from the study")
        if self.frequent_class is not None and reached.mean <= self.frequent_class.mean:
            warnings.append(f"always saying the most frequent class does as well: {self._why_nothing_is_learnt()}")
        return warnings

    def _why_nothing_is_learnt(self) -> str:
        pooled, frequent = self.pooled, self.frequent_class
        if pooled is not None and frequent is not None and pooled.mean <= frequent.mean:
            return "one model on all records without privacy does no better. More budget does not help, columns may"
        return "the noise leaves nothing of the model"

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        labelled = {
            "reached": self.reached,
            "without_noise": self.without_noise,
            "pooled": self.pooled,
            "alone": self.single_client,
            "most_frequent": self.frequent_class,
        }
        return {
            "settings": self.settings.as_json(),
            "backend": self.backend,
            "metric": self.metric,
            "summary": {name: None if spread is None else spread.to_dict() for name, spread in labelled.items()},
            "warnings": self.warnings(),
            "seeds": [run.to_dict() for run in self.runs],
        }

    def _spread(self, measured: Any) -> SeedSpread | None:
        name = self.metric
        return None if name is None else SeedSpread.of([metrics[name] for metrics in measured if name in metrics])


def _last(rounds: Sequence[RoundShown]) -> Mapping[str, float]:
    return next((view.metrics for view in reversed(rounds) if view.metrics), dict[str, float]())


def _mean_of(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(metrics[name] for metrics in measured) for name in (measured[0] if measured else ())}


def _max_spent(spent: Sequence[float | None]) -> float | None:
    """None stands for no finite ε, which is the most."""
    numbers = [value for value in spent if value is not None]
    return max(numbers) if len(numbers) == len(spent) and all(map(math.isfinite, numbers)) else None
