"""The tables of a regression: of a step on the way, and of the last one."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from study_protocol.queries.answer import (
    ERRORS,
    ESTIMATE,
    HIGH,
    LOW,
    RAW,
    Answer,
    AnswerTable,
    NoisedSum,
    Plot,
    rows_of,
)
from study_protocol.queries.counting import NORMAL, Floats, counts
from study_protocol.queries.regression.design import INTERCEPT

if TYPE_CHECKING:
    from study_protocol.queries.kinds.glm import GeneralisedLinear

NEXT, SCALED, TERM = "next", "scaled", "term"
RATIO = {"logistic": "odds ratio", "poisson": "rate ratio"}


def step_answer(question: GeneralisedLinear, noised: NoisedSum) -> Answer:
    """Return where the next step begins, in the columns' own units and on the scaled design."""
    scaled = question.released(noised).newton()
    own = own_units(question) @ scaled
    table = AnswerTable(
        name=NEXT,
        title=f"step {question.step} of {question.steps}: where the next step begins",
        columns=(TERM, "start", SCALED),
        rows=rows_of([(label,) for label in labels(question)], own, scaled),
    )
    return Answer(tables=(table, patients_table(question, noised)), notes=(_GOES_ON,))


def final_answer(question: GeneralisedLinear, noised: NoisedSum) -> Answer:
    released = question.released(noised)
    scaled = released.newton()
    units = own_units(question)
    inverse = np.linalg.inv(released.definite)
    noise = inverse @ released.noise_at(scaled - released.at) @ inverse
    estimate = units @ scaled
    sampling_error, dp_error = (np.sqrt(np.einsum("ij,jk,ik->i", units, c, units)) for c in (inverse, noise))
    error = np.hypot(sampling_error, dp_error)
    low, high = estimate - NORMAL * error, estimate + NORMAL * error
    p_values = p_values_of(estimate, error)
    names = labels(question)
    table = AnswerTable(
        name="coefficients",
        title=f"coefficients ({question.family} regression)",
        columns=(TERM, ESTIMATE, *ERRORS, "std_error", "p_value"),
        rows=rows_of([(name,) for name in names], estimate, dp_error, sampling_error, low, high, error, p_values),
        plot=_forest(question, scale=None),
    )
    tables = [table]
    if question.family in RATIO:
        with np.errstate(over="ignore"):
            ratios = [np.exp(values) for values in (estimate, low, high)]
        tables.append(
            AnswerTable(
                name="ratios",
                title=f"{RATIO[question.family]}s",
                columns=(TERM, ESTIMATE, LOW, HIGH),
                rows=rows_of([(name,) for name in names], *ratios),
                plot=_forest(question, scale="log"),
            )
        )
    return Answer(tables=(*tables, patients_table(question, noised)))


def _forest(question: GeneralisedLinear, *, scale: Literal["log"] | None) -> Plot:
    """Return a forest plot: terms below each other, beside no effect. Intercepts are no effects."""
    intercepts = labels(question)[len(question.design.labels) :]
    reference = 0.0 if scale is None else 1.0
    return Plot(
        kind="points",
        x=TERM,
        y=ESTIMATE,
        low=LOW,
        high=HIGH,
        scale=scale,
        reference=reference,
        omitted=intercepts,
    )


def labels(question: GeneralisedLinear) -> tuple[str, ...]:
    intercepts = [f"{INTERCEPT}: {hospital}" for hospital in question.hospitals] or [INTERCEPT]
    return (*question.design.labels, *intercepts)


def own_units(question: GeneralisedLinear) -> Floats:
    """Return (D, D): coefficients of the scaled design to those in the columns' own units."""
    transposed, size, slopes = question.design.units.T, question.size, len(question.design.labels)
    matrix = np.eye(size)
    matrix[:slopes, :slopes] = transposed[:slopes, :slopes]
    matrix[slopes:, :slopes] = transposed[-1, :slopes]
    return matrix


def p_values_of(estimate: Floats, error: Floats) -> Floats:
    normal = NormalDist()
    return np.array([2 * normal.cdf(-abs(z)) if math.isfinite(z) else np.nan for z in (estimate / error).tolist()])


def patients_table(question: GeneralisedLinear, noised: NoisedSum) -> AnswerTable:
    scale = question.scales.count
    size = counts(np.array([noised.total[0] / scale]), np.array([(noised.std / scale) ** 2]))
    return AnswerTable(
        name="patients",
        title="patients with every value",
        columns=(ESTIMATE, RAW, *ERRORS),
        rows=rows_of([()], size.estimate, size.raw, *size.errors),
        counts=ESTIMATE,
    )


_GOES_ON = "The analysis goes on: the estimates come with the last step. These numbers are only where it begins."
