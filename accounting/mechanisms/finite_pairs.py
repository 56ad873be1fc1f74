"""Mechanisms with finitely many outcomes, or finitely many sizes of the loss: Rényi moments, and losses on a grid.

Discrete Laplace noise of scale b on an integer that one record moves by Δ (Ghosh, Roughgarden & Sundararajan 2012): up
to 0 and from Δ on the loss is ∓Δ/b, and at k between them (2k − Δ)/b. Outcomes of equal loss count as one, so that the
pair is finite.

A shift of Δ in one coordinate bounds shifts of Δ₁, Δ₂, … with Σ Δ_i = Δ, for any log-concave noise. With r the density
ratio of a shift by a, s that of a further shift by b, and φ convex, E φ(r·s) = E_a φ(r·s)/r, where (r, s) ↦ φ(rs)/r has
a mixed derivative of s·φ''(rs) ≥ 0. Of one coordinate r and s rise together, which is the largest coupling of their two
laws. Of two coordinates they are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.general import OutcomePair, RandomisedResponse
from accounting.mechanisms.step_losses import UNIT, LossLaw, StepLosses, without_small
from accounting.values import FloatArray, check_array, check_count, check_positive

# A probability law may miss 1 by so much, as rounding: it is scaled. A law whose tail was cut off is refused.
_SUM_ERROR = 1e-12
# Losses of a discrete Laplace step.
MOST_LOSSES = 2**16
_MOST_LOSS = 400.0
# Probabilities are right to the rounding of an exponential of at most the largest loss.
_ROUNDED_UP = 1 + 2 * _MOST_LOSS * UNIT


@dataclass(frozen=True)
class FinitePair(OutcomePair):
    """Any two laws over the same finite outcomes: the probability of each outcome, with the record and without it.

    with_record, without_record  probabilities, shape (outcomes,), with sum 1 but for rounding, which is scaled away

    Raises InvalidArgument: a negative probability, another sum, or different lengths.

    >>> pair = FinitePair([0.5, 0.3, 0.2], [0.4, 0.4, 0.2])
    >>> round(pair.divergence(2.0), 4)
    0.0488
    """

    with_record: Sequence[float]
    without_record: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("with_record", "without_record"):
            values = check_array(name, np.asarray(getattr(self, name), dtype=np.float64))
            if abs((total := math.fsum(values)) - 1) > _SUM_ERROR:
                raise InvalidArgument(name, f"must have the sum 1, not {total!r}. Add what is missing as an outcome")
            # As tuples: an event is a value, which can be compared and counted.
            object.__setattr__(self, name, tuple((values / total).tolist()))
        if len(self.with_record) != len(self.without_record):
            raise InvalidArgument("without_record", f"must have {len(self.with_record)} outcomes, as with_record has")

    @property
    def symmetric(self) -> bool:
        # Both directions are computed, which is exact for any pair.
        return False

    def divergence(self, order: float) -> float:
        return _renyi(np.array(self.with_record), np.array(self.without_record), order)

    def reverse_divergence(self, order: float) -> float:
        return _renyi(np.array(self.without_record), np.array(self.with_record), order)

    def reverse_moment(self, order: int, rate: float) -> float:
        without = np.array(self.without_record)
        mixed = (1 - rate) * without + rate * np.array(self.with_record)
        return order * _renyi(without, mixed, order + 1.0) * (1 + 1e-12)


def _renyi(first: FloatArray, second: FloatArray, order: float) -> float:
    """D_order of two laws, in the log domain. inf: an outcome has probability 0 under the second one alone."""
    used = first > 0
    if bool((second[used] == 0).any()):
        return math.inf
    powers = order * np.log(first[used]), (1 - order) * np.log(second[used])
    # Of nearly equal laws the logarithms cancel: what they were rounded by stays.
    rounding = 4 * UNIT * (1 + order + float(np.abs(powers).max()))
    return max(0.0, float(np.logaddexp.reduce(powers[0] + powers[1])) + rounding) / (order - 1)


@lru_cache(maxsize=64)
def discrete_laplace_pair(scale: float, sensitivity: int) -> FinitePair:
    """The pair of discrete Laplace noise: outcomes of equal loss count as one, shape (sensitivity + 1,).

    >>> pair = discrete_laplace_pair(1.0, 1)
    >>> round(pair.with_record[1] / pair.without_record[1], 6) == round(math.e, 6)
    True
    """
    moved = check_count("sensitivity", sensitivity, maximum=MOST_LOSSES)
    rate = 1 / check_positive("scale", scale)
    places = np.arange(moved + 1, dtype=np.float64)
    # P(X = k) = tanh(1/2b) e^{−|k|/b}, and P(X ≥ k) = e^{−k/b}/(1 + e^{−1/b}) for k ≥ 0.
    without = math.tanh(rate / 2) * np.exp(-rate * places)
    without[0] = 1 / (1 + math.exp(-rate))
    without[-1] = math.exp(-rate * moved) / (1 + math.exp(-rate))
    return FinitePair(tuple(without[::-1].tolist()), tuple(without.tolist()))


def finite_pair_of(pair: OutcomePair) -> FinitePair | None:
    """The same pair by its probabilities, or None where it is not finite."""
    if isinstance(pair, RandomisedResponse):
        lie = 1 - pair.truth
        return FinitePair((pair.truth, lie), (lie, pair.truth))
    return pair if isinstance(pair, FinitePair) else None


@dataclass(frozen=True)
class FiniteLosses(LossLaw):
    """The losses of one step of a finite pair.

    sampling_rate  Poisson rate in (0, 1]
    exchanged      whether one record stands for another. Then the law of the other records is unknown, and the bound is
                   joint convexity: with probability 1 − q both laws are equal, and else they are the pair's
    """

    pair: FinitePair
    sampling_rate: float = 1.0
    exchanged: bool = False

    @property
    def is_tractable(self) -> bool:
        ratios = self._ratios(removal=True)
        return self.sampling_rate >= 1e-9 and ratios.size > 0 and 1e-7 <= float(np.abs(ratios).max()) <= _MOST_LOSS

    @property
    def variance(self) -> float:
        first, second = self._laws(removal=True)
        in_both = (first > 0) & (second > 0)
        losses = np.log(first[in_both] / second[in_both])
        return float(first[in_both] @ np.square(losses))

    def loss_range(self, tail: float, *, removal: bool) -> tuple[float, float]:
        # With 0, which lies between them unless outcomes of infinite loss took the rest: one loss alone has no width.
        ratios = self._ratios(removal=removal)
        return min(0.0, float(ratios.min())), max(0.0, float(ratios.max()))

    def losses(self, interval: float, tail: float, *, removal: bool) -> StepLosses:
        return _on_grid(self, interval, removal)

    def _ratios(self, *, removal: bool) -> FloatArray:
        first, second = self._laws(removal=removal)
        in_both = (first > 0) & (second > 0)
        return np.log(first[in_both] / second[in_both])

    def _laws(self, *, removal: bool) -> tuple[FloatArray, FloatArray]:
        """Both laws, shape (outcomes,), the first one rounded up."""
        with_record, without = np.array(self.pair.with_record), np.array(self.pair.without_record)
        rate = self.sampling_rate
        if self.exchanged:
            equal = np.array([] if rate == 1 else [1 - rate])
            with_record, without = (np.concatenate([equal, rate * law]) for law in (with_record, without))
        elif rate < 1:
            with_record = (1 - rate) * without + rate * with_record
        first, second = (with_record, without) if removal else (without, with_record)
        return first * _ROUNDED_UP, second


@lru_cache(maxsize=16)
def _on_grid(law: FiniteLosses, interval: float, removal: bool) -> StepLosses:
    """Split each outcome between its two neighbours on the grid so that both laws keep their mass.

    Connect-the-dots (Doroshenko et al. 2022, Algorithm 1). An outcome without probability under the second law has an
    infinite loss.
    """
    first, second = law._laws(removal=removal)  # pyright: ignore[reportPrivateUsage]
    used, in_both = first > 0, (first > 0) & (second > 0)
    infinite = float(first[used & ~in_both].sum())
    first, second = first[in_both], second[in_both]
    ratios = np.log(first / second)
    places = ratios / interval
    low = np.floor(places)
    # The share m of the upper neighbour: m·e^{−h} + (1 − m) = e^{−(l − low)}. Both exponents are of one sign.
    share = np.expm1(-(places - low) * interval) / math.expm1(-interval)
    share = np.clip(share + UNIT * (8 + 4 * np.abs(ratios)) / interval, 0.0, 1.0)
    start = int(low.min())
    masses = np.zeros(int(low.max()) - start + 2)
    indices = low.astype(np.int64) - start
    np.add.at(masses, indices, first * (1 - share))
    np.add.at(masses, indices + 1, first * share)
    # `add.at` may add many terms to one place.
    rounded = masses * (1 + first.size * UNIT)
    return without_small(StepLosses(interval, start, rounded, infinite))
