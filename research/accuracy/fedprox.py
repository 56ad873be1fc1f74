"""FedProx's term against none at the same ε, where hospitals differ: python -m research.accuracy.fedprox

Two splits: the four real hospitals of the heart disease set, where 33 to 95 % of patients are ill, and Adult
dealt to six hospitals in which the outcome has 5 to 60 %. Scheme parallel, 10 rounds of 20 local steps. All runs of a
split have the same noise and the same cost. For each µ the learning rate of the best mean log loss is chosen on the
held-out patients of three seeds that are not reported. One seed has the same split, batches and noise for every µ.
Results go to research/benchmarks/results/fedprox.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accounting import ClassicalAccountant, calibrate_noise
from client_sdk.released.scores import scores
from private_learning.records import Table
from private_learning.tasks import TaskDataset, load
from private_learning.training.weights import load_weights
from research.accuracy.defaults_tables import ADULT, adult
from simulation.backends.vectorised import Vectorised
from simulation.engine import Engine
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from wardround.demo.scenarios import heart_disease

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "fedprox.json"
EPSILON, DELTA = 4.0, 1e-5
ROUNDS, LOCAL_STEPS = 10, 20
PROXIMAL = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
LEARNING_RATES = (0.03, 0.06, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0)
SEEDS, CHOOSING = tuple(range(100, 120)), (0, 1, 2)
OUTCOME_RATES = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6)
ADULT_PATIENTS, ADULT_TEST = 600, 4000


@dataclass(frozen=True)
class ProximalSplit:
    """One dealing of records to hospitals."""

    task: str
    task_parameters: Mapping[str, Any]
    hospitals: Mapping[str, Table]
    test: Table


def heart(seed: int) -> ProximalSplit:
    """Four real hospitals. A fifth of each hospital's patients is held out."""
    scenario = heart_disease(seed)
    hospitals = {name: records for name, records in scenario.hospitals.items() if isinstance(records, Table)}
    if not isinstance(scenario.evaluation, Table):
        raise TypeError("the heart disease set is a table")
    return ProximalSplit(scenario.task, scenario.task_parameters, hospitals, scenario.evaluation)


@cache
def _adult() -> tuple[Table, np.ndarray]:
    frame, labels = adult()
    columns = {name: np.asarray(frame[name]) for name in ADULT}
    patients = np.arange(len(labels))
    return Table.of({**columns, "outcome": labels, "patient": patients}, patient_column="patient"), labels


def adult_by_outcome(seed: int) -> ProximalSplit:
    """Six hospitals of equal size and different outcome rates. The test set has the rate of all."""
    table, labels = _adult()
    order = np.random.default_rng([seed, 11]).permutation(len(labels))
    test, rest = order[:ADULT_TEST], order[ADULT_TEST:]
    pools = [list(rest[labels[rest] == value]) for value in (0, 1)]
    hospitals: dict[str, Table] = {}
    for place, rate in enumerate(OUTCOME_RATES):
        ill = round(ADULT_PATIENTS * rate)
        rows = [pools[value].pop() for value, count in ((0, ADULT_PATIENTS - ill), (1, ill)) for _ in range(count)]
        hospitals[f"hospital-{place}"] = table.take(np.array(rows))
    parameters = {"label": "outcome", **{f"column.{name}": text for name, text in ADULT.items()}}
    return ProximalSplit("logistic-regression", parameters, hospitals, table.take(test))


# Name -> (split, patients of a typical hospital, sampling rate).
CASES: dict[str, tuple[Callable[[int], ProximalSplit], float, float]] = {
    "heart disease, 4 hospitals": (heart, 184.0, 0.25),
    "Adult, 6 hospitals, outcome 5 to 60 %": (adult_by_outcome, float(ADULT_PATIENTS), 0.1),
}


