"""How the demonstration's settings were chosen: the same mechanism and accounting in one process, over a grid.

    python -m experiments.demo.choose_settings breast-cancer

Every row is a full run until the Bayesian limit ends it, averaged over seeds. The mechanism here is numpy and the
closed-form gradient of logistic regression, so that a grid takes minutes; costs and estimates are the package's own.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Table

from accounting.accountants.classical import ClassicalAccountant
from accounting.errors import EstimatorRefused
from accounting.estimation.upper_mean import upper_mean
from accounting.mechanisms.conversion import epsilon_from_moments
from accounting.mechanisms.divergence import log_moment
from client_sdk.tasks import load
from experiments.demo.scenarios import Scenario, breast_cancer, heart_disease

Site = tuple[np.ndarray, np.ndarray]

DELTA, FAILURE, MAX_STEPS = 1e-4, 1e-5, 120


@dataclass(frozen=True)
class Setting:
    """noise: standard deviation of the noise on one hospital's sum, noise multiplier × clip norm."""

    clip_norm: float
    noise: float
    sampling_rate: float
    filter_order: float
    learning_rate: float


@dataclass(frozen=True)
class Outcome:
    rounds: int
    accuracy: float
    classical: float


def run(sites: list[Site], evaluation: Site, setting: Setting, epsilon: float, seed: int) -> Outcome:
    """One study until the next round could pass the Bayesian limit."""
    random = np.random.default_rng(seed)
    clip, order = setting.clip_norm, setting.filter_order
    nominal = setting.sampling_rate * float(np.mean([len(labels) for _, labels in sites]))
    # Chords lie above the convex cost, so the table never undercounts.
    distances = np.linspace(0, clip, 1000)
    cost = log_moment(order, distances, noise_std=setting.noise, sampling_rate=setting.sampling_rate)
    sums = [np.zeros(len(labels)) for _, labels in sites]
    weights = np.zeros(sites[0][0].shape[1])
    spent, rounds = 0.0, 0
    while rounds < MAX_STEPS and epsilon_from_moments([order], [spent + cost[-1]], DELTA - FAILURE)[0] <= epsilon:
        total = np.zeros_like(weights)
        estimates = []
        for (inputs, labels), running in zip(sites, sums, strict=True):
            gradients = (1 / (1 + np.exp(-inputs @ weights)) - labels)[:, None] * inputs
            norms = np.linalg.norm(gradients, axis=1)
            running += np.interp(np.minimum(norms, clip), distances, cost)
            drawn = random.random(len(labels)) < setting.sampling_rate
            total += (gradients[drawn] * np.minimum(1, clip / np.maximum(norms[drawn], 1e-12))[:, None]).sum(axis=0)
            total += random.normal(size=len(weights)) * setting.noise
            estimates.append(_estimate(running, spent + cost[-1]))
        spent = min(spent + cost[-1], max(spent, *estimates))
        weights -= setting.learning_rate * total / nominal / len(sites)
        rounds += 1
    classical = ClassicalAccountant(delta=DELTA, method="pld")
    classical.step(noise_multiplier=setting.noise / clip, sampling_rate=setting.sampling_rate, count=max(rounds, 1))
    inputs, labels = evaluation
    return Outcome(rounds, float(np.mean((inputs @ weights > 0) == labels)), classical.epsilon())


def arrays(scenario: Scenario) -> tuple[list[Site], Site]:
    """Inputs with a column of ones, and labels, of every hospital and of the evaluation set."""
    task = load(scenario.task, scenario.task_parameters)

    def site(records) -> Site:
        dataset = task.dataset(records)
        return np.column_stack([dataset.inputs.double().numpy(), np.ones(len(dataset))]), dataset.targets.numpy()

    return [site(records) for records in scenario.hospitals.values()], site(scenario.evaluation)


def _estimate(sums: np.ndarray, worst: float) -> float:
    try:
        return upper_mean(sums, FAILURE, method="student-t")
    except EstimatorRefused:
        return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=("breast-cancer", "heart-disease"))
    parser.add_argument("--epsilon", type=float, default=3.0, help="the Bayesian limit")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=20)
    options = parser.parse_args()
    sites, evaluation = arrays(breast_cancer() if options.data == "breast-cancer" else heart_disease())
    grid = [
        Setting(*values)
        for values in product((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 8.0), (0.25,), (4.0, 6.0), (0.5, 1.0, 2.0))
    ]
    found = []
    for setting in grid:
        outcomes = [run(sites, evaluation, setting, options.epsilon, seed) for seed in range(options.seeds)]
        found.append((float(np.mean([o.accuracy for o in outcomes])), setting, outcomes))
    table = Table(
        *("accuracy (sd)", "clip", "noise multiplier", "rate", "order", "learning rate", "rounds", "classical ε (PLD)")
    )
    for accuracy, setting, outcomes in sorted(found, key=lambda item: -item[0])[: options.rows]:
        spread = np.std([o.accuracy for o in outcomes])
        rounds = [o.rounds for o in outcomes]
        table.add_row(
            f"{accuracy:.3f} ({spread:.3f})",
            f"{setting.clip_norm:g}",
            f"{setting.noise / setting.clip_norm:.3g}",
            f"{setting.sampling_rate:g}",
            f"{setting.filter_order:g}",
            f"{setting.learning_rate:g}",
            f"{min(rounds)}–{max(rounds)}",
            f"{np.mean([o.classical for o in outcomes]):.2f}",
        )
    Console(width=110).print(
        f"{options.data}: Bayesian ε = {options.epsilon:g}, δ = {DELTA}, γ = {FAILURE}, {options.seeds} seeds", table
    )


if __name__ == "__main__":
    main()
