"""The difference attack: ask about a group, ask about the same group without one patient, and subtract.

    python -m research.attacks.difference_attack

Every patient of scikit-learn's bundled breast-cancer data is attacked in turn. The attacker knows the patient's mean
radius, which is measured finely enough to name one patient, and wants to know whether the tumour is malignant. Both
questions are counts of malignant tumours within a range of radii.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.kinds.count import Count
from study_protocol.queries.variables import Condition
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import SeededSource

RESULT = Path("research/benchmarks/results/difference_attack.json")
THRESHOLD = 10
# s of one query of Δ = 1 at δ = 1e-5, by the analytic Gaussian: what costs this ε alone.
NOISE = {0.1: 30.750, 0.5: 7.0318, 1.0: 3.7306, 2.0: 1.9938}
DELTA = 1e-5
REPETITIONS = 400
NEIGHBOURS = 120
Counts = Callable[[Count], float]


@dataclass(frozen=True)
class Attacked:
    """right: the share of guesses that were right. bound: what (ε, δ) allows at most of anybody, whatever is known."""

    system: str
    questions: str
    epsilon: float | None
    right: float
    refused: float
    bound: float | None


def patients() -> dict[str, NDArray[np.generic]]:
    """mean radius, each value once so that it names a patient, and diagnosis."""
    from sklearn.datasets import load_breast_cancer

    features, benign = load_breast_cancer(return_X_y=True)
    radius, first = np.unique(features[:, 0], return_index=True)
    return {"radius": radius, "diagnosis": np.where(benign[first] == 0, "malignant", "benign").astype(object)}


def malignant(low: float, high: float, noise_multiplier: float = 1.0) -> Count:
    """How many malignant tumours have a radius in [low, high)."""
    conditions = (
        Condition(column="radius", low=low, high=high),
        Condition(column="diagnosis", categories=("malignant",)),
    )
    return Count(kind="count", noise_multiplier=noise_multiplier, where=conditions)


def pair(radius: NDArray[np.float64], target: int, noise_multiplier: float) -> tuple[Count, Count]:
    """With the patient, and without.

    Ranges reach over `NEIGHBOURS` patients above this one, or below it for the largest radii, so that counts are not
    small where tumours are not rare.
    """
    target_radius, above = float(radius[target]), math.nextafter(float(radius[target]), math.inf)
    if target + NEIGHBOURS < len(radius):
        end = float(radius[target + NEIGHBOURS])
        return malignant(target_radius, end, noise_multiplier), malignant(above, end, noise_multiplier)
    begin = float(radius[target - NEIGHBOURS])
    return malignant(begin, above, noise_multiplier), malignant(begin, target_radius, noise_multiplier)


def exact(columns: dict[str, NDArray[np.generic]], query: Count) -> float:
    return float(query.total(columns, 1.0)[0])


def with_threshold(columns: dict[str, NDArray[np.generic]], pairs: list[tuple[Count, Count]]) -> Attacked:
    """Counts as they are, and none below ten."""
    right = refused = 0
    truth = columns["diagnosis"] == "malignant"
    for target, (whole, rest) in enumerate(pairs):
        counts = exact(columns, whole), exact(columns, rest)
        if min(counts) < THRESHOLD:
            refused += 1
        else:
            right += (counts[0] - counts[1] > 0.5) == truth[target]
    answered = len(pairs) - refused
    return Attacked("exact counts, none below 10", "two", None, right / answered, refused / len(pairs), None)


def with_noise(columns: dict[str, NDArray[np.generic]], epsilon: float, *, knows_the_others: bool) -> Attacked:
    """Counts with the noise of one hospital, drawn as it draws it; the two together cost epsilon.

    knows_the_others: one question, on which the whole ε goes, and the count of all others is known.
    """
    multiplier = NOISE[epsilon] * (1.0 if knows_the_others else math.sqrt(2))
    source = SeededSource(7, allow_insecure=True)
    grid = malignant(0.0, 1.0, multiplier).grid()
    radius, truth = columns["radius"].astype(np.float64), columns["diagnosis"] == "malignant"
    right = 0
    for target in range(len(radius)):
        whole, rest = (exact(columns, columns_of_pair) for columns_of_pair in pair(radius, target, multiplier))
        noise = sampler(grid.std).sample(2 * REPETITIONS, source).reshape(2, REPETITIONS) * grid.spacing
        difference = whole + noise[0] - (rest if knows_the_others else rest + noise[1])
        right += int(((difference > 0.5) == truth[target]).sum())
    attack = "one, all others known" if knows_the_others else "two"
    bound = (math.exp(epsilon) + DELTA) / (1 + math.exp(epsilon))
    return Attacked("noise", attack, epsilon, right / len(radius) / REPETITIONS, 0.0, bound)


def attacked() -> list[Attacked]:
    columns = patients()
    radius = columns["radius"].astype(np.float64)
    pairs = [pair(radius, target, 1.0) for target in range(len(radius))]
    rows = [with_threshold(columns, pairs)]
    for epsilon in NOISE:
        rows += [with_noise(columns, epsilon, knows_the_others=knows_others) for knows_others in (False, True)]
    return rows


def main() -> None:
    rows = attacked()
    RESULT.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    for row in rows:
        bound = "" if row.bound is None else f", at most {row.bound:.1%} is possible"
        epsilon = "" if row.epsilon is None else f", ε = {row.epsilon:g}"
        print(
            f"{row.system}, questions: {row.questions}{epsilon}: "
            f"right {row.right:.1%}{bound}; refused {row.refused:.1%}"
        )


if __name__ == "__main__":
    main()
