"""An imagined cohort, from public ranges and categories alone, to say how exact a regression will be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.counting import Floats
from study_protocol.queries.regression.design import Factor
from study_protocol.queries.regression.model import Model
from study_protocol.queries.variables import Indicator, Patients, Range

_PATIENTS = 4096
# So fine that the sum does not notice, and so coarse that it does not overflow.
_SPACING = 2.0**-40


def assumed_sum(model: Model, patients: int) -> Floats:
    """Return the sum over so many patients like the imagined ones, as many at each hospital, shape (cells,)."""
    total = model.total(_cohort(model), np.ones(_PATIENTS, bool), _SPACING)
    placed = [model.placed(total, hospital) for hospital in model.hospitals] or [total]
    return np.mean(placed, axis=0) * (_SPACING * patients / _PATIENTS)


def _cohort(model: Model) -> Patients:
    """Numbers are normal with a sixth of their range as deviation, categories equally frequent, all independent.

    Half have the outcome of a yes or no. Counts have a quarter of their range's high as mean. Offset and weight are the
    same for all.
    """
    generator = np.random.default_rng(0)
    cohort = {each.column: _values(each, generator) for each in model.design.predictors}
    outcome = model.outcome
    is_count = model.family == "poisson"
    counts = generator.poisson(outcome.high / 4, _PATIENTS).astype(np.float64) if is_count else None
    cohort[outcome.column] = _values(outcome, generator) if counts is None else counts
    for number in filter(None, (model.offset, model.weights)):
        cohort[number.column] = np.full(_PATIENTS, number.middle)
    return cohort


def _values(variable: Range | Indicator | Factor, generator: np.random.Generator) -> NDArray[np.generic]:
    if isinstance(variable, Range):
        return generator.normal(variable.middle, variable.half / 3, _PATIENTS)
    if isinstance(variable, Factor):
        return generator.choice(np.array(variable.categories), _PATIENTS)
    unlisted = "other"
    while unlisted in (*variable.categories, *variable.missing_values):
        unlisted += "_"
    return generator.choice(np.array([variable.categories[0], unlisted]), _PATIENTS)
