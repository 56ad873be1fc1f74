"""What follows from the runs of `research.accuracy.frontier`: python -m research.accuracy.frontier_table

For every data set and two accuracies (of the best setting and of no noise, a part of the way), the least ε of each
definition. Even seeds choose the setting, odd seeds say what it reaches.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accounting import AveragedAccountant, EstimateSpec
from research.accuracy.frontier import DELTA, FAILURE, OUT, PLANS, FrontierSetting, accuracy, train
from research.accuracy.frontier_data import DATA

DEFINITIONS = ("classical", "bayesian", "averaged", "certified", "individual-99", "papers")
# Percentage points below what the same steps reach without noise.
LOSSES = (1.0, 3.0)
# The averaged bound takes seconds a run: as many reporting seeds as this.
_AVERAGED_SEEDS = 3
_BINS = 64


@dataclass(frozen=True)
class ChosenSetting:
    """The setting whose ε is least among those that reached the accuracy on the choosing seeds."""

    setting: FrontierSetting
    epsilon: float
    accuracy: float
    error: float


def plain(name: str, seeds: range) -> float:
    """Accuracy without noise, clip norm 2, by the better of the two plans."""
    epsilons: list[float] = []
    for steps, rate in PLANS:
        setting = FrontierSetting(0.0, 2.0, steps, rate, 0.0)
        reached: list[float] = []
        for seed in seeds:
            pair, test = DATA[name].load(seed)
            weights = train(pair, setting, DATA[name].pace, np.random.default_rng([seed, 1]))[0]
            reached.append(accuracy(*test, weights))
        epsilons.append(float(np.mean(reached)))
    return max(epsilons)


def choose(measured: list[dict[str, Any]], definition: str, target: float) -> ChosenSetting | None:
    """By the even seeds; ε and accuracy are those of the odd ones. None: no setting reached it."""
    reached = [setting for setting in measured if np.mean(_of(setting, 0, "accuracy")) >= target]
    if not reached:
        return None
    best = min(reached, key=lambda setting: float(np.mean(_spent(setting, 0, definition))))
    accuracies = _of(best, 1, "accuracy")
    error = float(np.std(accuracies, ddof=1) / np.sqrt(len(accuracies)))
    epsilon = float(np.mean(_spent(best, 1, definition)))
    return ChosenSetting(FrontierSetting(**best["setting"]), epsilon, float(np.mean(accuracies)), error)


def averaged(name: str, setting: FrontierSetting, seeds: range) -> float:
    """The averaged classical bound of a few runs of one setting."""
    spec = EstimateSpec(delta=DELTA, estimator_failure_probability=FAILURE)
    noise = setting.noise_multiplier * setting.clip_norm
    rows: list[float] = []
    for seed in seeds:
        pair, _ = DATA[name].load(seed)
        members = train(pair, setting, DATA[name].pace, np.random.default_rng([seed, 1]))[1]
        account = AveragedAccountant(spec, members=members.shape[1], max_ratio=1 / setting.noise_multiplier, bins=_BINS)
        for distances in members:
            account.step(
                distances, noise_std=noise, sampling_rate=setting.sampling_rate, max_distance=setting.clip_norm
            )
        rows.append(account.epsilon())
    return float(np.mean(rows))


def _of(row: dict[str, Any], parity: int, field: str) -> list[float]:
    return [run[field] for run in row["runs"] if run["seed"] % 2 == parity]


def _spent(row: dict[str, Any], parity: int, definition: str) -> list[float]:
    return [run["spent"][definition] for run in row["runs"] if run["seed"] % 2 == parity]


def rows(name: str, measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per accuracy and definition; the averaged bound at the settings that the others chose."""
    without_noise, best_rows = plain(name, range(0, 10, 2)), []
    for loss in LOSSES:
        target = without_noise - loss / 100
        choices = {kind: choose(measured, kind, target) for kind in DEFINITIONS if kind != "averaged"}
        settings = dict.fromkeys(choice.setting for choice in choices.values() if choice is not None)
        seeds = range(1, 2 * _AVERAGED_SEEDS, 2)
        bounds = {setting: averaged(name, setting, seeds) for setting in settings}
        for kind, choice in choices.items():
            if choice is not None:
                best_rows.append(_row(name, without_noise, loss, kind, choice, choice.epsilon))
        if bounds:
            smallest = min(bounds, key=lambda setting: bounds[setting])
            reference = next(choice for choice in choices.values() if choice is not None and choice.setting == smallest)
            best_rows.append(_row(name, without_noise, loss, "averaged", reference, bounds[smallest]))
    return best_rows


def _row(name: str, plain: float, loss: float, kind: str, choice: ChosenSetting, epsilon: float) -> dict[str, Any]:
    setting = choice.setting
    return {
        "data": name,
        "without noise": round(100 * plain, 2),
        "target": round(100 * plain - loss, 2),
        "definition": kind,
        "epsilon": epsilon,
        "reached": round(100 * choice.accuracy, 2),
        "standard error": round(100 * choice.error, 2),
        "clip norm": setting.clip_norm,
        "steps": setting.steps,
        "sampling rate": setting.sampling_rate,
        "noise multiplier": round(setting.noise_multiplier, 3),
        "classical epsilon there": setting.epsilon,
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table: one line per data set and accuracy, one column per definition."""
    lines = [
        f"| data, without noise | wanted | {' | '.join(DEFINITIONS)} |",
        "|---|---|" + "---|" * len(DEFINITIONS),
    ]
    accuracies = dict.fromkeys((row["data"], row["without noise"], row["target"]) for row in rows)
    for data, without_noise, target in accuracies:
        row_by_definition = {row["definition"]: row for row in rows if (row["data"], row["target"]) == (data, target)}
        cells = [_cell(row_by_definition[kind]) if kind in row_by_definition else "not reached" for kind in DEFINITIONS]
        lines.append(f"| {data}, {without_noise:.1f} | {target:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    """ε; then clip norm, steps, and what was reached on the reporting seeds."""
    setting = f"C {row['clip norm']:g}, {row['steps']} steps"
    return f"**{row['epsilon']:.3g}** ({setting}: {row['reached']:.1f} ± {row['standard error']:.1f})"


def main() -> None:
    """Print the table and write it beside the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=OUT)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/frontier_table.json"))
    options = parser.parse_args()
    measured = json.loads(options.runs.read_text())
    table_rows = [row for name in measured for row in rows(name, measured[name]["settings"])]
    options.out.write_text(json.dumps(table_rows, indent=1) + "\n")
    print(markdown(table_rows))


if __name__ == "__main__":
    main()
