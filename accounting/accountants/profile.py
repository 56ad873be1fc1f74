"""The privacy curve of an account: δ(ε), the trade-off of an attacker's two errors, and the μ of a Gaussian mechanism.

Gaussian differential privacy and trade-off functions: Dong, Roth & Su 2022, "Gaussian Differential Privacy".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.unsampled import gaussian_deltas
from accounting.values import FloatArray, check_array, check_delta, check_nonnegative, check_positive, short_repr

_LARGEST_MU = 1000.0


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """Upper bounds on δ at several ε, in both directions of the neighbouring relation.

    epsilons  (n,) ≥ 0, strictly increasing
    deltas    (n,) in [0, 1], never rising: δ(ε) at each

    Raises InvalidArgument.

    >>> profile = PrivacyProfile([0.0, 1.0, 2.0], [0.3, 0.1, 0.02])
    >>> profile.epsilon_at(0.1), profile.trade_off([0.0, 0.5]).round(4).tolist()
    (1.0, [0.98, 0.2])
    """

    epsilons: FloatArray
    deltas: FloatArray

    def __post_init__(self) -> None:
        for name in ("epsilons", "deltas"):
            values = check_array(name, getattr(self, name))
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.epsilons.shape != self.deltas.shape:
            raise InvalidArgument("deltas", f"has shape {self.deltas.shape}, epsilons {self.epsilons.shape}")
        if bool((np.diff(self.epsilons) <= 0).any()):
            raise InvalidArgument("epsilons", "must be strictly increasing")
        if bool((np.diff(self.deltas) > 0).any()) or float(self.deltas[0]) > 1:
            raise InvalidArgument("deltas", "must be at most 1 and never rise")

    def __repr__(self) -> str:
        return short_repr(self)

    def epsilon_at(self, delta: float) -> float:
        """The least ε of the profile with δ(ε) ≤ delta, or inf where it has none."""
        places = np.flatnonzero(self.deltas <= check_delta(delta))
        return float(self.epsilons[places[0]]) if places.size else math.inf

    def trade_off(self, false_positive_rates: Sequence[float] | FloatArray) -> FloatArray:
        """The least false-negative rate of any test of membership, at these false-positive rates. Rounded down.

        The largest of 0, 1 − δ − e^ε·α and e^{−ε}(1 − δ − α) over the profile's points (Wasserman & Zhou 2010; Dong,
        Roth & Su 2022). More points in the profile give a tighter bound.

        Args:
            false_positive_rates: (m,) in [0, 1]. A test's type I error: it says "member" of a record that is none.

        Returns:
            (m,) in [0, 1]. Its type II error: it says "no member" of one that is.
        """
        alphas = check_array("false_positive_rates", false_positive_rates)
        if bool((alphas > 1).any()):
            raise InvalidArgument("false_positive_rates", "must be at most 1")
        with np.errstate(over="ignore"):
            growth = np.exp(self.epsilons)[:, None] * (1 + 1e-15)
        rest = (1 - self.deltas)[:, None]
        with np.errstate(invalid="ignore"):
            steep = np.where(alphas > 0, rest - growth * alphas, rest)
        flat = (rest - alphas) / growth
        errors = np.maximum(0.0, np.maximum(steep, flat).max(axis=0))
        return np.maximum(0.0, errors - 1e-15)

    def mu(self) -> float:
        """The least μ whose Gaussian mechanism has no smaller δ(ε) between the profile's first and last ε, rounded up.

        Between two points it compares the larger δ with the Gaussian's at the larger ε, so that finer profiles give a
        smaller μ. It is μ-GDP as far as the profile reaches, and no further. inf where no μ is enough.
        """
        if self.epsilons.size == 1:
            return mu_from_epsilon(float(self.epsilons[0]), float(self.deltas[0]))
        pairs = zip(self.epsilons[1:].tolist(), self.deltas[:-1].tolist(), strict=True)
        return max(mu_from_epsilon(epsilon, delta) for epsilon, delta in pairs)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a μ-GDP mechanism, rounded up (Dong, Roth & Su 2022; Balle & Wang 2018, Theorem 8).

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """
    size, target = check_positive("mu", mu), check_nonnegative("epsilon", epsilon)
    return min(1.0, gaussian_deltas(size, target)[1])


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """The least μ whose Gaussian mechanism has δ(ε) ≥ delta, rounded up. 0 at δ = 0, inf where none has.

    It names the Gaussian mechanism with the same (ε, δ). It does not prove that a mechanism with this (ε, δ) is μ-GDP.

    >>> round(mu_from_epsilon(1.0, 0.1269), 3)
    1.0
    """
    target, level = check_nonnegative("epsilon", epsilon), check_nonnegative("delta", delta)
    if level == 0:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_deltas(high, target)[0] < level:
        if high > _LARGEST_MU:
            return math.inf
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_deltas(middle, target)[0] >= level else (middle, high)
    return high
