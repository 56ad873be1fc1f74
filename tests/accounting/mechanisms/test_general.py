"""Sampled mechanisms against direct integration of both directions."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from accounting import InvalidArgument, log_moment
from accounting.mechanisms.general import (
    GaussianPair,
    LaplacePair,
    OutcomePair,
    RandomisedResponse,
    subsampled_moment,
)

mp.mp.dps = 20


def both_directions(order: int, p: object, q_law: object, rate: float, points: list[float]) -> float:
    """max over directions of log ∫ first^{λ+1} second^{−λ} for the mixture and q_law, by quadrature."""

    def mixed(w: mp.mpf) -> mp.mpf:
        return (1 - rate) * q_law(w) + rate * p(w)  # type: ignore[operator]

    forward = mp.quad(lambda w: q_law(w) * (mixed(w) / q_law(w)) ** (order + 1), points)  # type: ignore[operator]
    reverse = mp.quad(lambda w: q_law(w) * (q_law(w) / mixed(w)) ** order, points)  # type: ignore[operator]
    return float(max(mp.log(forward), mp.log(reverse)))


@pytest.mark.quick("1.05-1.0-10")
@pytest.mark.parametrize("order", [1, 3, 10])
@pytest.mark.parametrize(("std_with", "std_without"), [(1.0, 1.0), (1.0, 1.2), (1.05, 1.0), (0.6, 1.0)])
def test_gaussians_of_different_variances_cover_both_directions(
    order: int, std_with: float, std_without: float
) -> None:
    pair = GaussianPair(0.4, std_with, std_without)
    ours = subsampled_moment(order, pair, sampling_rate=0.1)
    if (order + 1) * std_without**2 <= order * std_with**2:
        assert math.isinf(ours)
        return
    truth = both_directions(
        order,
        lambda w: mp.npdf(w, 0.4, std_with),
        lambda w: mp.npdf(w, 0, std_without),
        0.1,
        [-30, -12, -6, -2, 0, 2, 6, 12, 30],
    )
    assert truth * (1 - 1e-9) <= ours <= truth * (1 + 1e-5)


@pytest.mark.quick("4")
@pytest.mark.parametrize("order", [1, 4, 12])
def test_laplace_covers_both_directions(order: int) -> None:
    def law(centre: float) -> object:
        return lambda w: mp.exp(-abs(w - centre) / 2) / 4

    ours = subsampled_moment(order, LaplacePair(1.0, 2.0), sampling_rate=0.2)
    truth = both_directions(order, law(1.0), law(0.0), 0.2, [-200, -50, -10, 0, 0.5, 1, 10, 50, 200])
    assert truth * (1 - 1e-9) <= ours <= truth * (1 + 1e-6)


@pytest.mark.parametrize("order", [1, 4, 12])
@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_randomised_response_covers_both_directions(order: int, rate: float) -> None:
    truth_reported = 0.8
    p, q = (truth_reported, 1 - truth_reported), (1 - truth_reported, truth_reported)
    mixed = [(1 - rate) * b + rate * a for a, b in zip(p, q, strict=True)]
    forward = math.log(sum(m ** (order + 1) * b**-order for m, b in zip(mixed, q, strict=True)))
    reverse = math.log(sum(b ** (order + 1) * m**-order for m, b in zip(mixed, q, strict=True)))
    ours = subsampled_moment(order, RandomisedResponse(truth_reported), sampling_rate=rate)
    assert max(forward, reverse) <= ours <= max(forward, reverse) * (1 + 1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.4, 1.0])
def test_equal_variances_are_the_subsampled_gaussian(rate: float) -> None:
    # Two coordinates of 0.6 and 0.8 are one of length 1.
    pair = GaussianPair([0.6, 0.8], [2.0, 2.0], [2.0, 2.0])
    ours = subsampled_moment(7, pair, sampling_rate=rate)
    assert ours == pytest.approx(float(log_moment(7, 1.0, noise_std=2.0, sampling_rate=rate)), rel=1e-7)


def test_several_coordinates_of_different_variances_fall_back_to_convexity() -> None:
    one = subsampled_moment(3, GaussianPair(0.4, 1.05, 1.0), sampling_rate=0.1)
    two = subsampled_moment(3, GaussianPair([0.4, 0.0], [1.05, 1.0], [1.0, 1.0]), sampling_rate=0.1)
    assert two >= one


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("shift", lambda: GaussianPair(float("nan"), 1.0, 1.0)),
        ("std_with", lambda: GaussianPair(0.1, 0.0, 1.0)),
        ("std_without", lambda: GaussianPair(0.1, 1.0, -1.0)),
        ("scale", lambda: LaplacePair(1.0, 0.0)),
        ("truth", lambda: RandomisedResponse(0.3)),
        ("truth", lambda: RandomisedResponse(1.0)),
    ],
)
def test_bad_laws_are_refused_by_name(name: str, make: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(("name", "order", "rate"), [("order", 0, 0.1), ("order", 1.5, 0.1), ("sampling_rate", 1, 2)])
def test_bad_steps_are_refused_by_name(name: str, order: int, rate: float) -> None:
    pair: OutcomePair = RandomisedResponse(0.7)
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        subsampled_moment(order, pair, sampling_rate=rate)
