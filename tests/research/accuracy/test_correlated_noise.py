"""The page docs/decisions/no-correlated-noise.md: its bound, its rule and its table."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from research.accuracy.correlated_noise import (
    MECHANISMS,
    RESULTS,
    error,
    fitted,
    lower_bound,
    sensitivity,
    workloads,
)

DRAW = np.random.default_rng(3)


@pytest.mark.parametrize("name", workloads(6))
def test_no_mechanism_is_below_the_bound_and_the_rule_reaches_it(name: str) -> None:
    workload = workloads(6)[name]
    proved = float(np.linalg.norm(workload, axis=0).sum())
    assert error(workload, fitted(workload), DRAW) == pytest.approx(proved, rel=1e-9)
    assert lower_bound(workload, DRAW) == pytest.approx(proved, rel=1e-7)
    for _ in range(40):
        mechanism = np.tril(DRAW.normal(size=(6, 6))) + np.diag(DRAW.uniform(0.5, 3, 6))
        assert error(workload, mechanism, DRAW) > proved
    for make in MECHANISMS.values():
        assert error(workload, make(6), DRAW) > proved * (1 - 1e-9)


def test_the_sensitivity_is_no_less_than_that_of_every_sign() -> None:
    """One parameter: every patient's way is a row of signs."""
    mechanism = np.tril(DRAW.normal(size=(7, 7)))
    signs = [np.linalg.norm(mechanism @ np.array(row)) for row in product((-1.0, 1.0), repeat=7)]
    assert max(signs) <= sensitivity(mechanism, DRAW) * (1 + 1e-9)


def test_a_mechanism_without_negative_products_is_worst_for_equal_ways() -> None:
    mechanism = MECHANISMS["banded, 4 bands"](9)
    assert sensitivity(mechanism, DRAW) == pytest.approx(float(np.linalg.norm(mechanism @ np.ones(9))), rel=1e-9)


def test_the_recorded_numbers_are_of_these_functions() -> None:
    recorded = json.loads(RESULTS.read_text())["rounds"]["10"]
    for name, workload in workloads(10).items():
        equal = float(np.linalg.norm(workload)) * 10**0.5
        assert recorded[name]["bound of all"] == pytest.approx(np.linalg.norm(workload, axis=0).sum() / equal, rel=1e-6)
