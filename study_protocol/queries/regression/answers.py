"""The tables of a regression: of a step on the way, and of the last one."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

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
from study_protocol.queries.regression.estimates import fit
from study_protocol.queries.regression.model import Model

NEXT, FRAME, SCALED, TERM = "next", "frame", "scaled", "term"
RATIO = {"logistic": "odds ratio", "poisson": "rate ratio"}


def step_answer(model: Model, noised: NoisedSum, words: str) -> Answer:
    """Return where the next step begins, in the columns' own units and on the scaled design, and in which frame."""
    scaled, (centre, matrix) = model.next_at(noised), model.next_frame(noised)
    names = labels(model)
    start = AnswerTable(
        name=NEXT,
        title=f"{words}: where the next step begins",
        columns=(TERM, "start", SCALED),
        rows=rows_of([(label,) for label in names], model.own_units @ scaled, scaled),
    )
    pairs = [(name, "centre") for name in names[: model.slopes]]
    pairs += [(name, other) for name in names[: model.slopes] for other in names[: model.slopes]]
    frame = AnswerTable(
        name=FRAME,
        title="centre and scale of the next step's sums",
        columns=(TERM, "with", SCALED),
        rows=rows_of(pairs, [*centre, *matrix.ravel()]),
    )
    return Answer(tables=(start, patients_table(model, noised), frame), notes=(_GOES_ON,))


def final_answer(model: Model, noised: NoisedSum) -> Answer:
    """Return coefficients with errors, intervals and p-values, ratios, and the number of patients."""
    released = model.released(noised)
    fitted = fit(released, is_linear=model.family == "linear")
    units = model.own_units @ model.frame_matrix.T
    unit, middle = (model.outcome.half, model.outcome.middle) if model.family == "linear" else (1.0, 0.0)
    estimate = unit * (model.own_units @ model.coefficients + units @ fitted.step)
    estimate[model.slopes :] += middle
    sampling_error, dp_error = (
        unit * np.sqrt(np.einsum("ij,jk,ik->i", units, covariance, units))
        for covariance in (fitted.sampling, fitted.noise)
    )
    error = np.hypot(sampling_error, dp_error)
    low, high = estimate - NORMAL * error, estimate + NORMAL * error
    names = [(name,) for name in labels(model)]
    table = AnswerTable(
        name="coefficients",
        title=f"coefficients ({model.family} regression)",
        columns=(TERM, ESTIMATE, *ERRORS, "std_error", "p_value"),
        rows=rows_of(names, estimate, dp_error, sampling_error, low, high, error, p_values_of(estimate, error)),
        plot=_forest(model, scale=None),
    )
    tables = [table]
    if model.family in RATIO:
        with np.errstate(over="ignore"):
            ratios = [np.exp(values) for values in (estimate, low, high)]
        tables.append(
            AnswerTable(
                name="ratios",
                title=f"{RATIO[model.family]}s",
                columns=(TERM, ESTIMATE, LOW, HIGH),
                rows=rows_of(names, *ratios),
                plot=_forest(model, scale="log"),
            )
        )
    return Answer(tables=(*tables, patients_table(model, noised)))


def _forest(model: Model, *, scale: Literal["log"] | None) -> Plot:
    """Return a forest plot: terms below each other, beside no effect. Intercepts are no effects."""
    intercepts = labels(model)[model.slopes :]
    reference = 0.0 if scale is None else 1.0
    return Plot(
        kind="points", x=TERM, y=ESTIMATE, low=LOW, high=HIGH, scale=scale, reference=reference, omitted=intercepts
    )


def labels(model: Model) -> tuple[str, ...]:
    """Return the names of all coefficients."""
    intercepts = [f"{INTERCEPT}: {hospital}" for hospital in model.hospitals] or [INTERCEPT]
    return (*model.design.labels, *intercepts)


def p_values_of(estimate: Floats, error: Floats) -> Floats:
    normal = NormalDist()
    return np.array([2 * normal.cdf(-abs(z)) if math.isfinite(z) else np.nan for z in (estimate / error).tolist()])


def patients_table(model: Model, noised: NoisedSum) -> AnswerTable:
    scale = model.scales.count
    size = counts(np.array([noised.total[0] / scale]), np.array([(noised.std / scale) ** 2]))
    return AnswerTable(
        name="patients",
        title="patients with every value",
        columns=(ESTIMATE, RAW, *ERRORS),
        rows=rows_of([()], size.estimate, size.raw, *size.errors),
        counts=ESTIMATE,
    )


_GOES_ON = "The analysis goes on: the estimates come with the last step. These numbers are only where it begins."
