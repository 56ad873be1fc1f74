"""Correlated noise against independent noise where every record is in every round.

    python -m research.accuracy.correlated_noise [--rounds 10 30 100]

A mechanism C adds noise C⁻¹Z to the T gradients, with Z independent. One patient moves them by vectors of norm at most
1, one in each round. So Z is scaled to the sensitivity max ‖CU‖ over matrices U with rows of norm 1. A model is a sum
of gradients. `A` has one row of weights for each model that counts, and the error is ‖AC⁻¹‖ · sensitivity (Frobenius
norms). docs/decisions/no-correlated-noise.md proves that no C is below Σ ‖a_t‖ over the columns of A. Independent noise
reaches it. Here the bound is found anew as the largest nuclear norm ‖AV‖ over V with rows of norm 1, by ascent from
seeded starts. Every number is divided by that of equal independent noise. Results go to
research/benchmarks/results/correlated_noise.json.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "correlated_noise.json"
ROUNDS, STARTS, SEED = (10, 30, 100), 4, 1
_STEPS, _CONVERGED = 20_000, 1e-13
Floats = NDArray[np.float64]


def workloads(rounds: int) -> dict[str, Floats]:
    """Return (models, rounds) weights of the gradients in the models that count, by name."""
    prefixes = np.tril(np.ones((rounds, rounds)))
    return {
        "last model": prefixes[-1:],
        "mean of the last half": prefixes[rounds // 2 :].mean(axis=0, keepdims=True),
        "last model, 5 % forgotten a round": 0.95 ** np.arange(rounds - 1.0, -1.0, -1.0)[None],
        "every model": prefixes,
    }


def fitted(workload: Floats) -> Floats:
    """Return the independent noise of least error: c_s² in proportion to the norm of the weights of step s."""
    return np.diag(np.sqrt(np.linalg.norm(workload, axis=0)))


def toeplitz_root(rounds: int, bands: int) -> Floats:
    """Return the square root of the prefix sums (Fichtenberger et al. 2023), cut to so many bands."""
    first = np.ones(rounds)
    for k in range(1, rounds):
        first[k] = first[k - 1] * (2 * k - 1) / (2 * k)
    first[bands:] = 0.0
    return np.tril(scipy.linalg.toeplitz(first))


def decaying_buffers(rounds: int, decay: float) -> Floats:
    """Return a mechanism of one buffer (BLT, McMahan et al. 2024): C = I + strictly lower decay^k / 2."""
    powers = np.concatenate([[1.0], 0.5 * decay ** np.arange(1.0, rounds)])
    return np.tril(scipy.linalg.toeplitz(powers))


MECHANISMS: dict[str, Callable[[int], Floats]] = {
    "DP-FTRL, square root of the sums": lambda rounds: toeplitz_root(rounds, rounds),
    "banded, 4 bands": lambda rounds: toeplitz_root(rounds, 4),
    "BLT, one buffer of decay 0.9": lambda rounds: decaying_buffers(rounds, 0.9),
}


def sensitivity(mechanism: Floats, random: np.random.Generator) -> float:
    """Return max ‖CU‖ over U with rows of norm 1, by ascent: each step takes the rows of CᵀCU."""
    gram = mechanism.T @ mechanism
    return max(
        math.sqrt(_ascend(lambda u: gram @ u, lambda u: float(np.sum(u * (gram @ u))), start))
        for start in _starts(len(gram), random)
    )


def lower_bound(workload: Floats, random: np.random.Generator) -> float:
    """Return the largest nuclear norm ‖AV‖ over V with rows of norm 1.

    For every C and every such V: ‖AV‖ = ‖(AC⁻¹)(CV)‖ ≤ ‖AC⁻¹‖ · ‖CV‖ ≤ ‖AC⁻¹‖ · sensitivity, by Hölder's inequality.
    """
    return max(_largest_nuclear_norm(workload, start) for start in _starts(workload.shape[1], random))


def error(workload: Floats, mechanism: Floats, random: np.random.Generator) -> float:
    """Return ‖AC⁻¹‖ times the sensitivity."""
    decoder = np.linalg.solve(mechanism.T, workload.T).T
    return float(np.linalg.norm(decoder)) * sensitivity(mechanism, random)


def _starts(rounds: int, random: np.random.Generator) -> list[Floats]:
    equal_rows = np.zeros((rounds, rounds))
    equal_rows[:, 0] = 1.0
    return [equal_rows, *(_unit_rows(random.normal(size=(rounds, rounds))) for _ in range(STARTS - 1))]


def _unit_rows(matrix: Floats) -> Floats:
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(norms > 0, norms, 1.0)


def _ascend(pull: Callable[[Floats], Floats], value: Callable[[Floats], float], start: Floats) -> float:
    vectors, reached = start, value(start)
    for _ in range(_STEPS):
        vectors = _unit_rows(pull(vectors))
        before, reached = reached, value(vectors)
        if reached <= before * (1 + _CONVERGED):
            break
    return reached


def _largest_nuclear_norm(workload: Floats, start: Floats) -> float:
    """Ascend: the polar factor Q of AV, and then the rows of AᵀQ. Neither step lets tr(QᵀAV) fall."""
    vectors, reached = start, 0.0
    for _ in range(_STEPS):
        weights, values, right = np.linalg.svd(workload @ vectors, full_matrices=False)
        before, reached = reached, float(values.sum())
        if reached <= before * (1 + _CONVERGED):
            break
        vectors = _unit_rows(workload.T @ (weights @ right))
    return reached


def row(workload: Floats, random: np.random.Generator) -> dict[str, float]:
    """Return the error of every mechanism and the bound, each divided by the error of equal independent noise."""
    rounds = workload.shape[1]
    equal = float(np.linalg.norm(workload)) * math.sqrt(rounds)
    errors = {name: error(workload, make(rounds), random) for name, make in MECHANISMS.items()}
    errors |= {"independent, by the rule": error(workload, fitted(workload), random)}
    errors |= {"bound of all": lower_bound(workload, random)}
    return {name: value / equal for name, value in errors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, nargs="+", default=list(ROUNDS))
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for rounds in options.rounds:
        random = np.random.default_rng(SEED)
        results[str(rounds)] = {name: row(workload, random) for name, workload in workloads(rounds).items()}
        for name, errors in results[str(rounds)].items():
            print(f"{rounds} rounds, {name}:", ", ".join(f"{k} {v:.4f}" for k, v in errors.items()), flush=True)
    RESULTS.write_text(json.dumps({"seed": SEED, "rounds": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
