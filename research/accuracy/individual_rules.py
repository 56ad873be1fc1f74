"""How much longer each record stays under the Gaussian rule: python -m research.accuracy.individual_rules

One run at rate 1 gives the gradient norms of every record at every step. Both rules follow the same norms.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accounting import FilterSpec, GaussianFilterSpec, IndividualFilter
from research.accuracy.filter_reach import sample
from research.accuracy.frontier import gradients

LIMITS = ((1.0, 1e-5), (2.0, 1e-5), (8.0, 1e-5), (10.0, 1e-6))
CLIP_NORM, NOISE, RATE, RELEASES = 2.0, 20.0, 0.02, 10**9


def path_of_norms(size: int, steps: int, seed: int) -> npt.NDArray[np.float64]:
    """Return (steps, size) clipped gradient norms of one noised descent."""
    (inputs, labels), _ = sample(size, seed)
    random, weights = np.random.default_rng(seed), np.zeros((inputs.shape[1], 1), np.float32)
    norms = np.empty((steps, size))
    for step in range(steps):
        residuals, lengths = gradients(inputs, labels, weights)
        norms[step] = np.minimum(lengths, CLIP_NORM)
        total = inputs.T @ (residuals * np.minimum(1, CLIP_NORM / np.maximum(lengths, 1e-12))[:, None])
        total = total + random.normal(0, NOISE * CLIP_NORM, weights.shape)
        weights = (weights - RATE / size * total).astype(np.float32)
    return norms


def steps_of(spec: FilterSpec | GaussianFilterSpec, norms: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return (records,) steps that each record takes part in."""
    budget, steps = IndividualFilter(spec, members=norms.shape[1]), np.zeros(norms.shape[1], np.int64)
    for lengths in norms:
        steps += budget.admit(lengths, noise_std=NOISE * CLIP_NORM, sampling_rate=1.0, max_distance=CLIP_NORM)
    return steps


def measure(epsilon: float, delta: float, norms: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return how many times longer records stay, of those that leave under both rules."""
    order = 2 * math.log(1 / delta) / epsilon
    before = steps_of(FilterSpec(order=order, delta=delta, limit_epsilon=epsilon, releases=RELEASES), norms)
    after = steps_of(GaussianFilterSpec(delta=delta, limit_epsilon=epsilon, releases=RELEASES), norms)
    # Fewer than 50 steps are rounded to whole ones too coarsely for a ratio.
    is_left = (after < len(norms)) & (before >= 50)
    low, middle, high = np.quantile(after[is_left] / before[is_left], [0.01, 0.5, 0.99])
    shares = {"shorter": float((after < before).mean()), "compared": float(is_left.mean())}
    return {"epsilon": epsilon, "delta": delta, "1 %": low, "median": middle, "99 %": high, **shares}


def main() -> None:
    """Print the ratios and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/individual_rules.json"))
    options = parser.parse_args()
    norms = path_of_norms(options.records, options.steps, seed=1)
    results = [measure(epsilon, delta, norms) for epsilon, delta in LIMITS]
    print(json.dumps(results, indent=1))
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
