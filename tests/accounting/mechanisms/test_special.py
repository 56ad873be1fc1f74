"""Special functions and log-domain sums: against mpmath and scipy.stats, far out."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from accounting.mechanisms import special


@pytest.mark.parametrize("x", [1e-300, 1e-12, 0.5, 29.9, 30.1, 700.0, 1e4])
def test_log_expm1_keeps_its_digits(x: float) -> None:
    with mp.workdps(30):
        exact = float(mp.log(mp.expm1(mp.mpf(x))))
    assert float(special.log_expm1(np.array([x]))[0]) == pytest.approx(exact, rel=1e-12)


def test_log_expm1_of_zero_is_minus_infinity() -> None:
    assert special.log_expm1(np.array([0.0]))[0] == -math.inf


def test_log_sum_neither_overflows_nor_forgets_infinity() -> None:
    found = special.log_sum(np.array([[1000.0, 1000.0], [-1000.0, -1000.0], [0.0, math.inf], [-math.inf, -math.inf]]))
    assert found[:2] == pytest.approx([1000 + math.log(2), -1000 + math.log(2)], rel=1e-15)
    assert found[2:].tolist() == [math.inf, -math.inf]


def test_log_binomial_is_the_law() -> None:
    found = special.log_binomial(40, 0.03)
    assert found == pytest.approx(stats.binom.logpmf(np.arange(41), 40, 0.03), rel=1e-10)
    assert math.fsum(np.exp(found).tolist()) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("probability", [1e-3, 1e-12, 1e-200])
def test_upper_quantiles_keep_small_probabilities(probability: float) -> None:
    assert stats.beta.sf(special.beta_upper_quantile(3, 98, probability), 3, 98) == pytest.approx(probability, rel=1e-6)
    assert stats.t.sf(special.student_upper_quantile(9, probability), 9) == pytest.approx(probability, rel=1e-6)


def test_beta_quantile_is_its_laws_inverse() -> None:
    a, b = np.array([1.0, 5.0, 50.0]), np.array([50.0, 46.0, 1.0])
    assert stats.beta.cdf(special.beta_quantile(a, b, 1e-6), a, b) == pytest.approx([1e-6] * 3, rel=1e-6)


def test_the_normal_tail_keeps_its_digits() -> None:
    with mp.workdps(30):
        exact = [float(mp.ncdf(-x)) for x in (8, 20, 35)]
        logs = [float(mp.log(mp.ncdf(-x))) for x in (8, 20, 35, 200)]
    assert special.normal_cdf(np.array([-8.0, -20.0, -35.0])) == pytest.approx(exact, rel=1e-11)
    assert special.log_normal_cdf(np.array([-8.0, -20.0, -35.0, -200.0])) == pytest.approx(logs, rel=1e-12)


def test_a_root_lies_where_the_sign_changes() -> None:
    assert special.root(lambda x: x**3 - 2, 0, 5) == pytest.approx(2 ** (1 / 3), abs=1e-8)
