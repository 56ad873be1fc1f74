"""The steps of a regression: how its budget is split over them, by public numbers alone."""

from __future__ import annotations

import math

from study_protocol.queries.regression.families import FamilyName

# Each step has so many times the budget of the one before: only the last one's noise is in the estimates.
_GROWTH = {"logistic": 2.0, "poisson": 2.0, "linear": 6.0}
MAX_STEPS = 8
# A linear regression needs one step to find scales, and one to sum on them.
USUAL_STEPS: dict[FamilyName, int] = {"logistic": 4, "poisson": 5, "linear": 2}


def step_noise(family: FamilyName, total: float, step: int, steps: int) -> float:
    """Return the noise multiplier of one step, with Σ 1 / step_noise² ≤ 1 / total².

    Args:
        total: noise multiplier of one question that would cost as much as all steps.
        step: 1 … steps.
    """
    if steps == 1:
        return total
    parts = [_GROWTH[family] ** k for k in range(steps)]
    share = parts[step - 1] / math.fsum(parts)
    return math.nextafter(total / math.sqrt(share) * (1 + 2.0**-50), math.inf)
