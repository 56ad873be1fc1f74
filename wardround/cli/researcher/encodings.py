"""Other encodings of a study's columns, under the same seeds: `wardround simulate --compare-encodings`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from client_sdk.errors import ConfigurationError
from client_sdk.study.cell_counts import parts_of
from private_learning.records import Records, Table
from private_learning.tasks import load
from private_learning.tasks.columns import PREFIX
from private_learning.tasks.declared_columns import CategoryColumn, Declared, Floats
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.tables import TableTask
from private_learning.tasks.typical import column_text, fitted_column, known_values
from simulation.results.report import SeedRun, SeedSpread, SimulationReport
from simulation.runs import Simulation
from study_protocol.study.settings import StudySettings
from wardround.cli.shared.shared import print_json, say, table

DECLARED = "as declared"
_RANGES, _TYPICAL, _LOGARITHMS = "ranges alone", "typical ranges and frequencies", "with logarithms"
# No further seed begins after so many seconds. One seed says nothing about the spread.
_SECONDS, _MIN_SEEDS = 90.0, 3


@dataclass(frozen=True)
class EncodingRuns:
    """One way to encode the columns, with its runs by seed.

    columns  name -> description, of the columns whose description is not the study's own
    """

    name: str
    columns: dict[str, str] = field(repr=False)
    report: SimulationReport

    def gain(self, baseline: EncodingRuns) -> SeedSpread | None:
        """Return the metric less that of the study's own encodings, seed by seed. None where a seed has none."""
        pairs = zip(self.report.runs, baseline.report.runs, strict=True)
        ends = [(_reached(self.report, run), _reached(baseline.report, own_run)) for run, own_run in pairs]
        return SeedSpread.of([end - of_own for end, of_own in ends if end is not None and of_own is not None])

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        reached = self.report.reached
        return {
            "name": self.name,
            "columns": self.columns,
            "seeds": [run.seed for run in self.report.runs],
            "metric": self.report.metric,
            "reached": None if reached is None else reached.to_dict(),
        }


def compare_encodings(
    simulation: Simulation, seeds: Sequence[int], seconds: float, clock: Callable[[], float] = time.monotonic
) -> tuple[EncodingRuns, ...]:
    """Run a study with its own encodings, and with others, which are made of all records of the simulation.

    Every way runs under the same seeds, so the same patients are held out and the same noise is drawn. After `seconds`
    no further seed begins.

    Raises:
        ConfigurationError: the task does not read declared columns.
        DataError: as `Simulation.run`.
    """
    settings = simulation.settings
    ways = dict(encodings_of(settings, simulation.dealer.source.files))
    simulations = {
        name: replace(simulation, settings=_encoded(settings, columns), compares=False, checkpoints=None)
        for name, columns in ways.items()
    }
    runs: dict[str, list[SeedRun]] = {name: [] for name in ways}
    begin = clock()
    for seed in seeds:
        if clock() - begin >= seconds and runs[DECLARED]:
            break
        for name, changed in simulations.items():
            runs[name].append(changed.run(seed))
    return tuple(
        EncodingRuns(name, columns, SimulationReport(simulations[name].settings, simulation.backend, tuple(runs[name])))
        for name, columns in ways.items()
    )


def encodings_of(settings: StudySettings, files: Sequence[Records]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ways to encode the columns: each by its name, and the columns that it describes otherwise.

    The study's own comes first. Of ways that are the same, the first is kept.

    Raises:
        ConfigurationError: the task does not read declared columns.
    """
    task = load(settings.training.task, settings.training.task_parameters)
    tables = [records for records in files if isinstance(records, Table)]
    if not isinstance(task, TableTask) or not tables:
        raise ConfigurationError("--compare-encodings is for tasks that read the columns of a table")
    earlier: list[Sequence[Declared]] = []
    for name, columns in _ways(task.columns, tables).items():
        if columns not in earlier:
            earlier.append(columns)
            pairs = zip(columns, task.columns, strict=True)
            yield name, {column.name: column_text(column) for column, declared in pairs if column != declared}


def _ways(columns: Sequence[Declared], tables: Sequence[Table]) -> dict[str, Sequence[Declared]]:
    values = {column.name: _values(column, tables) for column in columns}
    return {
        DECLARED: columns,
        _RANGES: tuple(_plain(column) for column in columns),
        _TYPICAL: tuple(fitted_column(column, values[column.name], logarithm=False) or column for column in columns),
        _LOGARITHMS: tuple(fitted_column(column, values[column.name]) or column for column in columns),
    }


def _values(column: Declared, tables: Sequence[Table]) -> Floats:
    parts = (part for table in tables for part in parts_of(with_lacking([column], table)))
    return np.concatenate([known_values(column, part.columns[column.name]) for part in parts])


def _plain(column: Declared) -> Declared:
    if isinstance(column, CategoryColumn):
        return replace(column, shares=())
    return replace(column, typical=None, log=False)


def _encoded(settings: StudySettings, columns: dict[str, str]) -> StudySettings:
    values = settings.as_json()
    values["training"]["task_parameters"] |= {f"{PREFIX}{name}": text for name, text in columns.items()}
    return StudySettings.model_validate(values)


def _reached(report: SimulationReport, run: SeedRun) -> float | None:
    reached = replace(report, runs=(run,)).reached
    return None if reached is None else reached.mean


def compare(simulation: Simulation, first_seed: int, seeds: int, *, as_json: bool) -> None:
    """Print what a study reaches with its own encodings and with others, under the same seeds.

    Raises:
        ConfigurationError: the task does not read declared columns.
    """
    seeds = max(seeds, _MIN_SEEDS)
    encodings = compare_encodings(simulation, range(first_seed, first_seed + seeds), _SECONDS)
    if as_json:
        print_json({"encodings": [encoding.to_dict() for encoding in encodings]})
    else:
        _show(encodings, seeds)


def _show(encodings: Sequence[EncodingRuns], seeds: int) -> None:
    baseline, *alternatives = encodings
    count, metric = len(baseline.report.runs), baseline.report.metric or "metric"
    rows = [[baseline.name, _spread(baseline.report.reached), ""]]
    rows += [
        [encoding.name, _spread(encoding.report.reached), _spread(encoding.gain(baseline), sign="+")]
        for encoding in alternatives
    ]
    table(f"Encodings, {count} seeds, the same limits", ["columns", metric, f"beside {baseline.name}"], rows)
    if count < seeds:
        say(f"note: after {_SECONDS:g} seconds no further of the {seeds} seeds began", err=True)
    if alternatives and alternatives[-1].columns:
        say(f"{alternatives[-1].name}, from these records:")
        for name, text in alternatives[-1].columns.items():
            say(f'  "column.{name}" = "{text}"')
        say(
            "These numbers are computed from the records. Settings with them would show patients' values to everyone, "
            "outside every budget. Write numbers from public knowledge, or ask the hospitals for quantiles"
        )


def _spread(value: SeedSpread | None, sign: str = "") -> str:
    if value is None:
        return ""
    mean = f"{value.mean:{sign}.3f}"
    return mean if value.deviation is None else f"{mean} ± {value.deviation:.3f}"
