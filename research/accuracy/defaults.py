"""Where the constants of `study_protocol.study.suggestion` come from, and how good they are on data left out.

    python -m research.accuracy.defaults_sweep SWEEP        accuracies of every setting, half an hour on one core
    python -m research.accuracy.defaults SWEEP --out research/benchmarks/results/defaults.json

The rule is fitted on all cases, and again without each family of records; what it reaches on that family is compared
with the best of the sweep, chosen on half of the seeds and reported on the other half, both ways round. The forecast of
accuracy is left out and tested likewise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from research.accuracy.defaults_data import CASES, Floats, TableCase
from research.accuracy.defaults_run import AVERAGES, DefaultsSetting, DefaultsStudy, accuracies, noise_multiplier
from research.accuracy.defaults_sweep import ALONE_SIZES, CLIPS, ROUNDS, SEEDS, TRAVELS, studies
from study_protocol.study.suggestion import LEARNABLE, MARGIN, PublicNumbers, per_class, relative_noise

CHOSEN_ROUNDS = 100
TESTED = (1.0, 2.0)
# Of every hundred measured losses, so many lie within the bound; so many hospitals alone lose less than the least.
MOST, QUARTILE = 90, 25


@dataclass(frozen=True)
class Rule:
    clip_norm: float
    averaging: str
    travel: float
    power: float
    longest_step: float

    def setting(self, noise: float, rounds: int) -> DefaultsSetting:
        step = min(self.travel / noise**self.power / rounds, self.longest_step)
        return DefaultsSetting(1.0, rounds, self.clip_norm, step * rounds)


@dataclass(frozen=True)
class Losses:
    """Accuracy lost by a study, floor + by_noise · ν, in MOST of them at_most times that; by a hospital alone, / √n."""

    floor: float
    by_noise: float
    at_most: float
    alone: float
    alone_at_least: float


@dataclass(frozen=True)
class Measured:
    """One case under one limit. grid: accuracies (seeds, *GRID); beside: majority, pooled, alone (seeds, 2 + K)."""

    case: TableCase
    study: DefaultsStudy
    numbers: PublicNumbers
    grid: Floats
    beside: Floats

    @cached_property
    def means(self) -> Floats:
        """The grid's means over the seeds."""
        return self.grid.mean(axis=0)

    def noise(self, rounds: int) -> float:
        multiplier = noise_multiplier(self.study.scheme, self.study.counted, self.study.epsilon, 1.0, rounds)
        return relative_noise(self.numbers, multiplier, rounds)

    def reached(self, rule: Rule) -> float:
        """Mean accuracy of the rule, between the sweep's settings of travel."""
        setting = rule.setting(self.noise(CHOSEN_ROUNDS), CHOSEN_ROUNDS)
        place = ROUNDS.index(CHOSEN_ROUNDS), CLIPS.index(rule.clip_norm)
        line = self.means[0, *place, :, AVERAGES.index(rule.averaging)]
        return float(np.interp(np.log2(setting.travel), np.log2(TRAVELS), line))

    @property
    def alone(self) -> float:
        """Of the hospital that does best alone, without privacy, on average over the seeds."""
        return float(self.beside[:, 2:].mean(axis=0).max())

    @property
    def pooled(self) -> float:
        return float(self.beside[:, 1].mean())

    @property
    def majority(self) -> float:
        return float(self.beside[:, 0].mean())


def measured(sweep: Path) -> list[Measured]:
    """Everything that the sweep has. Raises FileNotFoundError: a case is missing."""
    measurements: list[Measured] = []
    for case in CASES.values():
        split = case.split(0)
        with np.load(sweep / f"{case.name}.npz") as arrays:
            for study in studies(case):
                outputs = 1 if case.classes == 2 else case.classes
                numbers = PublicNumbers(
                    hospitals=study.hospitals,
                    patients=len(split.labels) / study.hospitals,
                    largest=int(np.bincount(split.site).max()),
                    parameters=split.inputs.shape[1] * outputs,
                    classes=case.classes,
                )
                grid = arrays[f"{study.scheme} {study.epsilon:g}"]
                measurements.append(Measured(case, study, numbers, grid, arrays["beside"]))
    return measurements


