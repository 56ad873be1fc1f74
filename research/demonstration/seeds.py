"""Does taking part pay, and how often? The demonstration's study over many seeds of noise, and over other dealings.

    python -m research.demonstration.seeds --out research/benchmarks/results/demo_seeds.json

Nothing is chosen here: settings are those of the demonstration, and the evaluation set is only reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.tasks import load
from research.demonstration.mechanism import arrays, models, right
from simulation.baselines import fitted
from wardround.demo.averaged import shares_of
from wardround.demo.baselines import accuracy
from wardround.demo.scenarios import Scenario, breast_cancer, heart_disease
from wardround.demo.settings import SETTINGS_BY_SCHEME, settings

EPSILONS = (1.0, 2.0, 3.0)


def measure(scenario: Scenario, epsilon: float, seeds: int) -> dict[str, Any]:
    """Accuracy of the study for every seed of its noise, beside each hospital's alone without privacy."""
    study = settings(scenario, "parallel", epsilon)
    task = load(scenario.task, scenario.task_parameters)
    evaluation = task.dataset(scenario.evaluation)
    lone_accuracies = {
        name: accuracy(task, fitted(task, task.dataset(records)), evaluation)
        for name, records in scenario.hospitals.items()
    }
    sites, held_out = arrays(scenario)
    rounds = SETTINGS_BY_SCHEME[scenario.name].rounds
    round_shares = shares_of(study, range(1, rounds + 1))
    places, shares = [number - 1 for number in round_shares], list(round_shares.values())
    runs = [models(sites, study, rounds, seed) for seed in range(seeds)]
    reached = [right(np.average(released[places], axis=0, weights=shares), held_out) for released in runs]
    return {
        "epsilon": epsilon,
        "noise_multiplier": study.privacy.noise_multiplier,
        "study": [round(value, 4) for value in reached],
        "mean": round(float(np.mean(reached)), 4),
        "sd": round(float(np.std(reached)), 4),
        "last_model_mean": round(float(np.mean([right(released[-1], held_out) for released in runs])), 4),
        "alone": {name: round(value, 4) for name, value in lone_accuracies.items()},
        "hospitals_beaten": [
            sum(value > lone_accuracy for lone_accuracy in lone_accuracies.values()) for value in reached
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--dealings", type=int, default=8, help="other evaluation sets and dealings")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    scenarios_by_name: dict[str, Callable[[int], Scenario]] = {
        "by size of tumour": breast_cancer,
        "at random": lambda seed: breast_cancer(seed, by_size=False),
    }
    results: dict[str, Any] = {
        name: [measure(make(0), epsilon, options.seeds) for epsilon in EPSILONS]
        for name, make in scenarios_by_name.items()
    }
    results["heart-disease"] = [measure(heart_disease(), epsilon, options.seeds) for epsilon in EPSILONS]
    results["other dealings"] = [
        measure(breast_cancer(seed), SETTINGS_BY_SCHEME["breast-cancer"].epsilon, options.seeds)
        for seed in range(1, options.dealings + 1)
    ]
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    for name, rows in results.items():
        for row in rows:
            beaten = np.array(row["hospitals_beaten"])
            print(f"{name}, ε {row['epsilon']:g}: {row['mean']:.3f} ({row['sd']:.3f}); alone {row['alone']}")
            print(f"  better than all but at most one in {np.mean(beaten >= len(row['alone']) - 1):.0%} of the seeds")


if __name__ == "__main__":
    main()
