"""Sampled mechanisms whose outcome laws have a known Rényi divergence (Triastcyn 2020, Theorem 4).

A pair is the law P of the outcome when the record was sampled, and Q when it was not. With p(w|D') = (1−q)Q + qP,

    forward   log Σ_k Bin(k; λ+1, q) exp((k−1) D_k(P‖Q))
    reverse   log Σ_k Bin(k; λ, q) exp(k D_{k+1}(Q‖P)),  a convexity bound

The thesis prints e^{k D_{k+1}} in the forward sum. E (P/Q)^k is e^{(k−1) D_k}, and the difference is the amplification.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import INFLATION, MOST_TERMS, Values, log_binomial, log_expm1, log_sum
from accounting.values import (
    FloatArray,
    check_array,
    check_count,
    check_instance,
    check_number,
    check_positive,
    check_rate,
)

# 2·40,001 − 1 nodes halve the step exactly.
_NODES = 40_001


class OutcomePair(ABC):
    """The two outcome laws of one step."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Whether an isometry swaps P and Q: then the forward direction bounds both (Mironov et al. 2019, Thm 5)."""

    @abstractmethod
    def divergence(self, order: float) -> float:
        """D_order(P‖Q) for order > 1, or inf where it does not exist."""

    @abstractmethod
    def reverse_divergence(self, order: float) -> float:
        """D_order(Q‖P) for order > 1, or inf where it does not exist."""

    def reverse_moment(self, order: int, rate: float) -> float:
        """log E_Q (Q / ((1−q)Q + qP))^λ where it can be computed better than by convexity. Else inf."""
        _ = order, rate
        return math.inf


@dataclass(frozen=True)
class GaussianPair(OutcomePair):
    """N(shift, diag std_with²) against N(0, diag std_without²): e.g. a variational posterior with and without.

    All of shape (p,) or scalars.

    >>> pair = GaussianPair(shift=1.0, std_with=2.0, std_without=2.0)
    >>> round(pair.divergence(5), 3), pair.symmetric
    (0.625, True)
    """

    shift: Values
    std_with: Values
    std_without: Values

    def __post_init__(self) -> None:
        for name in ("shift", "std_with", "std_without"):
            values = check_array(name, np.atleast_1d(np.asarray(getattr(self, name))), low=-math.inf)
            if name != "shift" and bool((values <= 0).any()):
                raise InvalidArgument(name, "must be > 0")
            # As tuples: an event is a value, which can be compared and counted.
            object.__setattr__(self, name, float(values[0]) if values.size == 1 else tuple(values.tolist()))

    @property
    def symmetric(self) -> bool:
        return bool(np.all(np.asarray(self.std_with) == np.asarray(self.std_without)))

    def divergence(self, order: float) -> float:
        return self._renyi(order, self.std_with, self.std_without)

    def reverse_divergence(self, order: float) -> float:
        return self._renyi(order, self.std_without, self.std_with)

    def _renyi(self, order: float, first: Values, second: Values) -> float:
        """Gil, Alajaji & Linder 2013, Table 2. A divergence of product laws is the sum over coordinates."""
        mean, first_std, second_std = np.broadcast_arrays(
            *(np.asarray(v, dtype=np.float64) for v in (self.shift, first, second))
        )
        with np.errstate(over="ignore", invalid="ignore"):
            mixed = order * second_std**2 + (1 - order) * first_std**2
        if bool((mixed <= 0).any()):
            return math.inf
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.log(second_std / first_std) + np.log(second_std**2 / mixed) / (2 * (order - 1))
            return _rounded(float(np.sum(spread + order * mean**2 / (2 * mixed))))

    def reverse_moment(self, order: int, rate: float) -> float:
        # One coordinate only: a mixture of product laws is no product, and the integral would have p dimensions.
        if np.size(self.shift) != 1 or np.size(self.std_with) != 1 or np.size(self.std_without) != 1 or rate == 1:
            return math.inf
        shift, wide = float(np.ravel(self.shift)[0]), float(np.ravel(self.std_with)[0])
        base = float(np.ravel(self.std_without)[0])
        # Beyond, the densities are below e^{−50}(1−q)^λ, and the factor (…)^−λ gives back at most (1−q)^{−λ}.
        reach = math.sqrt(2 * (50 - order * math.log1p(-rate)))
        ends = [sign * reach * base for sign in (-1, 1)] + [shift + sign * reach * wide for sign in (-1, 1)]
        coarse = self._reverse_integral(order, rate, min(ends), max(ends), _NODES)
        fine = self._reverse_integral(order, rate, min(ends), max(ends), 2 * _NODES - 1)
        # Two step sizes that disagree mean the rule has not converged: leave it to convexity.
        if not abs(fine - coarse) <= 1e-7 * abs(fine):
            return math.inf
        # Ten times what the two may differ by.
        return max(fine, coarse) * (1 + 1e-6)

    def _reverse_integral(self, order: int, rate: float, low: float, high: float, nodes: int) -> float:
        shift, wide = float(np.ravel(self.shift)[0]), float(np.ravel(self.std_with)[0])
        base = float(np.ravel(self.std_without)[0])
        w, step = np.linspace(low, high, nodes, retstep=True)
        log_q = -((w / base) ** 2) / 2 - math.log(base)
        log_p = -(((w - shift) / wide) ** 2) / 2 - math.log(wide)
        u = log_p - log_q
        # (1+x)^−λ − 1 + λx with x = q(e^u − 1), whose linear part has mean zero. e^{log_q} x never overflows.
        mass_q, mass_p = np.exp(log_q), np.exp(log_p)
        shrink = np.exp(-order * np.logaddexp(math.log1p(-rate), math.log(rate) + u))
        excess = mass_q * (shrink - 1) + order * rate * (mass_p - mass_q)
        return float(np.log1p(np.sum(excess) * step / math.sqrt(2 * math.pi)))


