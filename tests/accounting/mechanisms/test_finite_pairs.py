"""Finite pairs of laws: against sums over all outcomes, brute force over sequences, and dp-accounting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    ClassicalAccountant,
    DiscreteLaplaceEvent,
    FinitePair,
    InvalidArgument,
    PairEvent,
    PoissonSampledEvent,
    RandomisedResponse,
    Relation,
)
from accounting.mechanisms.finite_pairs import FiniteLosses, discrete_laplace_pair, finite_pair_of


def exact_delta(first: Sequence[float], second: Sequence[float], steps: int, epsilon: float) -> float:
    """δ(ε) of `steps` runs, the sum over every sequence of outcomes."""
    total = 0.0
    for outcomes in itertools.product(range(len(first)), repeat=steps):
        p, q = (math.prod(law[i] for i in outcomes) for law in (first, second))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


def law(values: Sequence[int]) -> tuple[float, ...]:
    return tuple(value / sum(values) for value in values)


laws = st.lists(st.integers(1, 50), min_size=3, max_size=3).map(law)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(laws, laws, st.floats(0.0, 2.0), st.sampled_from([1.0, 0.3]))
def test_composed_losses_bound_the_sum_over_all_sequences(
    first: tuple[float, ...], second: tuple[float, ...], epsilon: float, rate: float
) -> None:
    account = ClassicalAccountant(delta=1e-6)
    account.compose(PoissonSampledEvent(rate, PairEvent(FinitePair(first, second))), 4)
    mixed = [(1 - rate) * q + rate * p for p, q in zip(first, second, strict=True)]
    exact = max(exact_delta(mixed, second, 4, epsilon), exact_delta(second, mixed, 4, epsilon))
    found = account.delta_for(epsilon)
    assert found >= exact * (1 - 1e-12)
    assert found <= exact + 2e-3


def test_a_pair_with_an_impossible_outcome_has_an_infinite_loss() -> None:
    account = ClassicalAccountant(delta=0.1)
    account.compose(PairEvent(FinitePair([0.9, 0.05, 0.05], [0.95, 0.05, 0.0])))
    assert account.delta_for(0.0) >= 0.05
    assert account.delta_for(3.0) == pytest.approx(0.05, rel=1e-6)
    assert account.epsilon() < 1
    assert account.epsilon_at(0.01) == math.inf


@pytest.mark.slow_cases("0.3-first1-second1")
@pytest.mark.parametrize(("first", "second"), [((0.9, 0.1), (1.0, 0.0)), ((1.0, 0.0), (0.9, 0.1))])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_pair_with_one_finite_loss_has_a_distribution(first: list[float], second: list[float], rate: float) -> None:
    account = ClassicalAccountant(delta=0.5)
    account.compose(PoissonSampledEvent(rate, PairEvent(FinitePair(first, second))), 2)
    mixed = [(1 - rate) * q + rate * p for p, q in zip(first, second, strict=True)]
    for epsilon in (0.0, 0.1, 1.0):
        exact = max(exact_delta(mixed, second, 2, epsilon), exact_delta(second, mixed, 2, epsilon))
        # The mass of infinite losses is counted once a step.
        assert exact * (1 - 1e-12) <= account.delta_for(epsilon) <= exact + 0.0101


@pytest.mark.slow_cases("20.0-1-100")
@pytest.mark.parametrize(("scale", "sensitivity", "count"), [(20.0, 1, 100), (5.0, 3, 40), (0.5, 2, 5)])
def test_discrete_laplace_is_that_of_dp_accounting(scale: float, sensitivity: int, count: int) -> None:
    account = ClassicalAccountant(delta=1e-5)
    account.compose(DiscreteLaplaceEvent(scale, sensitivity), count)
    peer = pld.PLDAccountant(value_discretization_interval=1e-4)
    peer.compose(dp_accounting.dp_event.DiscreteLaplaceDpEvent(1 / scale, sensitivity), count)
    assert account.certificate().composition == "pld"
    assert account.epsilon() == pytest.approx(peer.get_epsilon(1e-5), rel=1e-3)
    moments = ClassicalAccountant(delta=1e-5, method="rdp")
    moments.compose(DiscreteLaplaceEvent(scale, sensitivity), count)
    assert account.epsilon() <= moments.epsilon()


@pytest.mark.parametrize(("scale", "sensitivity"), [(2.0, 3), (0.7, 1), (30.0, 5)])
def test_the_pair_of_discrete_laplace_is_its_law_grouped_by_loss(scale: float, sensitivity: int) -> None:
    pair = discrete_laplace_pair(scale, sensitivity)
    places = range(-2000, 2001)
    weight = math.tanh(1 / (2 * scale))
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        exact = math.fsum(
            max(0.0, weight * (math.exp(-abs(k - sensitivity) / scale) - math.exp(epsilon - abs(k) / scale)))
            for k in places
        )
        found = math.fsum(
            max(0.0, p - math.exp(epsilon) * q) for p, q in zip(pair.with_record, pair.without_record, strict=True)
        )
        assert found == pytest.approx(exact, abs=1e-13)


def test_one_coordinate_bounds_a_shift_that_is_spread_over_several() -> None:
    for scale in (0.6, 2.0, 10.0):
        whole, parts = discrete_laplace_pair(scale, 3), [discrete_laplace_pair(scale, size) for size in (1, 2)]
        first, second = (
            [p * q for p, q in itertools.product(getattr(parts[0], name), getattr(parts[1], name))]
            for name in ("with_record", "without_record")
        )
        for epsilon in np.linspace(0, 3 / scale, 9).tolist():
            spread = exact_delta(first, second, 1, epsilon)
            assert spread <= exact_delta(whole.with_record, whole.without_record, 1, epsilon) + 1e-15


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_randomised_response_has_a_loss_distribution(relation: Relation) -> None:
    account = ClassicalAccountant(delta=1e-5, relation=relation)
    account.compose(PairEvent(RandomisedResponse(0.6)), 100)
    # Not by its accountant, which composes randomised response once, whatever the count.
    single = privacy_loss_distribution.from_randomized_response(0.8, 2, value_discretization_interval=1e-4)
    assert account.epsilon() == pytest.approx(single.self_compose(100).get_epsilon_for_delta(1e-5), rel=1e-3)


@pytest.mark.quick("0.6")
@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.6])
def test_a_sampled_record_that_is_exchanged_is_bounded_whatever_the_law_without_both(epsilon: float) -> None:
    rate, truth = 0.3, 0.7
    account = ClassicalAccountant(delta=1e-5, relation=Relation.REPLACE_ONE)
    account.compose(PoissonSampledEvent(rate, PairEvent(RandomisedResponse(truth))))
    for rest in np.linspace(0, 1, 21).tolist():
        first, second = ([rate * p + (1 - rate) * rest for p in (truth, 1 - truth)] for truth in (truth, 1 - truth))
        both = [[first[0], 1 - first[0]], [second[0], 1 - second[0]]]
        assert exact_delta(both[0], both[1], 1, epsilon) <= account.delta_for(epsilon) + 1e-15


def test_renyi_divergences_of_both_directions_are_sums() -> None:
    pair = FinitePair([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])
    for order in (1.5, 2.0, 7.0):
        forward = math.log(
            sum(p**order * q ** (1 - order) for p, q in zip(pair.with_record, pair.without_record, strict=True))
        )
        assert pair.divergence(order) == pytest.approx(forward / (order - 1), rel=1e-12)
        swapped = FinitePair(pair.without_record, pair.with_record)
        assert pair.reverse_divergence(order) == swapped.divergence(order)
    mixed = [0.9 * q + 0.1 * p for p, q in zip(pair.with_record, pair.without_record, strict=True)]
    exact = math.log(sum(q**6 * m**-5 for m, q in zip(mixed, pair.without_record, strict=True)))
    assert exact <= pair.reverse_moment(5, 0.1) <= exact * (1 + 1e-9)
    assert FinitePair([1.0, 0.0], [0.5, 0.5]).reverse_divergence(2.0) == math.inf
    assert finite_pair_of(RandomisedResponse(0.75)) == FinitePair((0.75, 0.25), (0.25, 0.75))


@pytest.mark.parametrize("interval", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("removal", [True, False])
def test_on_a_grid_both_laws_keep_their_mass(interval: float, removal: bool) -> None:
    losses = FiniteLosses(FinitePair([0.5, 0.3, 0.2], [0.2, 0.2, 0.6]), 0.4).losses(interval, 0.0, removal=removal)
    assert float(losses.masses.sum()) == pytest.approx(1, abs=1e-11)
    assert float((losses.masses * np.exp(-losses.losses)).sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("with_record", [0.5, 0.4], [0.5, 0.5]),
        ("without_record", [0.5, 0.5], [0.2, 0.3, 0.5]),
        ("with_record", [1.1, -0.1], [0.5, 0.5]),
        ("without_record", [0.5, 0.5], [math.nan, 1.0]),
    ],
)
def test_what_is_no_pair_of_laws_is_refused_by_name(name: str, first: list[float], second: list[float]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        FinitePair(first, second)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("scale", "sensitivity"), [(0.0, 1), (1.0, 0), (1.0, 1.5), (1.0, 2**15 + 1)])
def test_bad_discrete_laplace_events_are_refused(scale: float, sensitivity: int) -> None:
    with pytest.raises(InvalidArgument):
        DiscreteLaplaceEvent(scale, sensitivity)


def test_a_law_whose_tail_was_cut_off_is_refused_and_rounding_is_scaled_away() -> None:
    """A million runs of two such laws would cost nothing, as their divergence is that of equal laws."""
    cut = [0.5, 0.5 - 9e-10]
    with pytest.raises(InvalidArgument, match=r"^with_record: must have the sum 1.*outcome"):
        FinitePair(cut, cut)
    rounded = FinitePair([0.1 * (1 + 1e-15)] * 10, [0.05] * 9 + [0.55])
    assert math.fsum(rounded.with_record) == pytest.approx(1, abs=1e-16)
