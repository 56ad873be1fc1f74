"""Coverage and width of the intervals of regressions under noise, with the kind's own sums and answers.

python -m research.glm.coverage [--cohorts 1000] [--others 300] [--only NAME] [--workers 2]

Each run draws a new cohort, asks all steps with the noise of a budget (ε, 10⁻⁵) and reads the last answer. Noise is
that of the continuous law, of which the discrete one differs by less than can be seen. The seed of a run is its number.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist

import numpy as np

from research.glm.cohorts import COHORTS, Floats
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds.glm import GeneralisedLinear

DELTA = 1e-5
_COUNT_HIGH, _LINEAR_HIGH = 4, 6.0


@dataclass(frozen=True)
class CoverageCase:
    """rate: of the outcome, or its mean. high: of a count."""

    family: str
    cohort: str
    patients: int
    epsilon: float
    rate: float
    high: float = _COUNT_HIGH

    @property
    def is_goal(self) -> bool:
        return self.patients * self.epsilon >= 10_000 and self.cohort in ("normal", "correlated")

    @property
    def name(self) -> str:
        return f"{self.family} {self.cohort} n={self.patients} ε={self.epsilon:g} rate={self.rate:g}"


def cases() -> Iterator[CoverageCase]:
    """Yield all cases of the page."""
    for family in ("logistic", "poisson", "linear"):
        rate = {"logistic": 0.3, "poisson": 1.0, "linear": 0.0}[family]
        sizes = [(10_000, 1.0), (5_000, 2.0), (20_000, 0.5)]
        for cohort in ("normal", "correlated"):
            yield from (CoverageCase(family, cohort, *size, rate) for size in sizes)
        if family != "linear":
            yield from (CoverageCase(family, "normal", *size, 0.05, high=2) for size in sizes)
        yield from (
            CoverageCase(family, cohort, 10_000, 1.0, rate)
            for cohort in ("wide", "strong", "skewed", "heavy", "binary", "mixed", "crossed")
        )
        for size in [(3_000, 1.0), (1_000, 3.0), (1_000, 1.0)]:
            yield from (CoverageCase(family, cohort, *size, rate) for cohort in ("normal", "correlated", "mixed"))
            if family == "logistic":
                yield CoverageCase(family, "normal", *size, 0.05)


@cache
def noise_multiplier(epsilon: float, delta: float = DELTA) -> float:
    """Return s/Δ of the Gaussian mechanism that is (ε, δ) private (Balle and Wang 2018, theorem 8)."""
    normal = NormalDist()

    def delta_of(noise: float) -> float:
        far = normal.cdf(-epsilon * noise - 1 / (2 * noise))
        return normal.cdf(1 / (2 * noise) - epsilon * noise) - np.exp(epsilon) * far

    low, high = 1e-2, 1e3
    for _ in range(100):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


def question_of(case: CoverageCase, **entries: object) -> GeneralisedLinear:
    cohort = COHORTS[case.cohort]
    outcomes: dict[str, dict[str, object]] = {
        "logistic": {"column": "y", "categories": ["1.0"]},
        "poisson": {"column": "y", "low": 0.0, "high": float(case.high)},
        "linear": {"column": "y", "low": -_LINEAR_HIGH, "high": _LINEAR_HIGH},
    }
    document: dict[str, object] = {
        "kind": "glm",
        "family": case.family,
        "noise_multiplier": noise_multiplier(case.epsilon),
        "outcome": outcomes[case.family],
        "predictors": cohort.predictors,
        "interactions": cohort.interactions,
    }
    return GeneralisedLinear.model_validate(document | entries)


@cache
def intercept_of(case: CoverageCase) -> float:
    """Return the intercept with which the outcome has this rate, by a large sample."""
    if case.family == "linear":
        return 0.0
    cohort = COHORTS[case.cohort]
    _, rows = cohort.draw(np.random.default_rng(10**6), 100_000)
    linear, low, high = rows[:, :-1] @ cohort.slopes, -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float(_mean(case.family, linear + middle).mean())
        low, high = (low, middle) if mean > case.rate else (middle, high)
    return low


def _mean(family: str, predictor: Floats) -> Floats:
    return np.exp(predictor) if family == "poisson" else 1 / (1 + np.exp(-predictor))


def outcome_of(case: CoverageCase, predictor: Floats, generator: np.random.Generator) -> Floats:
    if case.family == "linear":
        return predictor + generator.standard_normal(len(predictor))
    mean = _mean(case.family, predictor)
    sampled = generator.poisson(mean) if case.family == "poisson" else generator.random(len(mean)) < mean
    return sampled.astype(np.float64)


def last_answer(question: GeneralisedLinear, columns: dict[str, Floats], generator: np.random.Generator) -> Answer:
    """Return the answer of the last step."""
    while True:
        grid = question.grid()
        total = question.total(columns, grid.spacing) * grid.spacing
        std = grid.std * grid.spacing
        noised = NoisedSum(total + generator.normal(0.0, std, len(total)), std, int(generator.integers(2**31)))
        answer = question.answer(noised)
        following = question.next_question(answer)
        if following is None:
            return answer
        question = following


def run_cohort(case: CoverageCase, seed: int) -> Floats | None:
    """Return (covered, width / non-private width) of every coefficient, shape (2, p + 1). None: refused."""
    generator = np.random.default_rng([seed, 37])
    cohort = COHORTS[case.cohort]
    columns, rows = cohort.draw(generator, case.patients)
    truth = np.append(cohort.slopes, intercept_of(case))
    outcome = outcome_of(case, rows @ truth, generator)
    answer = last_answer(question_of(case), columns | {"y": outcome}, generator)
    table = next(table for table in answer.tables if table.name == "coefficients")
    low, high = (np.array([row[table.columns.index(end)] for row in table.rows], np.float64) for end in ("low", "high"))
    if bool(np.isnan(low).any()):
        return None
    curvature = np.ones(len(rows))
    if case.family != "linear":
        mean = _mean(case.family, rows @ truth)
        curvature = mean * (1 - mean) if case.family == "logistic" else mean
    width = 2 * 1.96 * np.sqrt(np.diag(np.linalg.inv((rows * curvature[:, None]).T @ rows)))
    covered = ((low <= truth) & (truth <= high)).astype(np.float64)
    return np.array([covered, (high - low) / width])


def measure(case: CoverageCase, cohorts: int, workers: int) -> str:
    with ProcessPoolExecutor(workers) as pool:
        results = list(pool.map(partial(run_cohort, case), range(cohorts), chunksize=max(1, cohorts // (4 * workers))))
    answered = [result for result in results if result is not None]
    refused = 1 - len(answered) / cohorts
    if not answered:
        return f"{case.name:52s} refused {refused:6.1%}"
    covered, ratio = np.array(answered)[:, 0], np.array(answered)[:, 1]
    per = covered.mean(axis=0)
    return (
        f"{case.name:52s} refused {refused:6.1%}  covered {covered.mean():6.1%} "
        f"(of each {per.min():5.1%} to {per.max():5.1%})  width {np.median(ratio):5.2f} "
        f"(largest {np.median(ratio, axis=0).max():5.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cohorts", type=int, default=1000)
    parser.add_argument("--others", type=int, default=300, help="cohorts of cases that are no goal")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    for case in cases():
        if arguments.only in case.name:
            sys.stdout.write(
                measure(case, arguments.cohorts if case.is_goal else arguments.others, arguments.workers) + "\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
