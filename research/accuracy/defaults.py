"""Where the constants of `study_protocol.study.suggestion` come from, and how good they are on data left out.

    python -m research.accuracy.defaults_sweep SWEEP           accuracies of every setting, 15 minutes on one core
    python -m research.accuracy.defaults_sweep SWEEP --alone    what a hospital alone loses, by its size
    python -m research.accuracy.defaults SWEEP --out research/benchmarks/results/defaults.json

The forecast and its warnings are fitted on all cases, and again without each family of records, and then tested on
that family. What the rule reaches is compared with the best of the sweep, chosen on half of the seeds and reported on
the other half, both ways round. The rule is fitted likewise, to see whether another one would be better on data that
are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.tasks.declared_columns import NumberColumn
from research.accuracy.defaults_data import CASES, TYPICAL, TableCase
from research.accuracy.defaults_run import AVERAGES, DefaultsSetting, DefaultsStudy, accuracies, noise_multiplier
from research.accuracy.defaults_sweep import CLIPS, ROUNDS, SEEDS, TRAVELS, studies
from research.accuracy.defaults_tables import Floats
from study_protocol.study import suggestion
from study_protocol.study.suggestion import MARGIN, PublicNumbers, forecast_accuracy, per_class, relative_noise

CHOSEN_ROUNDS = suggestion.ROUNDS
# Of the measured losses, so large a share lies within the bound. A hospital alone was better in so large a share of
# the studies of which the warning says it.
MOST, RIGHT = 0.88, 0.95
# Of `research.accuracy.guessed_ranges`: where typical ranges are guessed, so large a factor was needed.
GUESSED = 2.0
WARNED_AT_LEAST = 8


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


OWN = Rule(
    suggestion.CLIP_NORM, suggestion.AVERAGING.name, suggestion.TRAVEL, suggestion.POWER, suggestion.LONGEST_STEP
)


@dataclass(frozen=True)
class Losses:
    """Constants of the forecast, as `study_protocol.study.suggestion` names and explains them."""

    floor: float
    by_noise: float
    by_ranges: float
    at_most: float
    at_most_in_doubt: float
    noise_like_alone: float


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
        multiplier = noise_multiplier(
            self.study.scheme, self.study.counted, self.study.epsilon, 1.0, rounds, self.study.enforcement
        )
        return relative_noise(self.numbers, multiplier, rounds)

    def reached(self, rule: Rule) -> float:
        """Mean accuracy of the rule, between the sweep's settings of travel."""
        setting = rule.setting(self.noise(CHOSEN_ROUNDS), CHOSEN_ROUNDS)
        place = ROUNDS.index(CHOSEN_ROUNDS), CLIPS.index(rule.clip_norm)
        line = self.means[*place, :, AVERAGES.index(rule.averaging)]
        return float(np.interp(np.log2(setting.travel), np.log2(TRAVELS), line))

    @cached_property
    def lost(self) -> float:
        """By the rule that is suggested."""
        return self.pooled - self.reached(OWN)

    @property
    def doubts(self) -> tuple[str, ...]:
        return forecast_accuracy(self.numbers, self.noise(CHOSEN_ROUNDS)).doubts

    @property
    def score(self) -> float:
        """Noise beside the error of a hospital alone."""
        return self.noise(CHOSEN_ROUNDS) / (self.numbers.parameters / self.numbers.patients) ** 0.5

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
                ranges = [isinstance(each, NumberColumn) and not (each.typical or each.log) for each in case.declared()]
                numbers = PublicNumbers(
                    hospitals=study.hospitals,
                    patients=len(split.labels) / study.hospitals,
                    largest=int(np.bincount(split.site).max()),
                    parameters=split.inputs.shape[1] * outputs,
                    classes=case.classes,
                    ranges=sum(ranges) / len(ranges),
                )
                grid = arrays[f"{study.scheme} {study.epsilon:g}"]
                measurements.append(Measured(case, study, numbers, grid, arrays["beside"]))
    return measurements


