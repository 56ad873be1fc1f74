"""A record that is exchanged for another: against the exact curve of one step, and against adding and removing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from accounting.accountants.classical import ClassicalAccountant
from accounting.mechanisms.events import Event, GaussianEvent, LaplaceEvent, PoissonSampledEvent
from accounting.units import Relation

_stats: Any = stats
_integrate: Any = integrate


def account(relation: str, event: Event, count: int, method: str = "pld", delta: float = 1e-5) -> ClassicalAccountant:
    found = ClassicalAccountant(delta=delta, relation=Relation(relation), method=method)  # pyright: ignore[reportArgumentType]
    found.compose(event, count)
    return found


def worst_delta(noise: float, rate: float, epsilon: float) -> float:
    """δ(ε) of one sampled step where the record's contribution 1 is exchanged for any in [−1, 1], by quadrature."""

    def gap(other: float) -> float:
        def excess(x: float) -> float:
            first = (1 - rate) * _stats.norm.pdf(x, 0, noise) + rate * _stats.norm.pdf(x, 1, noise)
            second = (1 - rate) * _stats.norm.pdf(x, 0, noise) + rate * _stats.norm.pdf(x, other, noise)
            return max(0.0, first - math.exp(epsilon) * second)

        return float(_integrate.quad(excess, -30 * noise, 1 + 30 * noise, limit=400, points=[0, 1, 2, 4])[0])

    return max(gap(other) for other in np.linspace(-1, 1, 5).tolist())


@pytest.mark.quick("0.1-2.0-0.01", "0.5-2.0-0.01", "2.0-1.0-0.1", "2.0-2.0-0.01")
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (0.7, 0.5), (2.0, 0.01)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_one_step_is_never_below_the_exact_curve(noise: float, rate: float, epsilon: float) -> None:
    found = account("replace-one", PoissonSampledEvent(rate, GaussianEvent(noise)), 1)
    # 1e-9: what the quadrature may be off.
    assert found.delta_for(epsilon) >= worst_delta(noise, rate, epsilon) - 1e-9


@pytest.mark.quick("event2-50")
@pytest.mark.parametrize(
    ("event", "count"),
    [
        (PoissonSampledEvent(0.01, GaussianEvent(1.1)), 1000),
        (PoissonSampledEvent(0.1, GaussianEvent(2.0)), 100),
        (PoissonSampledEvent(0.1, LaplaceEvent(3.0)), 50),
    ],
)
def test_a_sampled_record_is_removed_and_another_added(event: Event, count: int) -> None:
    exchanged, added = account("replace-one", event, count), account("add-remove", event, count)
    epsilon = exchanged.epsilon()
    assert exchanged.certificate().composition == "pld"
    assert 2 * added.epsilon() <= epsilon <= account("replace-one", event, count, "rdp").epsilon()
    # The sentence that proves it, at the half that the accountant has chosen.
    assert (1 + math.exp(epsilon / 2)) * added.delta_for(epsilon / 2) <= 1e-5 * (1 + 1e-6)
    assert exchanged.delta_for(epsilon) <= 1e-5 * (1 + 1e-6)


def test_the_reading_that_was_eighteen_times_too_large() -> None:
    event = PoissonSampledEvent(0.01, GaussianEvent(1.1))
    assert account("replace-one", event, 1000, "rdp").epsilon() == pytest.approx(64.17, abs=0.01)
    assert account("replace-one", event, 1000).epsilon() == pytest.approx(3.42, abs=0.01)


def test_without_sampling_an_exchange_is_a_step_of_twice_the_norm() -> None:
    for one, two in ((GaussianEvent(10.0), GaussianEvent(5.0)), (LaplaceEvent(20.0), LaplaceEvent(10.0))):
        found, same = account("replace-one", one, 30).epsilon(), account("add-remove", two, 30).epsilon()
        # A norm that is doubled has the lattice of the smaller noise.
        assert found == pytest.approx(same, rel=1e-11)


def test_nothing_is_lost_where_the_loss_is_too_large_for_a_distribution() -> None:
    # Fixed-point steps do not end there: the Rényi reading stands.
    event = PoissonSampledEvent(0.9, GaussianEvent(0.06))
    found = account("replace-one", event, 3)
    assert found.epsilon() <= account("replace-one", event, 3, "rdp").epsilon()
    assert math.isfinite(found.epsilon())