def fitted_rule(cases: Sequence[Measured]) -> Rule:
    """The rule whose mean squared distance to the best setting of each is least; every family counts alike."""
    best = {id(case): float(case.means.max()) for case in cases}
    sizes = {case.case.family: sum(peer.case.family == case.case.family for peer in cases) for case in cases}
    candidates = [
        Rule(clip, averaging, float(f"{travel:.2g}"), power, longest)
        for clip, averaging, travel, power, longest in product(
            CLIPS, AVERAGES, np.geomspace(2, 64, 21), (0.0, 0.5, 0.75, 1.0), (5.0, 10.0, 20.0)
        )
    ]

    def distance(rule: Rule) -> float:
        return sum((best[id(case)] - case.reached(rule)) ** 2 / sizes[case.case.family] for case in cases)

    return min(candidates, key=distance)


def fitted_losses(cases: Sequence[Measured], rule: Rule, lone_losses: Iterable[tuple[str, int, float]]) -> Losses:
    """What was lost: medians of the ratio between measured and forecast, and the bounds that hold for most."""
    noise = np.array([case.noise(CHOSEN_ROUNDS) * per_class(case.case.classes) for case in cases])
    lost = np.array([max(case.pooled - case.reached(rule), 0.0) for case in cases])
    grid = list(product(np.arange(0.002, 0.0201, 0.001), np.arange(0.1, 1.01, 0.05)))

    def error(line: tuple[float, float]) -> float:
        # Half a point more on both sides: below that, seeds decide.
        return float(np.mean(np.abs(np.log((lost + 0.005) / (line[0] + line[1] * noise + 0.005)))))

    floor, by_noise = min(grid, key=error)
    ratio = np.maximum(lost - MARGIN, 0) / (floor + by_noise * noise)
    shares = np.array([loss * size**0.5 for _, size, loss in lone_losses])
    return Losses(
        floor=round(float(floor), 3),
        by_noise=round(float(by_noise), 2),
        at_most=round(float(np.percentile(ratio, MOST)), 2),
        alone=round(float(np.median(shares)), 2),
        alone_at_least=round(float(np.percentile(shares, QUARTILE)), 2),
    )


@cache
def run_exactly(name: str, study: DefaultsStudy, setting: DefaultsSetting) -> Floats:
    """Accuracies (seeds, averages) of one setting: the sweep's seeds, records and noise."""
    case = CASES[name]
    return np.stack([accuracies(case.split(seed), case.classes, study, [setting], seed)[0] for seed in range(SEEDS)])


def gap(case: Measured, reached: Floats) -> tuple[float, float, float]:
    """How far the rule is below the best of the sweep, its standard error over seeds, and that best's accuracy.

    The best is chosen on the even seeds and reported on the odd ones, and the other way round.
    """
    differences, best = np.empty(SEEDS), np.empty(SEEDS)
    for first in (0, 1):
        best_cell = np.unravel_index(case.grid[first::2].mean(axis=0).argmax(), case.grid.shape[1:])
        reported = case.grid[(slice(1 - first, None, 2), *best_cell)]
        best[1 - first :: 2] = reported
        differences[1 - first :: 2] = reported - reached[1 - first :: 2]
    return float(differences.mean()), float(differences.std(ddof=1) / SEEDS**0.5), float(best.mean())


def tested(cases: Sequence[Measured], lone_losses: Sequence[tuple[str, int, float]]) -> list[dict[str, Any]]:
    """One row for each case and limit, by a rule and a forecast that were fitted without its family."""
    rows: list[dict[str, Any]] = []
    for family in dict.fromkeys(case.case.family for case in cases):
        remaining = [case for case in cases if case.case.family != family]
        rule = fitted_rule(remaining)
        losses = fitted_losses(remaining, rule, [case for case in lone_losses if case[0] != family])
        for case in cases:
            if case.case.family == family:
                rows.append(_row(case, rule, losses))
    return rows


