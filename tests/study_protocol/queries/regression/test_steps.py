"""The split of a budget over steps."""

from __future__ import annotations

from fractions import Fraction

import pytest

from study_protocol.queries.regression.families import FamilyName
from study_protocol.queries.regression.steps import MAX_STEPS, step_noise


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
@pytest.mark.parametrize("total", [1e-3, 0.7, 3.73, 1e4])
def test_steps_together_cost_no_more_than_the_whole(family: FamilyName, total: float) -> None:
    for steps in range(1, MAX_STEPS + 1):
        noises = [step_noise(family, total, step, steps) for step in range(1, steps + 1)]
        spent = sum(1 / Fraction(noise) ** 2 for noise in noises)
        assert spent <= 1 / Fraction(total) ** 2
        assert float(spent) == pytest.approx(total**-2, rel=1e-12)
        assert noises == sorted(noises, reverse=True)
