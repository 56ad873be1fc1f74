"""What a grid would have chosen for the demonstration, on a validation split of its training patients.

The demonstration itself takes what `wardround plan --suggest` says, which looks at no patient; this shows what it lost.

    python -m research.demonstration.choose_settings breast-cancer --out research/benchmarks/results/demo_settings.json

The evaluation set is not looked at. In every split a quarter of each hospital's training patients is kept for
validation; the noise is what the accounts say for the limit.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from private_learning.records import Table as Records
from research.demonstration.mechanism import arrays, models, right
from study_protocol.cells import Column
from study_protocol.study.settings import StudySettings
from wardround.demo.scenarios import Scenario, breast_cancer, heart_disease
from wardround.demo.settings import calibrated, settings

CLIP_NORMS, SPEEDS, ROUNDS = (0.25, 0.5, 1.0, 2.0), (2.0, 4.0, 8.0, 16.0), (20, 30, 60)
AVERAGES = ("last model", "last half", "all")


def split(scenario: Scenario, seed: int) -> Scenario:
    """The same study with a quarter of every hospital's patients as its evaluation set, and the declared one gone."""
    random = np.random.default_rng(seed)
    hospitals: dict[str, Any] = {}
    held_out: list[Any] = []
    for name, records in scenario.hospitals.items():
        assert isinstance(records, Records)
        order = random.permutation(len(records))
        hospitals[name] = records.take(order[len(order) // 4 :])
        held_out.append(records.take(order[: len(order) // 4]))
    columns = {name: Column.joined([part.columns[name] for part in held_out]) for name in held_out[0].columns}
    evaluation = Records(columns, tuple(patient for part in held_out for patient in part.patients))
    return Scenario(
        **{**vars(scenario), "hospitals": hospitals, "evaluation": evaluation},
    )


def grid(scenario: Scenario, splits: int) -> list[dict[str, Any]]:
    """One row for each setting: accuracy on the validation patients of every split, by what is averaged."""
    parts = [split(scenario, seed) for seed in range(splits)]
    rows: list[dict[str, Any]] = []
    for rounds in ROUNDS:
        noise = calibrated(settings(scenario, "parallel"), rounds).privacy.noise_multiplier
        for clip, speed in product(CLIP_NORMS, SPEEDS):
            accuracies: list[list[float]] = []
            for seed, part in enumerate(parts):
                sites, validation = arrays(part)
                study = _with(settings(part, "parallel"), clip, speed / clip, noise)
                released = models(sites, study, rounds, seed)
                means = (released[-1], released[rounds // 2 :].mean(axis=0), released.mean(axis=0))
                accuracies.append([right(weights, validation) for weights in means])
            row = {"clip_norm": clip, "learning_rate": speed / clip, "rounds": rounds, "noise_multiplier": noise}
            for average, mean, sd in zip(
                AVERAGES, np.mean(accuracies, axis=0), np.std(accuracies, axis=0), strict=True
            ):
                rows.append({**row, "average": average, "accuracy": round(mean, 4), "sd": round(sd, 4)})
    return sorted(rows, key=lambda row: -row["accuracy"])


def _with(study: StudySettings, clip: float, rate: float, noise: float) -> StudySettings:
    privacy = study.privacy.model_copy(update={"clip_norm": clip, "noise_multiplier": noise})
    optimiser = study.training.optimiser.model_copy(update={"learning_rate": rate})
    training = study.training.model_copy(update={"optimiser": optimiser})
    return study.model_copy(update={"privacy": privacy, "training": training})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=("breast-cancer", "heart-disease"))
    parser.add_argument("--splits", type=int, default=24)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    scenario = breast_cancer() if options.data == "breast-cancer" else heart_disease()
    rows = grid(scenario, options.splits)
    if options.out is not None:
        recorded = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**recorded, options.data: rows}, indent=1) + "\n")
    table = Table("accuracy (sd)", "average", "rounds", "clip norm", "noise multiplier", "learning rate")
    for row in rows[: options.rows]:
        cells = (row[name] for name in ("rounds", "clip_norm", "noise_multiplier", "learning_rate"))
        table.add_row(f"{row['accuracy']:.3f} ({row['sd']:.3f})", row["average"], *(f"{cell:g}" for cell in cells))
    Console(width=100).print(f"{options.data}: {options.splits} validation splits", table)


if __name__ == "__main__":
    main()
