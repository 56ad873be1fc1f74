"""Training a part of a model on a public network, against training all of it, at the same ε.

python -m research.accuracy.transfer [mnist|pneumonia ...] [--quick]     about 25 minutes on one thread; writes the
results

Four ways with the convolutional network of the task `cnn`: everything from the task's own first weights, everything
from the public network, low-rank adapters on it, and its head alone on features. A fifth with the task `features` on
histograms of edge directions, which no data have made. All have the same rounds, sampling, noise multiplier and so ε,
and the same grid of clip norms and step sizes. For each way the setting
of the best mean accuracy on the validation records is chosen, over two seeds that are not reported; then the test
records are looked at once for each of the reported seeds. One seed has the same split and batches in all ways.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accounting import forecast, least_noise
from private_learning.tasks import Task, TaskDataset, of_study
from private_learning.training.features import Features
from private_learning.training.weights import load_weights, weights_of
from research.accuracy.transfer_data import CASES, HOSPITALS, TransferCase, of_rows, public_network
from simulation.backends.base import Loop
from simulation.baselines import metrics_of
from simulation.engine import Engine, initial_weights
from simulation.population import Population
from simulation.splits import iid
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "transfer.json"
EPSILON, DELTA = 1.0, 1e-5
ROUNDS, RATE = 40, 0.2
SEEDS, CHOOSING = tuple(range(100, 110)), (0, 1)
CLIPS = (0.3, 1.0)
# Of a step, which is at most learning rate × clip norm × (records drawn / expected batch size).
TRAVELS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
OWN, ALL, LOW_RANK, HEAD = "all, own first weights", "all, public weights", "lora:4", "head"
EDGES = "features, edge directions"
WAYS = (OWN, ALL, LOW_RANK, HEAD, EDGES)


@dataclass(frozen=True)
class TransferSetting:
    """What is chosen on the validation records."""

    clip_norm: float
    travel: float

    @property
    def learning_rate(self) -> float:
        return self.travel / self.clip_norm


GRID = tuple(TransferSetting(clip, travel) for clip in CLIPS for travel in TRAVELS)


@dataclass
class TransferBench:
    """One case with its public network in a file."""

    case: TransferCase
    backbone: Path
    sha256: str

    _made: dict[tuple[str, bool], list[TaskDataset]] = field(default_factory=dict[tuple[str, bool], list[TaskDataset]])

    def parts(self, way: str) -> list[TaskDataset]:
        """Training, validation and test records, as what is trained is given them."""
        task = self._task(way)
        features = Features.of(task)
        key = (self.settings(way, GRID[0], 1.0).training.task, features is not None)
        if key not in self._made:
            records = self.case.records()
            whole = [task.dataset(part) for part in (records.train, records.validation, records.test)]
            self._made[key] = whole if features is None else [features.of_dataset(part) for part in whole]
        return self._made[key]

    @cached_property
    def noise_multiplier(self) -> float:
        """The least that all rounds fit the limit with; depends on no record."""
        plan = plan_of(self.settings(OWN, GRID[0], 1.0))
        return least_noise(plan).noise_multiplier

    def _task(self, way: str) -> Task:
        return of_study(self.settings(way, GRID[0], 1.0).training, self.backbone)

    def task(self, way: str) -> Task:
        task = self._task(way)
        features = Features.of(task)
        return task if features is None else features.task()

    def settings(self, way: str, setting: TransferSetting, noise_multiplier: float) -> StudySettings:
        trained: dict[str, Any] = {"trainable": way, "backbone": {"sha256": self.sha256}}
        patients = {"mnist": 6000, "pneumonia": 4708}[next(n for n, c in CASES.items() if c is self.case)]
        training = {
            "task": "cnn",
            "task_parameters": self.case.parameters,
            "algorithm": "fedsgd",
            "local_steps": 1,
            "optimiser": {"name": "momentum", "learning_rate": setting.learning_rate},
            **({} if way in (OWN, ALL, EDGES) else trained),
            **({"task": "features", "task_parameters": self.case.edges} if way == EDGES else {}),
        }
        privacy = {
            "scheme": "parallel",
            "limits": [{"level": "instance", "definition": "classical", "epsilon": EPSILON, "delta": DELTA}],
            "clip_norm": setting.clip_norm,
            "client_clip_norm": None,
            "noise_multiplier": noise_multiplier,
            "sampling_rate": RATE,
            "expected_batch_size": RATE * patients / HOSPITALS,
            "client_sampling_rate": 1.0,
            "expected_clients": float(HOSPITALS),
            "max_steps": ROUNDS,
            "classical_order": 20.0,
            "bayesian": None,
            "disclosure": "at-end",
            "histogram_noise": None,
            "accounting_sample": None,
            "masking": None,
        }
        schedule = {"min_clients": 2, "round_deadline_seconds": 600.0}
        return StudySettings.model_validate(
            {"training": training, "privacy": privacy, "schedule": schedule, "beyond_bounds": True}
        )

    def study(self, way: str, setting: TransferSetting) -> StudySettings:
        """With the noise that the limit needs."""
        settings = self.settings(way, setting, self.noise_multiplier)
        order = least_noise(plan_of(settings)).classical_order
        values = settings.as_json()
        return StudySettings.model_validate(values | {"privacy": values["privacy"] | {"classical_order": order}})

    def first(self, way: str, task: Task, seed: int) -> Mapping[str, Array]:
        settings = self.settings(way, GRID[0], 1.0)
        weights = initial_weights(settings, seed, task)
        if way != ALL:
            return weights
        # The head is for other classes: it begins as the task makes it.
        public = weights_of(
            of_study(self.settings(HEAD, GRID[0], 1.0).training, self.backbone).model().requires_grad_()
        )
        return {name: array if name.startswith("7.") else public[name] for name, array in weights.items()}

    def accuracy(self, way: str, setting: TransferSetting, seed: int, *, judged_by: int) -> float:
        """judged_by: 1, the validation records; 2, the test records."""
        task, parts = self.task(way), self.parts(way)
        rows = iid(len(parts[0]), HOSPITALS, np.random.default_rng(seed))
        population = Population.split(of_rows(parts[0], np.arange(len(parts[0]))), rows)
        study = self.study(way, setting)
        engine = Engine(study, population, seed, Loop, weights=self.first(way, task, seed), task=task)
        outcome = engine.run()
        assert len(outcome.rounds) == ROUNDS
        model = task.model().eval()
        load_weights(model, outcome.result)
        return metrics_of(task, model, parts[judged_by])["accuracy"]


def compared(
    name: str,
    seeds: Sequence[int],
    choosing: Sequence[int],
    grid: Sequence[TransferSetting],
    recorded: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    """Everything that is reported of one case; known: results of before, of which nothing is computed again."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        bench = TransferBench(case, *public_network(case, Path(folder)))
        ways = {way: _way(bench, way, seeds, choosing, grid, recorded.get(way)) for way in WAYS}
        study = bench.study(OWN, grid[0])
        stated = forecast(plan_of(study), tight=False)
        test = bench.parts(OWN)[2].targets
    base = np.array(ways[OWN]["accuracies"])
    for way, result in ways.items():
        accuracies = np.array(result["accuracies"])
        result["mean"], result["standard_error"] = float(accuracies.mean()), _error(accuracies)
        if way != OWN:
            result["minus_all_own"] = {
                "mean": float((accuracies - base).mean()),
                "standard_error": _error(accuracies - base),
            }
    return {
        "about": case.about,
        "noise_multiplier": study.privacy.noise_multiplier,
        "rounds": stated.rounds,
        "most_frequent_class": float((test == test.mode().values).double().mean()),
        "ways": ways,
    }


