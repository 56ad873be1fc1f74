"""The forecast of synthetic records from public numbers."""

from __future__ import annotations

import numpy as np
import pytest

from synthesis.forecast import forecast, mean_variation, typical_patients
from tests.factories.synthesis import section


@pytest.mark.slow
def test_more_patients_give_better_tables_and_few_give_no_pairs() -> None:
    few, some, many = (forecast(section(rows=4000), patients) for patients in (1000, 4000, 100_000))
    assert (few.pairs, few.edges, few.has_few_patients) == (0, 0, True)
    assert (some.pairs, many.pairs, many.has_few_patients) == (3, 3, False)
    assert few.variation > some.variation > many.variation > 0
    with pytest.raises(ValueError, match="at least one patient"):
        forecast(section(), 0)


def test_variation_is_half_of_the_absolute_differences() -> None:
    left, right = np.array([[0, 0], [0, 1], [1, 1], [1, 1]]), np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    # Tables [1, 1, 0, 2] / 4 and [2, 0, 1, 1] / 4.
    assert mean_variation([2, 2], left, right) == pytest.approx(0.5)


def test_typical_patients_lie_in_the_cells_of_their_columns() -> None:
    codes = typical_patients(section(), 500, np.random.default_rng(0))
    sizes = [len(variable.labels) for variable in section().columns]
    assert codes.min() >= 0
    assert (codes.max(axis=0) < sizes).all()
