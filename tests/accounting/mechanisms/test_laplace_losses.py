"""Laplace steps against the closed form of their loss, dp-accounting and quadrature."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld

from accounting.accountants.classical import ClassicalAccountant
from accounting.errors import InvalidArgument
from accounting.mechanisms.events import GaussianEvent, LaplaceEvent, PoissonSampledEvent
from accounting.mechanisms.laplace_losses import laplace_losses, laplace_range

mp: Any = mpmath


def exact_delta(scale: float, rate: float, epsilon: float, *, removal: bool) -> float:
    """δ(ε) of one step by quadrature with 30 digits."""
    with mp.workdps(30):
        b, q = mp.mpf(scale), mp.mpf(rate)

        def without(x: Any) -> Any:
            return mp.exp(-abs(x) / b) / (2 * b)

        def mixture(x: Any) -> Any:
            return (1 - q) * without(x) + q * without(x - 1)

        first, second = (mixture, without) if removal else (without, mixture)
        # The loss is monotonous in x: one place where it is ε.
        sign = 1 if removal else -1
        level = (mp.exp(sign * epsilon) - (1 - q)) / q
        place = mp.mpf(0) if level <= 0 else min(mp.mpf(1), max(mp.mpf(0), (mp.log(level) * b + 1) / 2))
        far = 60 * b
        ends = [place, 1, 1 + far] if removal else [-far, 0, place]
        return float(max(0, mp.quad(lambda x: first(x) - mp.exp(epsilon) * second(x), sorted(set(ends)))))


@pytest.mark.quick("False-0.001-1.0", "False-0.3-0.1", "False-0.3-20.0", "True-1.0-1.0")
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("rate", [1.0, 0.3, 0.001])
@pytest.mark.parametrize("removal", [True, False])
def test_one_step_dominates_its_exact_curve_and_stays_close(scale: float, rate: float, removal: bool) -> None:
    least, largest = laplace_range(1 / scale, rate)
    top = largest if removal else -least
    law = laplace_losses(1 / scale, rate, top / 4000, removal=removal)
    for share in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0, 1.1):
        epsilon = share * top
        above = law.losses > epsilon
        found = float((law.masses[above] * -np.expm1(epsilon - law.losses[above])).sum()) + law.infinite
        exact = exact_delta(scale, rate, epsilon, removal=removal)
        # The largest loss itself is a float, and what lies above it is rounding.
        assert found >= exact * (1 - 1e-13) - 1e-16
        assert found <= exact + 2e-3 * top
    assert law.infinite == 0
    assert float(law.masses.sum()) == pytest.approx(1, abs=1e-12)
    assert float(law.masses.sum()) >= 1 - 1e-15


@pytest.mark.slow_cases("1.0-0.02-1000", "2.0-0.1-100")
@pytest.mark.parametrize(
    ("scale", "rate", "count"), [(20.0, 1.0, 100), (2.0, 0.1, 100), (1.0, 0.02, 1000), (0.5, 1.0, 30), (50.0, 1.0, 1)]
)
def test_many_steps_are_those_of_dp_accounting_and_below_the_renyi_reading(
    scale: float, rate: float, count: int
) -> None:
    delta = 1e-5
    account, moments = (ClassicalAccountant(delta=delta, method=method) for method in ("pld", "rdp"))
    reference = pld.PLDAccountant(value_discretization_interval=1e-4)
    reference.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.LaplaceDpEvent(scale)), count)
    event = PoissonSampledEvent(rate, LaplaceEvent(scale))
    account.compose(event, count)
    moments.compose(event, count)
    assert account.certificate().composition == "pld"
    # Theirs rounds up too, on a coarser grid.
    assert account.epsilon() == pytest.approx(reference.get_epsilon(delta), rel=2e-3)
    assert account.epsilon() <= moments.epsilon()
    assert account.delta_for(account.epsilon()) <= delta * (1 + 1e-6)


def test_one_unsampled_step_is_never_below_its_closed_form() -> None:
    # δ(ε) = 1 − e^{(ε − 1/b)/2} (Sommer, Meiser & Mohammadi 2019).
    for scale in (0.3, 1.0, 7.0):
        account = ClassicalAccountant(delta=1e-3)
        account.compose(LaplaceEvent(scale))
        exact = 1 / scale + 2 * math.log1p(-1e-3)
        assert exact <= account.epsilon() <= exact + 1e-4 / scale


def test_laplace_and_gaussian_steps_compose() -> None:
    delta = 1e-6
    account = ClassicalAccountant(delta=delta)
    account.compose(LaplaceEvent(10.0), 20)
    account.compose(PoissonSampledEvent(0.1, GaussianEvent(1.5)), 50)
    reference = pld.PLDAccountant(value_discretization_interval=1e-4)
    reference.compose(dp_accounting.LaplaceDpEvent(10.0), 20)
    reference.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.5)), 50)
    assert account.epsilon() == pytest.approx(reference.get_epsilon(delta), rel=2e-3)
    again = ClassicalAccountant.restore(account.state())
    assert again.epsilon() == account.epsilon()


def test_a_scale_beyond_the_loss_distributions_is_read_by_renyi_divergences() -> None:
    account = ClassicalAccountant(delta=1e-5)
    account.compose(LaplaceEvent(1e9), 10)
    assert account.certificate().composition == "rdp"
    with pytest.raises(InvalidArgument):
        LaplaceEvent(0.0)
