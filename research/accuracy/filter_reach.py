"""The gain of going on under each record's own filter: python -m research.accuracy.filter_reach

Both ways promise the same worst-case (ε, δ). One trains for many steps at a noise whose classical account ends early;
whoever reaches the bound leaves. The other takes few steps with the noise that the classical account allows for them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from accounting import ClassicalAccountant, FilterSpec, IndividualFilter, calibrate_noise
from accounting.accountants.calibration import most_steps, rdp_epsilon
from research.accuracy.frontier import FrontierSetting, accuracy, filter_order, gradients
from research.accuracy.frontier_data import DATA, Floats, Pair

EPSILON, DELTA, NOISE = 2.0, 1e-5, 20.0
CHECKPOINTS = (20, 71, 100, 142, 300, 1000, 3000)
PLANS = (10, 20, 40, 100)
CLIP_NORMS = (0.1, 0.5, 2.0)
PACES = (0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = (500, 5_000)


def sample(size: int, seed: int) -> tuple[Pair, Pair]:
    """That many of the adult data set's training records, and its held-out ones."""
    (inputs, labels), test = DATA["adult"].load(seed)
    return (inputs[:size], labels[:size]), test


def reaches() -> dict[str, int]:
    """Full-batch steps at this noise until each account of the worst case is at ε."""

    def by_losses(steps: int) -> float:
        account = ClassicalAccountant(delta=DELTA, method="pld")
        account.step(noise_multiplier=NOISE, sampling_rate=1.0, count=steps)
        return account.epsilon()

    def by_moments(steps: int) -> float:
        return rdp_epsilon(NOISE, sampling_rate=1.0, steps=steps, delta=DELTA)

    return {
        "loss distributions": most_steps(epsilon=EPSILON, delta=DELTA, account=by_losses),
        "Rényi": most_steps(epsilon=EPSILON, delta=DELTA, account=by_moments),
    }


def descend(
    pair: Pair,
    test: Pair,
    *,
    clip: float,
    noise: float,
    steps: int,
    rate: float,
    seed: int,
    budget: IndividualFilter | None,
) -> dict[int, tuple[float, float]]:
    """step -> (accuracy of the mean weights of the later half so far, share of records still in)."""
    inputs, labels = pair
    random = np.random.default_rng([seed, 2])
    weights: Floats = np.zeros((inputs.shape[1], 1), np.float32)
    path: list[Floats] = []
    inside = np.ones(len(labels), bool)
    reach_by_size: dict[int, tuple[float, float]] = {}
    for step in range(1, steps + 1):
        residuals, norms = gradients(inputs, labels, weights)
        if budget is not None:
            clipped = np.minimum(norms, clip)
            inside = budget.admit(clipped, noise_std=noise * clip, sampling_rate=1.0, max_distance=clip)
        scale = np.minimum(1, clip / np.maximum(norms, 1e-12)) * inside
        total = inputs.T @ (residuals * scale[:, None].astype(np.float32))
        total += random.normal(0, noise * clip, weights.shape)
        weights = (weights - rate / clip / len(labels) * total).astype(np.float32)
        path.append(weights)
        if step in CHECKPOINTS or step == steps:
            mean = np.mean(path[len(path) // 2 :], axis=0)
            reach_by_size[step] = (accuracy(*test, mean), float(inside.mean()))
    return reach_by_size


def measure(size: int, seeds: int) -> dict[str, object]:
    """Best over clip norm and learning rate of both ways; chosen and reported on the same seeds, for both alike."""
    order = filter_order(FrontierSetting(EPSILON, 1.0, reaches()["Rényi"], 1.0, NOISE))
    longer: dict[int, tuple[float, float, float]] = {}
    fewer: dict[int, float] = {}
    for clip in CLIP_NORMS:
        for pace in PACES:
            runs: list[Mapping[int, tuple[float, float]]] = []
            for seed in range(seeds):
                pair, test = sample(size, seed)
                spec = FilterSpec(order=order, delta=DELTA, limit_epsilon=EPSILON)
                budget = IndividualFilter(spec, members=size)
                rate = pace * 2
                runs.append(
                    descend(
                        pair, test, clip=clip, noise=NOISE, steps=CHECKPOINTS[-1], rate=rate, seed=seed, budget=budget
                    )
                )
            for step in CHECKPOINTS:
                reached, inside = (float(np.mean([run[step][i] for run in runs])) for i in (0, 1))
                if step not in longer or reached > longer[step][0]:
                    longer[step] = (reached, inside, clip)
            for steps in PLANS:
                noise = calibrate_noise(epsilon=EPSILON, delta=DELTA, sampling_rate=1.0, steps=steps, method="pld")
                rate = pace * 2 * 20 / steps
                reached = float(
                    np.mean(
                        [
                            descend(
                                *sample(size, s), clip=clip, noise=noise, steps=steps, rate=rate, seed=s, budget=None
                            )[steps][0]
                            for s in range(seeds)
                        ]
                    )
                )
                fewer[steps] = max(fewer.get(steps, 0.0), reached)
    return {"records": size, "order": order, "longer": longer, "fewer": fewer}


def main() -> None:
    """Print both ways beside each other and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/filter_reach.json"))
    options = parser.parse_args()
    results = {"steps until ε": reaches(), "sizes": [measure(size, options.seeds) for size in SIZES]}
    print(json.dumps(results, indent=1, ensure_ascii=False))
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
