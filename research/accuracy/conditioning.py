"""Accuracy with other conditionings of the step, on the encoded columns of every table of the data folder.

    python -m research.accuracy.conditioning [--cases NAME …] [--out research/benchmarks/results/conditioning.json]

Settings are those of `wardround plan --suggest`. Each way maps the encoded inputs of a record, and sees the same
patients and draws. The bounds know the true second moments, and no study does: what they do not gain, none can.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from research.accuracy.defaults_data import CASES, Floats, SiteSplit, TableCase
from research.accuracy.defaults_run import AVERAGES, DefaultsStudy, accuracies, noise_multiplier
from research.accuracy.enforcement import AFTER, setting

EPSILON, SEEDS = 2.0, 8
# Of the budget, what a question about covariances may take.
SHARE = 0.1
# Added to the second moments before they are inverted: directions without records are not stretched without end.
RIDGE = 0.1
_Map = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Conditioning:
    """inputs: from those of the training records, made with this generator. epsilon: what is left for training."""

    inputs: Callable[[Floats, np.random.Generator], _Map]
    epsilon: float = EPSILON


def whitening(moments: Floats, ridge: float) -> Floats:
    """Return the symmetric matrix W with W (moments + ridge) W = 1, (d, d). Negative eigenvalues count as 0."""
    values, vectors = np.linalg.eigh(moments)
    return (vectors / np.sqrt(np.maximum(values, 0) + ridge)) @ vectors.T


def second_moments(inputs: Floats) -> Floats:
    return inputs.T @ inputs / len(inputs)


def noised_moments(inputs: Floats, noise: float, random: np.random.Generator) -> tuple[Floats, float]:
    """Return second moments as a question about covariances would answer them, and the noise's spectral norm.

    Each record is scaled into a ball that holds nine of ten, which stands in for a public bound: its outer product is
    then at most as long as the radius squared.
    """
    lengths = np.linalg.norm(inputs, axis=1)
    radius = float(np.quantile(lengths, 0.9))
    clipped = inputs * np.minimum(1, radius / lengths)[:, None]
    std, size = noise * radius**2, inputs.shape[1]
    draws = np.triu(random.normal(size=(size, size)) * std)
    symmetric = draws + np.triu(draws, 1).T
    # Of a symmetric matrix with normal entries: twice the deviation times the root of its size.
    return (clipped.T @ clipped + symmetric) / len(inputs), 2 * std * size**0.5 / len(inputs)


def by_matrix(inputs: Floats, matrix: Floats) -> _Map:
    """Return a map by the matrix that leaves the mean square length of these inputs as it is."""
    scale = np.linalg.norm(inputs) / np.linalg.norm(inputs @ matrix)
    return lambda rows: rows @ matrix * scale


def _as_it_is(inputs: Floats, random: np.random.Generator) -> _Map:
    return lambda rows: rows


def _bound(inputs: Floats, random: np.random.Generator) -> _Map:
    return by_matrix(inputs, whitening(second_moments(inputs), RIDGE))


def _diagonal(inputs: Floats, random: np.random.Generator) -> _Map:
    return by_matrix(inputs, whitening(np.diag(np.diag(second_moments(inputs))), RIDGE))


def _equal_lengths(inputs: Floats, random: np.random.Generator) -> _Map:
    """Of each record by itself: all have the length of a record whose inputs are all 1."""
    return lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True) * rows.shape[1] ** 0.5


def _answered(inputs: Floats, random: np.random.Generator) -> _Map:
    noise = noise_multiplier("parallel", 1, EPSILON * SHARE, 1.0, 1, AFTER)
    moments, norm = noised_moments(inputs, noise, random)
    return by_matrix(inputs, whitening(moments, norm + RIDGE / 4))


WAYS: Mapping[str, Conditioning] = {
    "as encoded": Conditioning(_as_it_is),
    "whitened, bound": Conditioning(_bound),
    "equal deviations, bound": Conditioning(_diagonal),
    "equal lengths": Conditioning(_equal_lengths),
    "whitened by an answer": Conditioning(_answered, EPSILON * (1 - SHARE)),
}


def reached(case: TableCase, way: Conditioning, seed: int) -> float:
    """Return the accuracy of the suggested settings on one dealing."""
    split = case.split(seed)
    mapped = way.inputs(split.inputs, np.random.default_rng([seed, 11]))
    changed: SiteSplit = replace(split, inputs=mapped(split.inputs), test_inputs=mapped(split.test_inputs))
    study = DefaultsStudy("parallel", way.epsilon, len(np.unique(split.site)), AFTER)
    measured = accuracies(changed, case.classes, study, [setting(case, study)], seed)
    return float(measured[0, AVERAGES.index("exponential")])


def row(case: TableCase, seeds: int = SEEDS) -> dict[str, float]:
    """Return the mean accuracy of each way over the seeds."""
    return {
        name: round(float(np.mean([reached(case, way, seed) for seed in range(seeds)])), 4)
        for name, way in WAYS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    print(" | ".join(["case", *WAYS]))
    for name in options.cases:
        rows[name] = row(CASES[name])
        print(" | ".join([name, *(f"{value:.3f}" for value in rows[name].values())]), flush=True)
    if options.out:
        options.out.write_text(json.dumps({"epsilon": EPSILON, "seeds": SEEDS, "accuracy": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