def _way(
    bench: TransferBench,
    way: str,
    seeds: Sequence[int],
    choosing: Sequence[int],
    grid: Sequence[TransferSetting],
    recorded: dict[str, Any] | None,
) -> dict[str, Any]:
    before = [] if recorded is None else recorded["validation"]
    scores = {TransferSetting(trial["clip_norm"], trial["travel"]): float(trial["accuracy"]) for trial in before}
    for setting in grid:
        if setting not in scores:
            judged = [bench.accuracy(way, setting, seed, judged_by=1) for seed in choosing]
            scores[setting] = statistics.mean(judged)
    best = max(scores, key=lambda setting: scores[setting])
    if recorded is not None and recorded["chosen"] == asdict(best):
        return recorded | {
            "validation": [asdict(setting) | {"accuracy": accuracy} for setting, accuracy in scores.items()]
        }
    start = time.perf_counter()
    accuracies = [bench.accuracy(way, best, seed, judged_by=2) for seed in seeds]
    seconds = (time.perf_counter() - start) / len(seeds)
    print(f"{way}: {best}, test {statistics.mean(accuracies):.4f}, {seconds:.1f} s a study", flush=True)
    return {
        "numbers_that_travel": sum(array.size for array in bench.first(way, bench.task(way), 0).values()),
        "chosen": asdict(best),
        "validation": [asdict(setting) | {"accuracy": accuracy} for setting, accuracy in scores.items()],
        "accuracies": accuracies,
        "seconds_of_a_study": seconds,
    }


def markdown(results: dict[str, Any]) -> str:
    """The table of docs/experiments.md."""
    lines = [
        "| data | trained | numbers that travel | clip norm, step | test accuracy | beside all, own first weights |",
        "|---|---|---|---|---|---|",
    ]
    for name, case in results["cases"].items():
        for way, result in case["ways"].items():
            difference = result.get("minus_all_own")
            difference_text = (
                ""
                if difference is None
                else f"{100 * difference['mean']:+.1f} ± {100 * difference['standard_error']:.1f}"
            )
            settings_text = f"{result['chosen']['clip_norm']:g}, {result['chosen']['travel']:g}"
            reached = f"{100 * result['mean']:.1f} ± {100 * result['standard_error']:.1f}"
            lines.append(
                f"| {name} | {way} | {result['numbers_that_travel']:,} | {settings_text} | "
                f"{reached} | {difference_text} |"
            )
    return "\n".join(lines)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; none: all")
    parser.add_argument("--quick", action="store_true", help="one setting, two seeds; writes nothing")
    parser.add_argument("--missing", action="store_true", help="compute what the results lack alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds, choosing, grid = (SEEDS[:2], CHOOSING[:1], GRID[1:2]) if options.quick else (SEEDS, CHOOSING, GRID)
    header = {"epsilon": EPSILON, "delta": DELTA, "rounds": ROUNDS, "sampling_rate": RATE, "hospitals": HOSPITALS}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    results["study"] = header | {"seeds": list(seeds), "seeds_of_the_choice": list(choosing)}
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    for name in options.cases or CASES:
        print(f"{name}: {CASES[name].about}", flush=True)
        recorded = results["cases"].get(name, {}).get("ways", {}) if options.missing else {}
        results["cases"][name] = compared(name, seeds, choosing, grid, recorded)
        if not options.quick:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
