"""A record that is exchanged for another: against the exact curve of one step, and against adding and removing."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest

from accounting.accountants.classical import ClassicalAccountant
from accounting.mechanisms.events import Event, GaussianEvent, LaplaceEvent, PoissonSampledEvent
from accounting.units import Relation

mp: Any = mpmath


def account(relation: str, event: Event, count: int, method: str = "pld", delta: float = 1e-5) -> ClassicalAccountant:
    found = ClassicalAccountant(delta=delta, relation=Relation(relation), method=method)  # pyright: ignore[reportArgumentType]
    found.compose(event, count)
    return found


def worst_delta(noise: float, rate: float, epsilon: float) -> float:
    """δ(ε) of one sampled step where the record's contribution 1 is exchanged for any in [−1, 1], in 30 digits."""

    def gap(other: float) -> Any:
        means = [(1 - rate) * (1 - mp.exp(epsilon)), rate, -rate * mp.exp(epsilon)]
        terms = list(zip(means, (0, 1, other), strict=True))

        def excess(x: Any) -> Any:
            return sum(weight * mp.npdf(x, mean, noise) for weight, mean in terms)

        # Positive above one output, which bisection finds.
        low, high = mp.mpf(-10 * noise), mp.mpf(40 * noise)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        return sum(weight * mp.ncdf((mean - high) / noise) for weight, mean in terms)

    with mp.workdps(30):
        return max(float(gap(other)) for other in (-1, -0.5, 0, 0.5))


@pytest.mark.quick("0.1-2.0-0.01", "0.5-2.0-0.01", "2.0-1.0-0.1", "2.0-2.0-0.01")
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (0.7, 0.5), (2.0, 0.01)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_one_step_is_never_below_the_exact_curve(noise: float, rate: float, epsilon: float) -> None:
    found = account("replace-one", PoissonSampledEvent(rate, GaussianEvent(noise)), 1).delta_for(epsilon)
    exact = worst_delta(noise, rate, epsilon)
    # Far below any δ that is read, cut tails are what is left.
    assert exact <= found <= exact * (1 + 1e-3) + 1e-30


@pytest.mark.quick("event2-50")
@pytest.mark.parametrize(
    ("event", "count"),
    [
        (PoissonSampledEvent(0.01, GaussianEvent(1.1)), 1000),
        (PoissonSampledEvent(0.1, GaussianEvent(2.0)), 100),
        (PoissonSampledEvent(0.1, LaplaceEvent(3.0)), 50),
    ],
)
def test_a_sampled_record_is_exchanged(event: PoissonSampledEvent, count: int) -> None:
    exchanged, added = account("replace-one", event, count), account("add-remove", event, count)
    epsilon = exchanged.epsilon()
    assert exchanged.certificate().composition == "pld"
    assert added.epsilon() <= epsilon <= account("replace-one", event, count, "rdp").epsilon()
    in_turn = (1 + math.exp(epsilon / 2)) * added.delta_for(epsilon / 2)
    if isinstance(event.event, LaplaceEvent):
        # The sentence that proves it, at the half that the accountant has chosen.
        assert in_turn <= 1e-5 * (1 + 1e-6)
    else:
        # The exact pair of an exchange is below removing and adding in turn.
        assert in_turn > 1e-5
    assert exchanged.delta_for(epsilon) <= 1e-5 * (1 + 1e-6)


def test_the_reading_that_was_eighteen_times_too_large() -> None:
    event = PoissonSampledEvent(0.01, GaussianEvent(1.1))
    assert account("replace-one", event, 1000, "rdp").epsilon() == pytest.approx(64.17, abs=0.01)
    assert account("replace-one", event, 1000).epsilon() == pytest.approx(2.478, abs=0.001)


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