class ProximalBench:
    """One split with its noise."""

    def __init__(self, name: str) -> None:
        self._split, self._patients, self._rate = CASES[name]
        steps = ROUNDS * LOCAL_STEPS
        self.noise_multiplier = calibrate_noise(epsilon=EPSILON, delta=DELTA, sampling_rate=self._rate, steps=steps)
        accountant = ClassicalAccountant(delta=DELTA)
        accountant.step(noise_multiplier=self.noise_multiplier, sampling_rate=self._rate, count=steps)
        self.epsilon = accountant.epsilon()
        self._parts: dict[int, tuple[ProximalSplit, Population, TaskDataset]] = {}

    def measure(self, seed: int, rate: float, proximal: float) -> tuple[float, float]:
        """Return (area under the ROC curve, log loss) of the last model on the held-out patients."""
        split, population, test = self._records(seed)
        settings = self._settings(split, len(population), rate, proximal)
        outcome = Engine(settings, population, seed, Vectorised).run()
        if len(outcome.rounds) != ROUNDS:
            raise RuntimeError(f"{len(outcome.rounds)} rounds of {ROUNDS}: the runs cannot be compared")
        task = load(split.task, split.task_parameters)
        model = task.model().eval()
        load_weights(model, outcome.result)
        with torch.no_grad():
            predicted = task.predictions(model(test.inputs).double()).numpy()
        result = scores(predicted, test.targets.numpy())
        return result.roc_auc or math.nan, result.log_loss

    def _records(self, seed: int) -> tuple[ProximalSplit, Population, TaskDataset]:
        if seed not in self._parts:
            split = self._split(seed)
            task = load(split.task, split.task_parameters)
            clients = {name: task.dataset(records) for name, records in split.hospitals.items()}
            self._parts[seed] = split, Population.of(clients), task.dataset(split.test)
        return self._parts[seed]

    def _settings(self, split: ProximalSplit, hospitals: int, rate: float, proximal: float) -> StudySettings:
        limit = {"level": "instance", "definition": "classical", "epsilon": 1.05 * EPSILON, "delta": DELTA}
        privacy = {
            "scheme": "parallel",
            "limits": [limit | {"enforcement": "fixed-plan"}],
            "clip_norm": 1.0,
            "client_clip_norm": None,
            "noise_multiplier": self.noise_multiplier,
            "sampling_rate": self._rate,
            "expected_batch_size": self._rate * self._patients,
            "client_sampling_rate": 1.0,
            "expected_clients": float(hospitals),
            "max_steps": ROUNDS * LOCAL_STEPS,
            "classical_order": 8.0,
            "bayesian": None,
            "disclosure": "at-end",
            "histogram_noise": None,
            "accounting_sample": None,
            "masking": None,
        }
        training = {
            "task": split.task,
            "task_parameters": dict(split.task_parameters),
            "algorithm": "fedavg",
            "local_steps": LOCAL_STEPS,
            "learning_rate": rate,
            "proximal": proximal,
        }
        schedule = {"min_clients": 2, "round_deadline_seconds": 600.0}
        values = {"training": training, "privacy": privacy, "schedule": schedule, "beyond_bounds": True}
        return StudySettings.model_validate(values)


def compared(bench: ProximalBench, seeds: Sequence[int], choosing: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield one row for every µ: its learning rate, its scores by seed, and the differences to µ = 0."""
    without: np.ndarray | None = None
    for proximal in PROXIMAL:
        log_losses = {
            rate: statistics.fmean(bench.measure(seed, rate, proximal)[1] for seed in choosing)
            for rate in LEARNING_RATES
            if rate * proximal <= 1
        }
        rate = min(log_losses, key=lambda learning_rate: log_losses[learning_rate])
        measured = np.array([bench.measure(seed, rate, proximal) for seed in seeds])
        without = measured if without is None else without
        difference = measured - without
        errors = difference.std(axis=0, ddof=1) / math.sqrt(len(seeds))
        yield {
            "proximal": proximal,
            "learning_rate": rate,
            "tried": log_losses,
            "roc_auc": measured[:, 0].tolist(),
            "log_loss": measured[:, 1].tolist(),
            "roc_auc_difference": [float(difference[:, 0].mean()), float(errors[0])],
            "log_loss_difference": [float(difference[:, 1].mean()), float(errors[1])],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three seeds. Nothing is written")
    options = parser.parse_args()
    seeds = SEEDS[:3] if options.quick else SEEDS
    results: dict[str, Any] = {}
    for name in CASES:
        bench = ProximalBench(name)
        print(f"{name}: ε {bench.epsilon:.3f}, noise multiplier {bench.noise_multiplier:.3f}", flush=True)
        rows = list[dict[str, Any]]()
        for row in compared(bench, seeds, CHOOSING[:1] if options.quick else CHOOSING):
            rows.append(row)
            means = [statistics.fmean(row[measure]) for measure in ("roc_auc", "log_loss")]
            (auc, auc_error), (loss, loss_error) = row["roc_auc_difference"], row["log_loss_difference"]
            print(
                f"  µ {row['proximal']:<5g} rate {row['learning_rate']:<5g} AUC {means[0]:.4f} ({auc:+.4f} ± "
                f"{auc_error:.4f})  log loss {means[1]:.4f} ({loss:+.4f} ± {loss_error:.4f})",
                flush=True,
            )
        results[name] = {
            "epsilon": bench.epsilon,
            "delta": DELTA,
            "noise_multiplier": bench.noise_multiplier,
            "rounds": ROUNDS,
            "local_steps": LOCAL_STEPS,
            "seeds": list(seeds),
            "rows": rows,
        }
    if not options.quick:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
