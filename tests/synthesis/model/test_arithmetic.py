"""Projection and sums against brute force and exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from synthesis.model.arithmetic import on_simplex, summed


@pytest.mark.parametrize("seed", range(5))
def test_no_point_of_the_simplex_is_nearer(seed: int) -> None:
    source = np.random.default_rng(seed)
    values = source.normal(0, 2, 5)
    nearest = on_simplex(values, 3.0)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(3)
    others = source.dirichlet(np.ones(5), 2000) * 3
    assert ((values - nearest) ** 2).sum() <= ((values - others) ** 2).sum(axis=1).min() + 1e-12


def test_sums_are_taken_in_order() -> None:
    values = np.array([[1.0, 2.0**53], [1.0, 1.0], [1.0, -(2.0**53)]])
    assert summed(values, 0).tolist() == [3.0, 0.0]
    assert summed(values, 1)[1] == float(Fraction(2))
