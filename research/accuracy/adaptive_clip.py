"""A fixed clip norm beside an adaptive one at the same ε: from a good norm, from one 4 times too large, and too small.

python -m research.accuracy.adaptive_clip [heart-disease|mnist ...] [--quick]    about 15 minutes; writes the results

Every way has the same rounds, sampling, noise multiplier, learning rate and so ε. The good norm and the learning rate
are chosen for the fixed norm, by the mean accuracy over two seeds that are not reported. One seed has the same split,
batches and start in all ways. The adaptive norm follows the median or the quantile 0.2, at rate 0.2.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accounting import least_noise
from private_learning.tasks import TaskDataset, of_study
from private_learning.training.weights import load_weights
from simulation.backends.base import Loop
from simulation.baselines import metrics_of
from simulation.engine import Engine
from simulation.population import Population
from study_protocol.study.adaptive_clip import AdaptiveClip
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from wardround.demo.scenarios import Scenario, heart_disease, mnist

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "adaptive_clip.json"
DELTA, CLIENTS = 1e-4, 4
SEEDS, CHOOSING = tuple(range(100, 108)), (0, 1)
STARTS = {"good": 1.0, "4 times too large": 4.0, "4 times too small": 0.25}
QUANTILES, RATE = (0.5, 0.2), 0.2


@dataclass(frozen=True)
class ClipCase:
    """records: patients of a typical hospital. clips, travels: where the good norm and its step are looked for.

    travel  learning rate × clip norm
    """

    scenario: Callable[[int], Scenario]
    epsilon: float
    rounds: int
    sampling_rate: float
    records: int
    clips: tuple[float, ...]
    travels: tuple[float, ...]


CASES: Mapping[str, ClipCase] = {
    "heart-disease": ClipCase(heart_disease, 4.0, 20, 0.5, 184, (0.25, 0.5, 1.0, 2.0, 4.0), (1.0, 2.0, 4.0, 8.0)),
    "mnist": ClipCase(lambda seed: mnist(CLIENTS, 800, seed), 2.0, 30, 0.1, 800, (0.3, 0.6, 1.2), (9.0, 27.0, 81.0)),
}


@lru_cache(maxsize=len(CASES))
def _sample(case: ClipCase) -> Scenario:
    return case.scenario(0)


@dataclass(frozen=True)
class ClipChoice:
    """What is chosen for the fixed norm."""

    clip_norm: float
    learning_rate: float


def study(
    case: ClipCase, choice: ClipChoice, quantile: float | None = None, *, noise_multiplier: float = 1.0
) -> StudySettings:
    """Return a study of scheme parallel in the clear. quantile: None for a fixed norm."""
    sample = _sample(case)
    adaptive = None if quantile is None else AdaptiveClip(quantile=quantile, rate=RATE)
    privacy = {
        "scheme": "parallel",
        "limits": [{"level": "instance", "definition": "classical", "epsilon": case.epsilon, "delta": DELTA}],
        "clip_norm": choice.clip_norm,
        "client_clip_norm": None,
        "noise_multiplier": noise_multiplier,
        "sampling_rate": case.sampling_rate,
        "expected_batch_size": case.sampling_rate * case.records,
        "client_sampling_rate": 1.0,
        "expected_clients": float(CLIENTS),
        "max_steps": case.rounds,
        "classical_order": 8.0,
        "bayesian": None,
        "disclosure": "at-end",
        "histogram_noise": None,
        "accounting_sample": None,
        "masking": None,
        **({} if adaptive is None else {"adaptive_clip": adaptive.model_dump(mode="json")}),
    }
    training = {
        "task": sample.task,
        "task_parameters": dict(sample.task_parameters),
        "algorithm": "fedsgd",
        "local_steps": 1,
        "optimiser": {"name": "plain", "learning_rate": choice.learning_rate},
    }
    schedule = {"min_clients": 2, "round_deadline_seconds": 600.0}
    return StudySettings.model_validate(
        {"training": training, "privacy": privacy, "schedule": schedule, "beyond_bounds": True}
    )


class ClipBench:
    """One case with the noise that its limit needs, and its records by seed."""

    def __init__(self, case: ClipCase) -> None:
        self.case = case
        plan = least_noise(plan_of(study(case, ClipChoice(1.0, 1.0))))
        self.noise_multiplier, self._order = plan.noise_multiplier, plan.classical_order
        self._parts: dict[int, tuple[Population, TaskDataset]] = {}

    def settings(self, choice: ClipChoice, quantile: float | None) -> StudySettings:
        values = study(self.case, choice, quantile, noise_multiplier=self.noise_multiplier).as_json()
        return StudySettings.model_validate(values | {"privacy": values["privacy"] | {"classical_order": self._order}})

    def accuracy(self, choice: ClipChoice, seed: int, quantile: float | None = None) -> float:
        """Return the accuracy of the last model on the held-out patients."""
        settings = self.settings(choice, quantile)
        task = of_study(settings.training)
        population, test = self._records(seed, settings)
        outcome = Engine(settings, population, seed, Loop).run()
        if len(outcome.rounds) != self.case.rounds:
            raise RuntimeError(f"{len(outcome.rounds)} rounds of {self.case.rounds}: the ways cannot be compared")
        model = task.model().eval()
        load_weights(model, outcome.result)
        return metrics_of(task, model, test)["accuracy"]

    def _records(self, seed: int, settings: StudySettings) -> tuple[Population, TaskDataset]:
        if seed not in self._parts:
            scenario, task = self.case.scenario(seed), of_study(settings.training)
            hospitals = {name: task.dataset(records) for name, records in scenario.hospitals.items()}
            self._parts[seed] = Population.of(hospitals), task.dataset(scenario.evaluation)
        return self._parts[seed]

    def choose(self, seeds: Sequence[int]) -> ClipChoice:
        """Return the norm and the learning rate of the best mean accuracy with a fixed norm."""
        grid = [ClipChoice(clip, travel / clip) for clip in self.case.clips for travel in self.case.travels]

        def score(choice: ClipChoice) -> float:
            return statistics.mean(self.accuracy(choice, seed) for seed in seeds)

        return max(grid, key=score)

    def compared(self, choice: ClipChoice, seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (start, accuracies with the fixed norm and with each quantile, and the differences) for every start."""
        for name, factor in STARTS.items():
            start = ClipChoice(choice.clip_norm * factor, choice.learning_rate)
            fixed = np.array([self.accuracy(start, seed) for seed in seeds])
            row: dict[str, Any] = {"clip_norm": start.clip_norm, "fixed": fixed.tolist(), "adaptive": {}}
            for quantile in QUANTILES:
                moving = np.array([self.accuracy(start, seed, quantile) for seed in seeds])
                difference = {"mean": float((moving - fixed).mean()), "standard_error": _error(moving - fixed)}
                row["adaptive"][f"{quantile:g}"] = {"accuracies": moving.tolist(), "difference": difference}
            print(f"  {name}: {fixed.mean():.4f}", flush=True)
            yield name, row


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table of the results."""
    header = " | ".join(f"quantile {quantile:g}, points" for quantile in QUANTILES)
    lines = [f"| data | first norm | fixed | {header} |", "|---|---|---|" + "---|" * len(QUANTILES)]
    for name, case in results.items():
        for start, row in case["starts"].items():
            differences = [moving["difference"] for moving in row["adaptive"].values()]
            points = " | ".join(f"{100 * d['mean']:+.1f} ± {100 * d['standard_error']:.1f}" for d in differences)
            fixed = 100 * statistics.mean(row["fixed"])
            lines.append(f"| {name} | {start}, {row['clip_norm']:g} | {fixed:.1f} % | {points} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; none: all")
    parser.add_argument("--quick", action="store_true", help="two seeds; writes nothing")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    seeds, choosing = (SEEDS[:2], CHOOSING[:1]) if options.quick else (SEEDS, CHOOSING)
    results: dict[str, Any] = {}
    for name in options.cases or CASES:
        bench = ClipBench(CASES[name])
        choice = bench.choose(choosing)
        print(f"{name}: noise multiplier {bench.noise_multiplier:.3g}, {choice}", flush=True)
        results[name] = {
            "epsilon": CASES[name].epsilon,
            "delta": DELTA,
            "rounds": CASES[name].rounds,
            "noise_multiplier": bench.noise_multiplier,
            "chosen": asdict(choice),
            "seeds": list(seeds),
            "starts": dict(bench.compared(choice, seeds)),
        }
        if not options.quick:
            # Read anew: the other case may have been written meanwhile.
            recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(recorded | {name: results[name]}, indent=1) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()
