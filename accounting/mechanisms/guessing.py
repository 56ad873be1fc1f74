"""How often an attacker guesses right whether one record took part: (1 + δ(0))/2, from the law of the losses.

δ(0) is the total variation between the releases with the record and without it. An attacker who gives equal odds to
both is right with probability (1 + δ(0))/2 by the best test there is (Neyman & Pearson 1933; Wasserman & Zhou 2010,
section 2.4). (e^ε + δ)/(1 + e^ε) bounds the same number from one point of the curve, and is far above it.

It is a statement about everything that the plan may release. That holds for every stop, because a transcript that ends
earlier is a function of the whole one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from accounting.mechanisms.composed_loss import composed_delta_at_zero
from accounting.mechanisms.conversion import SAMPLING_ERROR
from accounting.mechanisms.lattice import LESS_VARIANCE, lattice_error
from accounting.mechanisms.unsampled import CONTINUOUS, GRID_STD, Steps, unsampled_delta

# Numbers in one noised sum, at most: as for the sampler's error.
_LARGEST_SUM = 1e8


def rounded_steps(noise_multiplier: float, sampling_rate: float, count: int) -> Steps:
    """Steps on the project's grids as continuous ones, whose noise is rounded: see `lattice`."""
    less = math.sqrt(1 - LESS_VARIANCE / GRID_STD / GRID_STD)
    return Steps(math.nextafter(noise_multiplier * less, 0.0), sampling_rate, count, CONTINUOUS)


def rounding_error(count: int) -> float:
    """Total variation between so many of these steps and what is drawn for them."""
    return count * _LARGEST_SUM * lattice_error(GRID_STD)


def guess_chance(steps: Sequence[Steps], *, releases: int, lattice: float = 0.0) -> float:
    """Highest probability of a right guess with equal odds, rounded up, in [0.5, 1].

    Args:
        steps: everything that is released, with 0 < sampling_rate ≤ 1. Empty: there is no release.
        releases: how many noised sums the sampler draws for it.
        lattice: total variation between what is drawn and the law of `steps`, where that law is continuous.
    """
    # Each of the two laws differs from the exact one by the sampler's and the lattice's error.
    error = 2 * (releases * SAMPLING_ERROR + lattice)
    return min(1.0, math.nextafter(0.5 + (_total_variation(tuple(steps)) + error) / 2, 1.0))


@lru_cache(maxsize=256)
def _total_variation(steps: tuple[Steps, ...]) -> float:
    if not steps:
        return 0.0
    if all(step.sampling_rate == 1 for step in steps):
        return unsampled_delta(steps, 0.0)
    return composed_delta_at_zero(steps)