def fitted_rule(cases: Sequence[Measured]) -> Rule:
    """The rule whose mean squared distance to the best setting of each is least; every family counts alike."""
    best = {id(case): float(case.means.max()) for case in cases}
    candidates = [
        Rule(clip, averaging, float(f"{travel:.2g}"), power, longest)
        for clip, averaging, travel, power, longest in product(
            CLIPS, AVERAGES, np.geomspace(2, 64, 21), (0.5, 0.75, 1.0, 1.25, 1.5), (5.0, 10.0, 20.0)
        )
    ]

    weights = family_weights(cases)

    def distance(rule: Rule) -> float:
        return sum(w * (best[id(case)] - case.reached(rule)) ** 2 for w, case in zip(weights, cases, strict=True))

    return min(candidates, key=distance)


def family_weights(cases: Sequence[Measured]) -> Floats:
    """Return (n,) weights with which every family counts alike."""
    families = [case.case.family for case in cases]
    return np.array([1 / families.count(family) for family in families])


def fitted_losses(cases: Sequence[Measured]) -> Losses:
    """Return medians of the ratio between measured and forecast, and bounds that hold for most."""
    weights = family_weights(cases)
    noise = np.array([case.noise(CHOSEN_ROUNDS) * per_class(case.case.classes) for case in cases])
    ranges = np.array([case.numbers.ranges for case in cases])
    lost = np.array([max(case.lost, 0.0) for case in cases])
    grid = product(np.arange(0, 0.0081, 0.002), np.arange(0.1, 1.01, 0.05), np.arange(0, 0.0401, 0.005))

    def forecast(constants: tuple[float, float, float]) -> Floats:
        return constants[0] + constants[1] * noise + constants[2] * ranges

    def error(constants: tuple[float, float, float]) -> float:
        # A point more on both sides: below that, seeds decide.
        return float(weights @ np.abs(np.log((lost + MARGIN) / (forecast(constants) + MARGIN))))

    floor, by_noise, by_ranges = best = min(grid, key=error)
    ratios = np.maximum(lost - MARGIN, 0) / forecast(best)
    doubted = np.array([bool(case.doubts) for case in cases])

    def most(chosen: np.ndarray) -> float:
        order = np.argsort(ratios[chosen])
        reaching = np.cumsum(weights[chosen][order]) >= MOST * weights[chosen].sum()
        return round(float(ratios[chosen][order][reaching.argmax()]), 2)

    return Losses(
        floor=round(float(floor), 3),
        by_noise=round(float(by_noise), 2),
        by_ranges=round(float(by_ranges), 3),
        at_most=max(most(~doubted), GUESSED),
        at_most_in_doubt=most(doubted),
        noise_like_alone=round(_least_score(cases), 3),
    )


def _least_score(cases: Sequence[Measured]) -> float:
    """Return the least noise beside a hospital's own error above which a hospital alone was mostly better."""
    for threshold in sorted(case.score for case in cases):
        warned = [case for case in cases if case.score >= threshold]
        if (
            len(warned) >= WARNED_AT_LEAST
            and np.mean([case.lost > case.pooled - case.alone for case in warned]) >= RIGHT
        ):
            return threshold
    return float("inf")


def lone_share(lone_losses: Sequence[tuple[str, int, float]]) -> float:
    """Return the median of what n patients alone lose, as a multiple of √(parameters / n)."""
    shares: list[float] = []
    for name, size, loss in lone_losses:
        case = CASES[name]
        parameters = case.split(0).inputs.shape[1] * (1 if case.classes == 2 else case.classes)
        shares.append(loss / (parameters / size) ** 0.5)
    return round(float(np.median(shares)), 2)


def run_exactly(case: Measured, setting: DefaultsSetting) -> Floats:
    """Accuracies (seeds,) of one setting: the sweep's seeds, records and noise."""
    place, table = AVERAGES.index(OWN.averaging), case.case
    return np.array(
        [accuracies(table.split(s), table.classes, case.study, [setting], s)[0, place] for s in range(SEEDS)]
    )


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


