"""The tables of a regression: of a step on the way, and of the last one."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from study_protocol.queries.answer import (
    ERRORS,
    ESTIMATE,
    HIGH,
    LOW,
    NO_ANSWER,
    RAW,
    Answer,
    AnswerTable,
    NoisedSum,
    Plot,
    rows_of,
)
from study_protocol.queries.counting import NORMAL, Floats, counts
from study_protocol.queries.phrases import listed
from study_protocol.queries.regression.design import INTERCEPT
from study_protocol.queries.regression.estimates import Fit, ReleasedSums, breaks_the_law, fit, remainder, stands_out
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
    pairs += [(name, second) for name in names[: model.slopes] for second in names[: model.slopes]]
    frame = AnswerTable(
        name=FRAME,
        title="centre and scale of the next step's sums",
        columns=(TERM, "with", SCALED),
        rows=rows_of(pairs, [*centre, *matrix.ravel()]),
    )
    return Answer(tables=(start, patients_table(model, noised), frame), notes=(_GOES_ON,))


def final_answer(model: Model, noised: NoisedSum) -> Answer:
    """Return coefficients with errors, intervals and p-values, ratios, and the number of patients.

    Where the interval's coverage could not be kept, there is no number, and a note that says what would help.
    """
    missing = _missing(model, noised)
    model, noised = model.answering(noised)
    released = model.released(noised)
    fitted = fit(released, model.family)
    refusal = _refusal(model, released, fitted)
    numbers = _numbers(model, fitted) if refusal is None else np.full((6, model.size), np.nan)
    names = [(name,) for name in labels(model)]
    table = AnswerTable(
        name="coefficients",
        title=f"coefficients ({model.family} regression)",
        columns=(TERM, ESTIMATE, *ERRORS, "std_error", "p_value"),
        rows=rows_of(names, *numbers, p_values_of(numbers[0], numbers[-1])),
        plot=_forest(model, scale=None),
    )
    tables = [table]
    if model.family in RATIO:
        with np.errstate(over="ignore"):
            ratios = np.exp(numbers[[0, 3, 4]])
        tables.append(
            AnswerTable(
                name="ratios",
                title=f"{RATIO[model.family]}s",
                columns=(TERM, ESTIMATE, LOW, HIGH),
                rows=rows_of(names, *ratios),
                plot=_forest(model, scale="log"),
            )
        )
    notes = (_LAW[model.family].format(fitted.dispersion),) if refusal is None else (refusal,)
    # A law that does not fit would not fit with more budget.
    notes = (*notes, _WHAT_HELPS) if refusal not in (None, _NOT_POISSON) else notes
    return Answer(tables=(*tables, patients_table(model, noised)), notes=(*notes, *missing))


def _missing(model: Model, noised: NoisedSum) -> tuple[str, ...]:
    """Return a note on the hospitals that are not in the sum, if there are any."""
    answered = model.hospitals if noised.answered is None else noised.answered
    silent = [hospital for hospital in model.hospitals if hospital not in answered]
    return (f"{', '.join(silent)}: {NO_ANSWER}. These patients are in no number here.",) if silent else ()


def _numbers(model: Model, fitted: Fit) -> Floats:
    """Return estimate, error of the noise and of sampling, ends of the interval and standard error, shape (6, D)."""
    units = model.own_units @ model.frame_matrix.T
    unit, middle = (model.outcome.half, model.outcome.middle) if model.family == "linear" else (1.0, 0.0)
    estimate = unit * (model.own_units @ model.coefficients + units @ fitted.step)
    estimate[model.slopes :] += middle
    sampling, noise = (
        unit * np.sqrt(np.einsum("ij,jk,ik->i", units, covariance, units))
        for covariance in (fitted.sampling, fitted.noise)
    )
    error = np.hypot(sampling, noise)
    return np.stack([estimate, noise, sampling, estimate - NORMAL * error, estimate + NORMAL * error, error])


def _refusal(model: Model, released: ReleasedSums, fitted: Fit) -> str | None:
    """Return why there are no estimates, by released and public numbers alone, or None."""
    if not released.has_patients:
        return _NO_PATIENTS
    if not stands_out(released):
        return _NOT_DETERMINED.format(listed(_least_known(model, released)))
    if model.family != "linear" and remainder(released, fitted) > _MOST_REMAINDER:
        return _NOT_CONVERGED
    if breaks_the_law(released):
        return _NOT_POISSON
    return None


def _least_known(model: Model, released: ReleasedSums) -> list[str]:
    """Return the columns of the combination about which the sums say least."""
    _, vectors = np.linalg.eigh(released.information)
    # By how much each scaled column is in it.
    parts = np.abs(model.frame_matrix.T @ vectors[:, 0])
    return [name for name, part in zip(labels(model), parts, strict=True) if part >= parts.max() / 2]


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
    # The distribution function is 1 less the error function, of which nothing is left beyond 8 errors.
    return np.array([math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else np.nan for z in estimate / error])


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


_COUNTED = (
    "Patients far from the middle of all count less. So where the model's form is wrong, coefficients differ from "
    "those of an analysis in which all count alike. Intervals and p-values count the noise and the sampling of patients"
)
_LAW = {
    "logistic": f"{_COUNTED}, as a logistic model has it.",
    "poisson": f"{_COUNTED}, of {{:.2f}} times the variance of Poisson's law (1 at least, alike for all). Counts above "
    "the range's high are taken into account by that law. So if counts vary more, few should be above it.",
    "linear": f"{_COUNTED}, with residuals that vary alike for all. If they do not, intervals can be too short.",
}
# In errors of noise and sampling.
_MOST_REMAINDER = 1.0
_NO_PATIENTS = (
    "No estimates: the patients with every value, or those whose outcome is uncertain, do not stand out of the noise. "
    "The outcome may hardly ever vary, or the predictors may decide it (separation)."
)
_NOT_DETERMINED = (
    "No estimates: what the records say about {} does not stand out of the noise. Columns may say nearly the same, a "
    "category may be rare, the outcome may hardly vary, or the predictors may decide it (separation)."
)
_NOT_CONVERGED = (
    "No estimates: the last step was so long that its intervals would be too short. The steps before it had too much "
    "noise, or there were too few of them."
)
_NOT_POISSON = (
    "No estimates: at the range's high there are more or fewer patients than Poisson's law has there, so that its "
    "intervals would be too short. Ask again with a higher high, which few counts reach."
)
_WHAT_HELPS = (
    "What helps: more budget (a smaller noise multiplier), fewer predictors, narrower ranges, rare categories put "
    "together, one intercept for all hospitals, or more patients. An answer that stays empty costs as much as any "
    "other."
)
_GOES_ON = "The analysis goes on: the estimates come with the last step. These numbers are only where it begins."
