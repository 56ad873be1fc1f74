"""From the sums at coefficients of 0 to those at the intercept that the outcome's mean has."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from study_protocol.queries.counting import STANDS_OUT
from study_protocol.queries.regression.estimates import ReleasedSums
from study_protocol.queries.regression.families import FamilyName, parts

# Shares of 0 and 1 have no intercept.
_MIN_SHARE = 1e-3
_FARTHEST = 15.0


def at_level(
    family: FamilyName, released: ReleasedSums, high: float, *, is_at_zero: bool
) -> tuple[ReleasedSums, float]:
    """Return gradient and information at coefficients of 0 but for one intercept, and that intercept.

    Without an offset all residuals move by the same number, so both are exact functions of the sums at 0.
    With an offset, that holds for counts up to the clip. For a yes or no, the sums stay as they are.
    """
    start_residual, start_curvature = _parts_at(family, 0.0, high)
    if not is_at_zero:
        if family == "logistic":
            return released, 0.0
        start_residual, start_curvature = -1.0, 1.0
    moments = released.information / start_curvature
    ones = moments[:, released.slopes :].sum(axis=1)
    patients = float(ones[released.slopes :].sum())
    if patients <= STANDS_OUT * released.information_noise / start_curvature:
        return released, 0.0
    products = released.gradient - start_residual * ones
    mean = float(products[released.slopes :].sum()) / patients
    floor = max(_MIN_SHARE, STANDS_OUT * released.gradient_noise / patients)
    mean = min(max(mean, floor), max(high - floor, high / 2))
    level = _level(family, mean, high) if is_at_zero else math.log(mean)
    residual, curvature = _parts_at(family, level, high) if is_at_zero else (-mean, mean)
    scale = curvature / start_curvature
    moved = replace(
        released,
        gradient=products + residual * ones,
        information=released.information * scale,
        information_noise=released.information_noise * scale,
    )
    return moved, level


def _parts_at(family: FamilyName, level: float, high: float) -> tuple[float, float]:
    """Return residual of the outcome 0, and curvature, at this linear predictor."""
    residual, curvature = parts(family, np.zeros(1), np.full(1, level), high)
    return float(residual[0]), float(curvature[0])


def _level(family: FamilyName, mean: float, high: float) -> float:
    low, above = -_FARTHEST, _FARTHEST
    for _ in range(60):
        middle = (low + above) / 2
        low, above = (middle, above) if -_parts_at(family, middle, high)[0] < mean else (low, middle)
    return low
