"""Sums and integrals of φ: against quadrature by another library, at seams, and where they end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from accounting.mechanisms.exact import exact_moments


def integral(order: float, ratio: float, rate: float) -> float:
    """log E_Q (1 − q + q e^{rz − r²/2})^{λ+1} by adaptive quadrature."""

    def integrand(z: float) -> float:
        return math.exp((order + 1) * math.log1p(rate * math.expm1(ratio * z - ratio**2 / 2)) - z * z / 2)

    value = quad(integrand, -15, 40, limit=500, epsabs=0, epsrel=1e-11, points=[0, ratio, (order + 1) * ratio])[0]
    return math.log(value / math.sqrt(2 * math.pi))


@pytest.mark.parametrize("order", [0.3, 1.0, 2.5, 7.0])
@pytest.mark.parametrize(("ratio", "rate"), [(0.3, 0.1), (1.0, 0.01), (1.5, 0.5)])
def test_sum_and_integral_agree_with_another_quadrature_from_above(order: float, ratio: float, rate: float) -> None:
    exact = integral(order, ratio, rate)
    found = float(exact_moments(np.array([order]), np.array([ratio]), rate)[0, 0])
    assert exact * (1 - 1e-9) - 1e-12 <= found <= exact * (1 + 1e-6) + 1e-12


def test_the_sum_and_the_integral_meet_at_an_integer_order() -> None:
    """Integer orders are binomial sums, real ones integrals: no step where one takes over from the other."""
    below, at, above = exact_moments(np.array([4 - 1e-7, 4.0, 4 + 1e-7]), np.array([0.7]), 0.2)[:, 0]
    assert below <= at * (1 + 1e-8)
    assert at <= above * (1 + 1e-8)
    assert above <= below * (1 + 1e-6)


def test_nothing_is_free_but_nothing() -> None:
    ratio = np.array([0.0, 1e-6])
    found = exact_moments(np.array([2.0, 2.5]), ratio, 0.3)
    assert (found[:, 0] == 0).all()
    assert (found[:, 1] > 0).all()
    assert (exact_moments(np.array([2.0, 2.5]), ratio, 0.0) == 0).all()


def test_the_printed_pair_is_never_below_the_forward_sum() -> None:
    orders, ratio = np.array([1.0, 2.0, 16.0]), np.array([0.1, 1.0, 3.0])
    assert (exact_moments(orders, ratio, 0.1, "printed") >= exact_moments(orders, ratio, 0.1)).all()