class _SymmetricPair(OutcomePair):
    @property
    def symmetric(self) -> bool:
        return True

    def reverse_divergence(self, order: float) -> float:
        return self.divergence(order)


@dataclass(frozen=True)
class LaplacePair(_SymmetricPair):
    """Laplace noise of the given scale on a value that moves by `shift` (Mironov 2017, Proposition 6).

    >>> round(LaplacePair(shift=1.0, scale=2.0).divergence(2.0), 3)
    0.2
    """

    shift: float
    scale: float

    def __post_init__(self) -> None:
        check_number("shift", self.shift)
        check_positive("scale", self.scale)

    def divergence(self, order: float) -> float:
        move = abs(self.shift) / self.scale
        near = math.log(order / (2 * order - 1)) + (order - 1) * move
        far = math.log((order - 1) / (2 * order - 1)) - order * move
        return _rounded(float(np.logaddexp(near, far)) / (order - 1))


@dataclass(frozen=True)
class RandomisedResponse(_SymmetricPair):
    """A bit told truly with probability `truth` in [1/2, 1) (Mironov 2017, Proposition 5).

    >>> round(RandomisedResponse(0.75).divergence(2.0), 3)
    0.847
    """

    truth: float

    def __post_init__(self) -> None:
        if not 0.5 <= check_positive("truth", self.truth) < 1:
            raise InvalidArgument("truth", f"must be in [1/2, 1), not {self.truth!r}")

    def divergence(self, order: float) -> float:
        yes, no = math.log(self.truth), math.log1p(-self.truth)
        reported = order * yes + (1 - order) * no
        lied = order * no + (1 - order) * yes
        return _rounded(float(np.logaddexp(reported, lied)) / (order - 1))


@dataclass(frozen=True)
class ZeroConcentrated(OutcomePair):
    """Any laws with D_α ≤ ξ + ρα in both directions, for all α > 1 (zCDP, Bun & Steinke 2016).

    >>> ZeroConcentrated(rho=0.1, xi=0.5).divergence(2.0)
    0.7
    """

    rho: float
    xi: float = 0.0

    @property
    def symmetric(self) -> bool:
        # Nothing is known of the laws but the bound.
        return False

    def divergence(self, order: float) -> float:
        return self.xi + self.rho * order

    def reverse_divergence(self, order: float) -> float:
        return self.divergence(order)


def _rounded(divergence: float) -> float:
    # A divergence is never negative. Its rounding may be. What overflowed on the way is not known to be finite.
    return math.inf if math.isnan(divergence) else max(0.0, divergence)


def told_by(pair: OutcomePair, order: float, *, reverse: bool = False) -> float:
    """The pair's divergence, which may be of a class of your own. NaN drops the order.

    Raises InvalidArgument: it is negative, which would pay for what other events cost, or no number.
    """
    divergence = pair.reverse_divergence(order) if reverse else pair.divergence(order)
    checked = check_number("pair", math.inf if divergence != divergence else divergence, finite=False)
    if checked < 0:
        raise InvalidArgument("pair", f"{type(pair).__name__} tells a divergence of {checked!r}: none is negative")
    return checked


def subsampled_moment(order: int, pair: OutcomePair, *, sampling_rate: float) -> float:
    """λ·D_{λ+1} of one Poisson-sampled step at integer λ ≥ 1, both directions, rounded up.

    inf where a divergence in it does not exist: that order is dropped. Raises InvalidArgument.

    >>> round(subsampled_moment(4, LaplacePair(1.0, 5.0), sampling_rate=0.1), 4)
    0.0038
    """
    lam = check_count("order", order, maximum=MOST_TERMS)
    rate = check_rate("sampling_rate", sampling_rate)
    check_instance("pair", OutcomePair, pair)
    if rate == 0:
        return 0.0
    if rate == 1:
        moment = lam * max(told_by(pair, lam + 1), told_by(pair, lam + 1, reverse=True))
        return moment * (1 + INFLATION)
    return float(subsampled_moments(np.array([lam]), pair, sampling_rate=rate)[0])


def subsampled_moments(orders: FloatArray, pair: OutcomePair, *, sampling_rate: float) -> FloatArray:
    """`subsampled_moment` at many integer orders, shape (orders,), 0 < sampling_rate < 1. Divergences computed once."""
    top = int(orders.max())
    forward = np.array([(i - 1) * told_by(pair, float(i)) for i in range(2, top + 2)])
    # k = 0 and k = 1 have exponent 0 and drop out of Σ weight·(e^exponent − 1).
    moments = np.array(
        [_mixture(log_binomial(int(lam) + 1, sampling_rate)[2:], forward[: int(lam)]) for lam in orders.tolist()]
    )
    if pair.symmetric:
        return moments
    reverse = np.array([i * told_by(pair, float(i + 1), reverse=True) for i in range(1, top + 1)])
    # Both bound the reverse direction, so the smaller one does. The guarantee needs both directions.
    convex = [_mixture(log_binomial(int(lam), sampling_rate)[1:], reverse[: int(lam)]) for lam in orders.tolist()]
    pair_moments = [pair.reverse_moment(int(lam), sampling_rate) for lam in orders.tolist()]
    return np.maximum(moments, np.minimum(convex, pair_moments))


def _mixture(log_weights: FloatArray, exponents: FloatArray) -> float:
    """log(1 + Σ weight·(e^exponent − 1)), rounded up."""
    if not np.isfinite(exponents).all():
        return math.inf
    return float(np.logaddexp(0.0, log_sum(log_weights + log_expm1(exponents)))) * (1 + INFLATION)
