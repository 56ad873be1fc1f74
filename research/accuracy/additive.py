"""Areas under the ROC curve of task additive, logistic regression and DP-EBM, on five tables.

    python -m research.accuracy.additive --peer PYTHON [--seeds 8] [--out research/benchmarks/results/additive.json]

The first two are trained as a study under masks does: every record's gradient clipped, each hospital's noise, settings
of `wardround plan --suggest`, columns by ranges alone (or with --typical). DP-EBM of interpret 0.7.8 (Nori et al. 2021)
has all records in one place, and the same ranges. `--peer` names a Python with interpret-core, left out: not compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.tasks.columns import encode_columns
from private_learning.tasks.curves import curve_column
from private_learning.tasks.declared_columns import Declared, NumberColumn
from private_learning.tasks.ranking import area
from research.accuracy import defaults_tables as tables
from research.accuracy.defaults_data import HELD_OUT, declared_as
from research.accuracy.defaults_run import DefaultsStudy, noise_multiplier
from research.accuracy.defaults_tables import Floats, Labels
from study_protocol.study import suggestion
from study_protocol.study.suggestion import PublicNumbers
from wardround.demo.scenarios import HEART_DISEASE
from wardround.demo.scenarios import heart_disease as heart_disease_scenario

EPSILONS = (1.0, 2.0)
BINS = 32
PEER = Path(__file__).with_name("additive_peer.py")
Loaded = tuple[Mapping[str, Any], Labels]


@dataclass(frozen=True, eq=False)
class AdditiveTable:
    """hospitals of records each, or of all there are (None)."""

    name: str
    described: Mapping[str, str]
    load: Callable[[], Loaded]
    hospitals: int
    records: int | None


@dataclass(frozen=True)
class AreaRow:
    """Areas of each seed. peer: DP-EBM's, empty where it was not run. offered: whether --suggest advises the task."""

    table: str
    epsilon: float
    patients: int
    offered: bool
    linear: list[float]
    additive: list[float]
    peer: list[float]


def _heart() -> Loaded:
    scenario: Any = heart_disease_scenario(0)
    parts = [*scenario.hospitals.values(), scenario.evaluation]
    frame = {name: np.concatenate([part.numbers(name) for part in parts]) for name in HEART_DISEASE}
    labels = np.concatenate([part.numbers(scenario.task_parameters["label"]) for part in parts])
    return frame, labels.astype(np.int64)


def _intensive() -> Loaded:
    load = tables.of_intensive(tables.INTENSIVE, lambda frame: frame["hospitaldischargestatus"] == "Expired")
    return load()[:2]


TABLES = (
    AdditiveTable("heart disease", HEART_DISEASE, _heart, 4, None),
    AdditiveTable("abalone", tables.ABALONE, tables.of_abalone(10), 8, 400),
    AdditiveTable("adult", tables.ADULT, tables.adult, 10, 1000),
    AdditiveTable(
        "diabetes-130", tables.STAYS, tables.of_stays(tables.STAYS, lambda frame: frame["readmitted"] != "NO"), 6, 500
    ),
    AdditiveTable("eICU, death", tables.INTENSIVE, _intensive, 4, None),
)


@dataclass(frozen=True)
class DealtTable:
    """One dealing. columns: as declared. train, test: rows of the table."""

    frame: Mapping[str, Any]
    columns: tuple[Declared, ...]
    labels: Labels
    train: Labels
    test: Labels

    def inputs(self, columns: tuple[Declared, ...]) -> Floats:
        """Return (rows, inputs) of the whole table, and a last column of ones."""
        encoded = encode_columns(columns, {column.name: self.frame[column.name] for column in columns})
        return np.column_stack([encoded, np.ones(len(self.labels))])


@cache
def _loaded(table: AdditiveTable, typical: bool) -> tuple[Loaded, tuple[Declared, ...]]:
    frame, labels = table.load()
    return (frame, labels), declared_as(table.described, frame, typical)


def dealt(table: AdditiveTable, seed: int, typical: bool) -> DealtTable:
    (frame, labels), columns = _loaded(table, typical)
    order = np.random.default_rng([seed, 7]).permutation(len(labels))
    held_out = round(HELD_OUT * len(labels))
    records = table.records or (len(labels) - held_out) // table.hospitals
    train = order[held_out : held_out + table.hospitals * records]
    return DealtTable(frame, columns, labels, train, order[: min(held_out, 8_000)])


