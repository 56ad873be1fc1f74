"""One number for a mechanism that composes by addition: the ρ of zCDP, the μ² of Gaussian differential privacy.

Sampling is not credited: neither notion gains from it in closed form. A sampled law is the unsampled one, replaced by a
draw without the record with probability 1 − q, so that the unsampled number bounds it.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.mechanisms.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    GaussianEvent,
    Kind,
    LaplaceEvent,
    NothingEvent,
    PairEvent,
    ZCDPEvent,
)
from accounting.mechanisms.finite_pairs import finite_pair_of
from accounting.mechanisms.gaussian_mixtures import rounded_noise
from accounting.mechanisms.step_losses import UNIT
from accounting.mechanisms.unsampled import GRID_STD, LEAST_GRID_STD
from accounting.units import Relation

_functions = cast(Any, _special)
_UP = 1 + 1e-12
# A square that underflows is not 0.
_LEAST_SQUARE = 2.0**-1021


def pure_epsilon(kind: Kind, relation: Relation) -> float:
    """The ε of ε-DP of one run, rounded up. inf: it has none."""
    times = _times(relation)
    match kind.atom:
        case NothingEvent():
            return 0.0
        case LaplaceEvent(noise_multiplier):
            return times / noise_multiplier * _UP
        case DiscreteLaplaceEvent(scale, sensitivity):
            return times * sensitivity / scale * _UP
        case PairEvent(pair) if (finite := finite_pair_of(pair)) is not None:
            first, second = np.array(finite.with_record), np.array(finite.without_record)
            if bool(((first == 0) != (second == 0)).any()):
                return math.inf
            if bool((first == second).all()):
                return 0.0
            used = first > 0
            # Of nearly equal laws the quotient is 1, but for its rounding.
            return float(np.abs(np.log(first[used] / second[used])).max()) * _UP + 4 * UNIT
        case _:
            return math.inf


def zcdp_rho(kind: Kind, relation: Relation) -> float:
    """The least known ρ with D_α ≤ ρα for all α > 1, of one run, rounded up. inf: none is known.

    Gaussian noise has 1/2σ², the discrete Gaussian the same (Canonne, Kamath & Steinke 2020), ε-DP has ε²/2 (Bun &
    Steinke 2016).
    """
    times = _times(relation)
    match kind.atom:
        case _ if kind.rate == 0:
            return 0.0
        case GaussianEvent(noise_multiplier):
            return _square(times / noise_multiplier) / 2 * _UP
        case DiscreteGaussianEvent(noise_std, sensitivity):
            return _square(times * sensitivity / noise_std) / 2 * _UP
        case ZCDPEvent(rho, 0):
            return rho * _UP
        case _:
            return _square(pure_epsilon(kind, relation)) / 2 * _UP


def gdp_square(kind: Kind, relation: Relation) -> float:
    """The least known μ² of μ-GDP of one run, rounded up. inf: none is known.

    Gaussian noise has 1/σ² (Dong, Roth & Su 2022), and noise on a grid that of the continuous noise that it is
    post-processed from. ε-DP has μ = 2Φ⁻¹(e^ε/(1 + e^ε)): its trade-off is two lines that meet where both errors are
    1/(1 + e^ε), and a convex curve through (0, 1), that point and (1, 0) is below them.
    """
    times = _times(relation)
    match kind.atom:
        case _ if kind.rate == 0:
            return 0.0
        case GaussianEvent(noise_multiplier):
            return _square(times / rounded_noise(noise_multiplier, GRID_STD)) * _UP
        case DiscreteGaussianEvent(noise_std, sensitivity) if noise_std >= LEAST_GRID_STD:
            return _square(times * sensitivity / rounded_noise(noise_std, noise_std)) * _UP
        case _:
            return _square(_mu_of_pure(pure_epsilon(kind, relation))) * (1 + 1e-9)


def _mu_of_pure(epsilon: float) -> float:
    """2Φ⁻¹(e^ε/(1 + e^ε)), right to 1e-14 of itself: by its distance from 1/2, or by the logarithm of the tail."""
    if epsilon < 1:
        return 2 * math.sqrt(2) * float(_functions.erfinv(math.tanh(epsilon / 2)))
    return -2 * float(_functions.ndtri_exp(_functions.log_expit(-epsilon)))


def _times(relation: Relation) -> int:
    return 2 if relation is Relation.REPLACE_ONE else 1


def _square(value: float) -> float:
    return max(value * value, _LEAST_SQUARE) if value > 0 else 0.0