def _row(case: Measured, rule: Rule, losses: Losses) -> dict[str, Any]:
    noise = case.noise(CHOSEN_ROUNDS)
    place = AVERAGES.index(rule.averaging)
    full = run_exactly(case.case.name, case.study, rule.setting(noise, CHOSEN_ROUNDS))[:, place]
    short = run_exactly(case.case.name, case.study, rule.setting(case.noise(30), 30))[:, place]
    below, error, best = gap(case, full)
    forecast = losses.floor + losses.by_noise * noise * per_class(case.case.classes)
    lone_loss = losses.alone_at_least / case.numbers.largest**0.5
    reached, worst_loss = float(full.mean()), MARGIN + losses.at_most * forecast
    return {
        "case": case.case.name,
        "family": case.case.family,
        "scheme": case.study.scheme,
        "epsilon": case.study.epsilon,
        "hospitals": case.study.hospitals,
        "patients": round(case.numbers.patients),
        "parameters": case.numbers.parameters,
        "noise": round(noise, 5),
        "accuracy": round(reached, 4),
        "accuracy_30_rounds": round(float(short.mean()), 4),
        "best": round(best, 4),
        "gap": round(below, 4),
        "gap_error": round(error, 4),
        "pooled": round(case.pooled, 4),
        "majority": round(case.majority, 4),
        "alone": round(case.alone, 4),
        "lost": round(case.pooled - reached, 4),
        "forecast": round(forecast, 4),
        "forecast_at_most": round(worst_loss, 4),
        "forecast_alone": round(lone_loss, 4),
        "below_majority": reached < case.majority,
        "below_alone": reached < case.alone,
        "warned_majority": worst_loss >= LEARNABLE * (1 - case.majority),
        "warned_alone": worst_loss >= lone_loss,
        "rule": asdict(rule),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts that the pages name, over the tested limits; and of the forecast, over all of them."""
    tight = [row for row in rows if row["epsilon"] in TESTED]
    errors = [abs(row["lost"] - row["forecast"]) for row in rows]
    return {
        "rows": len(tight),
        "within_2_points": sum(row["gap"] <= 0.02 for row in tight),
        "largest_gap": max(row["gap"] for row in tight),
        "forecast_rows": len(rows),
        "forecast_mean_error": round(float(np.mean(errors)), 4),
        "forecast_largest_error": round(max(errors), 4),
        "within_forecast_at_most": sum(row["lost"] <= row["forecast_at_most"] for row in rows),
        **{
            f"{label}_{name}": sum(row[f"below_{name}"] is below and row[f"warned_{name}"] is warned for row in rows)
            for name in ("majority", "alone")
            for label, below, warned in (
                ("warned_rightly", True, True),
                ("missed", True, False),
                ("warned_needlessly", False, True),
                ("quiet", False, False),
            )
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = measured(options.sweep)
    lone_sites = [
        (name, int(size), float(loss)) for name, size, loss in json.loads((options.sweep / "alone.json").read_text())
    ]
    rule = fitted_rule(cases)
    rows = tested(cases, lone_sites)
    overview = {
        "seeds": SEEDS,
        "rule": {**asdict(rule), "rounds": CHOSEN_ROUNDS},
        "losses": asdict(fitted_losses(cases, rule, lone_sites)),
        "alone": [list(pair) for pair in lone_sites],
        "alone_sizes": list(ALONE_SIZES),
        "summary": summary(rows),
        "left_out": rows,
    }
    if options.out is not None:
        options.out.write_text(json.dumps(overview, indent=1) + "\n")
    print(json.dumps({name: overview[name] for name in ("rule", "losses", "summary")}, indent=1))
    for row in rows:
        print(
            f"{row['case']:20} {row['scheme']:10} ε {row['epsilon']:<4g} ν {row['noise']:.4f} {row['accuracy']:.3f} "
            f"best {row['best']:.3f} gap {row['gap']:+.3f} ± {row['gap_error']:.3f} 30 rounds "
            f"{row['accuracy_30_rounds']:.3f} lost {row['lost']:+.3f} forecast {row['forecast']:.3f} to "
            f"{row['forecast_at_most']:.3f} alone loses {row['forecast_alone']:.3f} "
            f"majority {row['majority']:.3f} alone {row['alone']:.3f} "
            f"{'below' if row['below_alone'] or row['below_majority'] else ''} "
            f"{'alone!' if row['warned_alone'] else ''} {'majority!' if row['warned_majority'] else ''}"
        )


if __name__ == "__main__":
    main()
