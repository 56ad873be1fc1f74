"""The averaged classical bound on real gradients, beside the classical numbers: python -m
research.accuracy.averaged_bound"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from accounting import AveragedAccountant, ClassicalAccountant, EstimateSpec
from research.accuracy.gradient_norms import FloatArray, GradientNormRun, clipped_norms


def classical(run: GradientNormRun) -> dict[str, float]:
    """ε by loss distribution and by Rényi divergence; they know σ, q and T only."""
    bounds: dict[str, float] = {}
    for method in ("pld", "rdp"):
        account = ClassicalAccountant(delta=run.delta, method=method)
        account.step(noise_multiplier=run.noise_multiplier, sampling_rate=run.sampling_rate, count=run.steps)
        bounds[method] = account.epsilon()
    return bounds


def averaged(run: GradientNormRun, norms: FloatArray, estimator: str) -> float:
    """ε of the averaged bound for one path of norms (steps, records)."""
    spec = EstimateSpec(
        delta=run.delta,
        estimator_failure_probability=run.estimator_failure_probability,
        estimator="betting" if estimator == "betting" else "bernstein",
    )
    account = AveragedAccountant(spec, members=norms.shape[1], max_ratio=1 / run.noise_multiplier)
    std = run.noise_multiplier * run.clip_norm
    for distances in norms:
        account.step(distances, noise_std=std, sampling_rate=run.sampling_rate, max_distance=run.clip_norm)
    return account.epsilon()


def measure(run: GradientNormRun, seeds: list[int]) -> dict[str, object]:
    """All numbers of the table, one row per noise seed."""
    rows = []
    for seed in seeds:
        norms = clipped_norms(run, seed)
        energy = np.sqrt((norms**2).mean(axis=0))
        rows.append(
            {"seed": seed, "always near the clip norm": float((energy > 0.9 * run.clip_norm).mean())}
            | {name: averaged(run, norms, name) for name in ("bernstein", "betting")}
        )
    return {"settings": run.__dict__, "classical": classical(run), "averaged": rows}


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/averaged_bound.json"))
    arguments = parser.parse_args()
    result = measure(GradientNormRun(), list(range(arguments.seeds)))
    print(f"classical: {result['classical']}")
    for row in result["averaged"]:  # type: ignore[attr-defined]
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