def tested(cases: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row for each case and limit: the rule, and a forecast that was fitted without the case's family."""
    rows: list[dict[str, Any]] = []
    for family in dict.fromkeys(case.case.family for case in cases):
        remaining = [case for case in cases if case.case.family != family]
        refitted, losses = fitted_rule(remaining), fitted_losses(remaining)
        rows += [_row(case, refitted, losses) for case in cases if case.case.family == family]
    return rows


def _row(case: Measured, refitted: Rule, losses: Losses) -> dict[str, Any]:
    noise, numbers = case.noise(CHOSEN_ROUNDS), case.numbers
    full = run_exactly(case, OWN.setting(noise, CHOSEN_ROUNDS))
    below, error, best = gap(case, full)
    reached = float(full.mean())
    scale = per_class(case.case.classes)
    forecast = losses.floor + losses.by_noise * noise * scale + losses.by_ranges * numbers.ranges
    worst = MARGIN + (losses.at_most_in_doubt if case.doubts else losses.at_most) * forecast
    return {
        "case": case.case.name,
        "family": case.case.family,
        "scheme": case.study.scheme,
        "epsilon": case.study.epsilon,
        "hospitals": case.study.hospitals,
        "patients": round(numbers.patients),
        "parameters": numbers.parameters,
        "noise": round(noise, 5),
        "accuracy": round(reached, 4),
        "best": round(best, 4),
        "gap": round(below, 4),
        "gap_error": round(error, 4),
        "gap_refitted": round(best - case.reached(refitted), 4),
        "pooled": round(case.pooled, 4),
        "majority": round(case.majority, 4),
        "alone": round(case.alone, 4),
        "lost": round(case.pooled - reached, 4),
        "forecast": round(forecast, 4),
        "forecast_at_most": round(worst, 4),
        "below_majority": reached < case.majority,
        "below_alone": reached < case.alone,
        "warned_majority": forecast >= suggestion.LEARNABLE * (1 - case.majority),
        "warned_alone": case.score >= losses.noise_like_alone,
        "doubts": list(case.doubts),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts that the pages name: of all rows, of those by ranges alone and of those with typical ranges."""
    groups: dict[str, Callable[[dict[str, Any]], bool]] = {
        "all": lambda _: True,
        "ranges": lambda row: not row["case"].endswith(TYPICAL),
        "typical": lambda row: row["case"].endswith(TYPICAL),
        "doubted": lambda row: bool(row["doubts"]),
        "sure": lambda row: not row["doubts"],
    }
    return {name: _counts([row for row in rows if is_of(row)]) for name, is_of in groups.items()}


def _counts(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    errors = [abs(row["lost"] - row["forecast"]) for row in rows]
    return {
        "rows": len(rows),
        "within_2_points": sum(row["gap"] <= 0.02 for row in rows),
        "largest_gap": max(row["gap"] for row in rows),
        "root_mean_square_gap": round(float(np.mean([row["gap"] ** 2 for row in rows])) ** 0.5, 4),
        "root_mean_square_gap_refitted": round(float(np.mean([row["gap_refitted"] ** 2 for row in rows])) ** 0.5, 4),
        "forecast_mean_error": round(float(np.mean(errors)), 4),
        "forecast_largest_error": round(max(errors), 4),
        "wrong_by_5_points": sum(error > 0.05 for error in errors),
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


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return lost/forecast/bound/below the best, in points, by encoding and ε. A star: the forecast was not sure."""
    by_name = {(row["case"], row["epsilon"]): row for row in rows}
    lines = ["| data | ranges, ε = 1 | ranges, ε = 2 | typical, ε = 1 | typical, ε = 2 |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["case"].removesuffix(TYPICAL) for row in rows):
        entries = [by_name[name + encoding, epsilon] for encoding in ("", TYPICAL) for epsilon in (1.0, 2.0)]
        lines.append(f"| {name} | {' | '.join(map(_points, entries))} |")
    return "\n".join(lines)


def _points(row: dict[str, Any]) -> str:
    numbers = (f"{100 * row[name]:.1f}" for name in ("lost", "forecast", "forecast_at_most", "gap"))
    return "/".join(numbers) + "\\*" * bool(row["doubts"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = measured(options.sweep)
    lone = [
        (name, int(size), float(loss)) for name, size, loss in json.loads((options.sweep / "alone.json").read_text())
    ]
    rows = tested(cases)
    overview = {
        "seeds": SEEDS,
        "rule": {**asdict(OWN), "rounds": CHOSEN_ROUNDS},
        "rule_refitted": asdict(fitted_rule(cases)),
        "losses": asdict(fitted_losses(cases)) | {"alone": lone_share(lone)},
        "summary": summary(rows),
        "left_out": rows,
    }
    if options.out is not None:
        options.out.write_text(json.dumps(overview, indent=1) + "\n")
    print(json.dumps({name: overview[name] for name in ("rule", "rule_refitted", "losses", "summary")}, indent=1))
    print(table_of(rows))


if __name__ == "__main__":
    main()
