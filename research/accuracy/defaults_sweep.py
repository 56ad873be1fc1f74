"""The sweep behind `research.accuracy.defaults`: every case, limit and setting, with what it is compared with.

    python -m research.accuracy.defaults_sweep OUT            one file for each case in the folder OUT; 15 minutes
    python -m research.accuracy.defaults_sweep OUT --alone    what a hospital alone loses, by its size: alone.json

A case that is there is not computed again. All settings of one seed share their records, draws and noise.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from research.accuracy.defaults_data import CASES, TYPICAL, SiteSplit, TableCase
from research.accuracy.defaults_run import AVERAGES, DefaultsSetting, DefaultsStudy, accuracies
from research.accuracy.defaults_tables import Floats, Labels

SEEDS = 8
ROUNDS = (30, 100)
CLIPS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
TRAVELS = tuple(2.0**power for power in range(1, 12))
LIMITS = (("parallel", 1.0), ("parallel", 2.0))
ALONE_SIZES = (15, 30, 60, 125, 250, 500, 1000)
# (rounds, clips, travels, averages)
GRID = (len(ROUNDS), len(CLIPS), len(TRAVELS), len(AVERAGES))


def studies(case: TableCase) -> list[DefaultsStudy]:
    hospitals = len(np.unique(case.split(0).site))
    return [DefaultsStudy(scheme, epsilon, hospitals, "gaussian-filter") for scheme, epsilon in LIMITS]


def swept(case: TableCase, study: DefaultsStudy, seed: int) -> Floats:
    """Accuracies of every setting, in the shape of `GRID`."""
    split, grid_accuracies = case.split(seed), np.empty(GRID)
    for place, rounds in enumerate(ROUNDS):
        settings = [DefaultsSetting(1.0, rounds, clip, travel) for clip in CLIPS for travel in TRAVELS]
        grid_accuracies[place] = accuracies(split, case.classes, study, settings, seed).reshape(GRID[1:])
    return grid_accuracies


def without_privacy(split: SiteSplit) -> Floats:
    """Accuracies of the majority class, of all records together, and of every hospital alone."""
    majority = float(np.mean(split.test_labels == np.bincount(split.labels).argmax()))
    lone_models = [_fitted(split, split.site == number) for number in np.unique(split.site)]
    return np.array([majority, _fitted(split, np.ones(len(split.labels), bool)), *lone_models])


def _fitted(split: SiteSplit, rows: np.ndarray) -> float:
    """Logistic regression without a penalty; one class alone is what such a hospital predicts."""
    labels: Labels = split.labels[rows]
    if len(np.unique(labels)) == 1:
        return float(np.mean(split.test_labels == labels[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, tol=1e-6, max_iter=2000))
        # The last column is ones, which is the intercept.
        return float(model.fit(split.inputs[rows, :-1], labels).score(split.test_inputs[:, :-1], split.test_labels))


def lost_alone(case: TableCase) -> list[tuple[str, int, float]]:
    """Accuracy that n records drawn from all hospitals lose against all of them: (case, n, loss)."""
    results: list[tuple[str, int, float]] = []
    for size in ALONE_SIZES:
        losses: list[float] = []
        for seed in range(SEEDS):
            split = case.split(seed)
            if size > len(split.labels) / 2:
                break
            order = np.random.default_rng([seed, 5]).permutation(len(split.labels))
            rows = np.isin(np.arange(len(order)), order[:size])
            losses.append(_fitted(split, np.ones(len(order), bool)) - _fitted(split, rows))
        if losses:
            results.append((case.name, size, round(float(np.mean(losses)), 4)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--cases", nargs="*", choices=tuple(CASES), default=list(CASES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.alone:
        # Without privacy the encoding hardly matters.
        lost = [row for name in options.cases if name.endswith(TYPICAL) for row in lost_alone(CASES[name])]
        (options.out / "alone.json").write_text(json.dumps(lost) + "\n")
        return
    for name in options.cases:
        path, case, start = options.out / f"{name}.npz", CASES[name], time.monotonic()
        if path.exists():
            continue
        arrays = {
            f"{study.scheme} {study.epsilon:g}": np.stack([swept(case, study, seed) for seed in range(SEEDS)])
            for study in studies(case)
        }
        baselines = np.stack([without_privacy(case.split(seed)) for seed in range(SEEDS)])
        np.savez(path, allow_pickle=False, beside=baselines, **arrays)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