def trained(inputs: Floats, labels: Labels, noise: float, rate: float, random: np.random.Generator) -> Floats:
    """Return the (inputs,) weights after suggestion.ROUNDS rounds, averaged as suggested.

    noise: of all hospitals together, as a multiple of the clip norm
    """
    weights, mean, total = np.zeros(inputs.shape[1]), np.zeros(inputs.shape[1]), 0.0
    lengths, clip = np.linalg.norm(inputs, axis=1), suggestion.CLIP_NORM
    decay = suggestion.AVERAGING.decay
    for _ in range(suggestion.ROUNDS):
        signals = 1 / (1 + np.exp(-np.clip(inputs @ weights, -60, 60))) - labels
        signals *= np.minimum(1.0, clip / np.maximum(np.abs(signals) * lengths, 1e-12))
        step = inputs.T @ signals + noise * clip * random.standard_normal(len(weights))
        weights = weights - rate * step / len(inputs)
        mean, total = decay * mean + (1 - decay) * weights, decay * total + 1 - decay
    return mean / total


def _areas(table: AdditiveTable, data: DealtTable, epsilon: float, seed: int) -> tuple[bool, float, float]:
    """Return whether the task is offered, and the areas of logistic regression and of the additive model."""
    study = DefaultsStudy("sequential", epsilon, table.hospitals)
    multiplier = noise_multiplier("sequential", study.counted, epsilon, 1.0, suggestion.ROUNDS, study.enforcement)
    noise, areas = multiplier * table.hospitals**0.5, list[float]()
    linear, patients = data.inputs(data.columns), len(data.train) / table.hospitals
    ranges = sum(isinstance(column, NumberColumn) and not (column.typical or column.log) for column in data.columns)
    numbers = PublicNumbers(
        table.hospitals, patients, round(patients), linear.shape[1], ranges=ranges / len(data.columns)
    )
    of_all = suggestion.relative_noise(numbers, multiplier, suggestion.ROUNDS)
    of_one = suggestion.relative_noise(replace(numbers, parameters=1), multiplier, suggestion.ROUNDS)
    curves = data.inputs(tuple(curve_column(column, BINS) for column in data.columns))
    for inputs, rate in (
        (linear, suggestion.learning_rate(of_all, suggestion.ROUNDS)),
        (curves, suggestion.additive_learning_rate(of_one, suggestion.ROUNDS)),
    ):
        weights = trained(inputs[data.train], data.labels[data.train], noise, rate, np.random.default_rng([seed, 3]))
        areas.append(area(inputs[data.test] @ weights, data.labels[data.test] == 1))
    return suggestion.offers_curves(numbers, of_one), areas[0], areas[1]


def _of_peer(python: str, data: DealtTable, epsilon: float, seed: int) -> float:
    """Return the area of DP-EBM, in a process of its own Python. It gets the stand-ins of missing numbers."""
    cells, kinds = list[Floats](), list[list[float] | None]()
    for column in data.columns:
        read = column.read(data.frame[column.name])
        if isinstance(column, NumberColumn):
            values = np.where(np.isnan(read.values), column.missing or 0.0, read.values)
            cells.append(np.clip(values, column.low, column.high))
            kinds.append([column.low, column.high])
        else:
            cells.append(read.places.astype(np.float64))
            kinds.append(None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        np.savez(path, cells=np.column_stack(cells), labels=data.labels, train=data.train, test=data.test)
        command = [python, str(PEER), str(path), json.dumps(kinds), str(epsilon), str(seed)]
        scores = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return area(np.array(scores), data.labels[data.test] == 1)


def measured(table: AdditiveTable, epsilon: float, seeds: int, peer: str | None, typical: bool) -> AreaRow:
    row = AreaRow(table.name, epsilon, 0, False, [], [], [])
    for seed in range(seeds):
        data = dealt(table, seed, typical)
        offered, linear, additive = _areas(table, data, epsilon, seed)
        row = replace(row, patients=len(data.train), offered=offered)
        row.linear.append(linear)
        row.additive.append(additive)
        if peer is not None:
            row.peer.append(_of_peer(peer, data, epsilon, seed))
    return row


def line(row: AreaRow) -> str:
    gains = np.array(row.additive) - np.array(row.linear)
    error = gains.std(ddof=1) / len(gains) ** 0.5
    peer = f"{np.mean(row.peer):.4f}" if row.peer else "–"
    return (
        f"{row.table:15} {row.patients:6} ε {row.epsilon:g}  linear {np.mean(row.linear):.4f}  additive "
        f"{np.mean(row.additive):.4f}  gain {gains.mean():+.4f} ± {error:.4f}  DP-EBM {peer}"
        f"{'  offered' if row.offered else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--peer", help="Python with interpret-core 0.7.8")
    parser.add_argument("--typical", action="store_true", help="columns with typical ranges, logarithms, frequencies")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = list[AreaRow]()
    for table in TABLES:
        for epsilon in EPSILONS:
            rows.append(measured(table, epsilon, options.seeds, options.peer, options.typical))
            sys.stdout.write(line(rows[-1]) + "\n")
            sys.stdout.flush()
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
