"""What bins, noise and chance move in survival curves and quantiles: python -m research.accuracy.survival_binning

On cohorts that lifelines brings. Exact: Kaplan and Meier on the times as they are, numpy's quantiles on the values.
Bins hold their beginning and not their end; in one of them events come before censorings; patients followed beyond
the last edge are censored there. Noise of ε 1 at δ 1e-5 for one question: its multiplier is 3.7306.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lifelines import KaplanMeierFitter, datasets
from numpy.typing import NDArray

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds.quantiles import Quantiles
from study_protocol.queries.kinds.survival import Survival
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.variables import Indicator, Range, Variable

NOISE, DRAWS = 3.7306, 400
# Fewer patients than this say nothing about a curve, with or without bins.
LEAST_AT_RISK = 20
QUARTILES = (0.25, 0.5, 0.75)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SurvivalCohort:
    """unit: of time; widths: of bins; last: edge."""

    name: str
    time: str
    event: str
    unit: str
    widths: tuple[float, ...]
    last: float


COHORTS = (
    SurvivalCohort("waltons", "T", "E", "days", (5, 10), 70),
    SurvivalCohort("rossi", "week", "arrest", "weeks", (4, 13), 52),
    SurvivalCohort("lung", "time", "status", "days", (30, 90), 900),
    SurvivalCohort("gbsg2", "time", "cens", "days", (90, 180), 2520),
    SurvivalCohort("kidney_transplant", "time", "death", "days", (90, 180), 3240),
)
NUMBERS = (("rossi", "age", 15.0, 50.0), ("lung", "age", 30.0, 90.0), ("gbsg2", "estrec", 0.0, 1200.0))


def columns_of(cohort: str, *names: str) -> dict[str, Floats]:
    data: Any = getattr(datasets, f"load_{cohort}")()
    return {name: data[name].to_numpy(float) for name in names}


def table(answer: Answer, name: str, column: str = "estimate") -> Floats:
    question_table = next(candidate for candidate in answer.tables if candidate.name == name)
    place = question_table.columns.index(column)
    return np.array([np.nan if row[place] is None else row[place] for row in question_table.rows], np.float64)


def answers(question: BaseQuestion, columns: dict[str, Floats]) -> tuple[Answer, list[Answer]]:
    """Without noise, and with many draws of it."""
    spacing, source = question.grid().spacing, np.random.default_rng(1)
    total: Floats = np.asarray(question.total(columns, spacing) * spacing, np.float64)
    std = NOISE * question.sensitivity
    noised = [NoisedSum(np.add(total, source.normal(0, std, len(total))), std, draw) for draw in range(DRAWS)]
    return question.answer(NoisedSum(total, 0.0, 0)), [question.answer(noised_sum) for noised_sum in noised]


def curve(cohort: SurvivalCohort, width: float) -> dict[str, object]:
    columns = columns_of(cohort.name, cohort.time, cohort.event)
    edges = tuple(float(edge) for edge in np.arange(0, cohort.last + width / 2, width))
    question = Survival(
        kind="survival",
        noise_multiplier=NOISE,
        time=Variable(column=cohort.time, edges=edges),
        event=Indicator(column=cohort.event, categories=("1",)),
    )
    binned, noised = answers(question, columns)
    is_counted = table(binned, "at-risk") >= LEAST_AT_RISK
    # An event at an edge itself is in the next bin: just before it.
    exact = KaplanMeierFitter().fit(columns[cohort.time], columns[cohort.event])
    at_edges = exact.survival_function_at_times(np.maximum(np.nextafter(edges, -np.inf), 0.0)).to_numpy()
    survival = table(binned, "survival")
    moved = [np.nanmax(np.abs(table(answer, "survival") - survival)[is_counted]) for answer in noised]
    return {
        "cohort": cohort.name,
        "patients": len(columns[cohort.time]),
        "bins": f"{len(edges) - 1} of {width:g} {cohort.unit}",
        "largest distance of the binned curve": float(np.abs(survival - at_edges)[is_counted].max()),
        "largest distance by noise, median": float(np.median(moved)),
        "largest sampling error": float(table(binned, "survival", "sampling_error")[is_counted].max()),
        "median": float(exact.median_survival_time_) if np.isfinite(exact.median_survival_time_) else None,
        "median, binned": None if np.isnan(median := table(binned, "median")[0]) else float(median),
    }


def quartiles(cohort: str, column: str, low: float, high: float, leaves: int) -> dict[str, object]:
    columns = columns_of(cohort, column)
    question = Quantiles(
        kind="quantiles", noise_multiplier=NOISE, number=Range(column=column, low=low, high=high), leaves=leaves
    )
    binned, noised = answers(question, columns)
    exact = np.quantile(columns[column], QUARTILES, method="inverted_cdf")
    quantiles = table(binned, "quantiles")
    moved = [np.nanmax(np.abs(table(answer, "quantiles") - quantiles)) for answer in noised]
    return {
        "cohort": cohort,
        "patients": len(columns[column]),
        "column": column,
        "leaves": f"{leaves} of {(high - low) / leaves:.4g} from {low:g}",
        "quartiles": exact.tolist(),
        "quartiles, binned": quantiles.tolist(),
        "largest distance by noise, median": float(np.median(moved)),
        "largest sampling error": float(table(binned, "quantiles", "sampling_error").max()),
    }


def main() -> None:
    """Print both tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/survival_binning.json"))
    arguments = parser.parse_args()
    curves = [curve(cohort, width) for cohort in COHORTS for width in cohort.widths]
    numbers = [quartiles(*number, leaves) for number in NUMBERS for leaves in (32, 64)]
    for row in (*curves, *numbers):
        print(row)
    result = {"noise multiplier": NOISE, "draws": DRAWS, "survival": curves, "quantiles": numbers}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
