"""Gaussian releases that all records take part in, as one number: Σ Δ²/s² ≤ μ² is (ε, δ)-DP with δ in closed form.

Releases that are chosen one after the other, each after the answers before, are together μ-Gaussian-differentially
private if Σ Δ²/s² ≤ μ² on every path (Smith & Thakurta 2022, fully adaptive Gaussian filter). The same holds for one
record and its own distances (Koskela, Tobaben & Honkela 2023). A step of a random sample counts as one of all records:
given the coins, a record is in it or not.

The drawn noise is discrete. It is the rounding of continuous noise whose variance is 1/12 of a grid step smaller, up
to a total variation of `lattice_error` for each number. Both are counted here for the project's grids.
"""

from __future__ import annotations

import math
from functools import lru_cache

from accounting.mechanisms.conversion import SAMPLING_ERROR
from accounting.mechanisms.lattice import LESS_VARIANCE
from accounting.mechanisms.unsampled import CONTINUOUS, GRID_STD, Steps, unsampled_delta, unsampled_epsilon
from accounting.values import check_delta, check_nonnegative, check_positive

# Total variation between a release as it is drawn and as rounded continuous noise, rounded up. A deviation has 2²² grid
# steps for gradients of up to 10⁸ numbers, 2²⁰ for queries of up to 2¹⁷, and 2¹⁴·√d, at least 2¹⁶, for updates of d.
ROUNDING_ERROR = 1e-21
RELEASE_ERROR = ROUNDING_ERROR + SAMPLING_ERROR
# Noise with at least GRID_STD grid steps to a deviation, as continuous noise: Δ²/s² grows by less than this factor.
_LATTICE = 1 / (1 - LESS_VARIANCE / GRID_STD / GRID_STD) * (1 + 2.0**-50)
# The largest sum of squares that is searched for. The least is its reciprocal.
_MAX_SCALE = 2.0**900


def squares(distance: float, noise_std: float) -> float:
    """Return Δ²/s² of one release on the project's grids, rounded up.

    Args:
        distance: L2 norm Δ of what one record moves the sum by, at least 0.
        noise_std: standard deviation s of the noise, in the same unit.

    Raises:
        InvalidArgument: a number is negative, infinite or NaN, or there is no noise.
    """
    ratio = check_nonnegative("distance", distance) / check_positive("noise_std", noise_std)
    return math.nextafter(ratio * ratio * _LATTICE, math.inf) if distance > 0 else 0.0


def release_slack(epsilon: float, releases: int) -> float:
    """Return what discrete noise and its sampler add to δ over so many releases: n(1 + e^ε) times their error."""
    # e^600 times the error is far above any δ already. e^710 would overflow.
    return releases * (1 + math.exp(min(epsilon, 600.0))) * RELEASE_ERROR * (1 + 2.0**-50)


def epsilon_of_squares(total: float, delta: float, other_steps: tuple[Steps, ...] = ()) -> float:
    """Return ε of releases with Σ Δ²/s² = `total` in continuous noise, rounded up.

    Args:
        total: Σ Δ²/s², at least 0.
        delta: δ at which ε is read.
        other_steps: steps of all records that come on top, such as published histograms on a grid of their own.

    Raises:
        InvalidArgument: `total` is negative or NaN, or delta is not between 0 and 1.

    >>> round(epsilon_of_squares(1 / 16, 1e-5), 4)
    0.9263
    """
    target, releases = check_delta(delta), [*other_steps, *_whole(check_nonnegative("total", total))]
    if not releases:
        return 0.0
    squares_in_all = math.fsum([total, *(step.count / step.noise_multiplier**2 for step in other_steps)]) * (
        1 + 2.0**-48
    )
    # What moments give at the best order bounds it from above: μ²/2 + μ√(2 ln(1/δ)).
    bound = (squares_in_all / 2 + math.sqrt(2 * squares_in_all * math.log(1 / target))) * (1 + 1e-12)
    return unsampled_epsilon(releases, target, bound)


@lru_cache(maxsize=256)
def largest_squares(epsilon: float, delta: float, other_steps: tuple[Steps, ...] = ()) -> float:
    """Return μ², the largest Σ Δ²/s² that is (ε, δ)-DP in continuous noise, rounded down by at most a share of 1e-12.

    Beyond 2^±900 it is rounded down further, to 2^900 or 0.

    other_steps  as of `epsilon_of_squares`. 0 where these alone are too much

    Raises:
        InvalidArgument: epsilon is not positive and finite, or delta is not between 0 and 1.

    >>> round(largest_squares(2.0, 1e-5), 4)
    0.2516
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)

    def fits(total: float) -> bool:
        return unsampled_delta([*other_steps, *_whole(total)], epsilon) <= delta

    low, high = 0.0, 1.0
    if other_steps and not fits(0.0):
        return 0.0
    # Between these ends no square, root or quotient overflows or underflows.
    while high < _MAX_SCALE and fits(high):
        low, high = high, 4 * high
    while high - low > 1e-12 * high and high > 1 / _MAX_SCALE:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _whole(total: float) -> list[Steps]:
    """Return one release that dominates all of them, none for no release."""
    if total == 0:
        return []
    return [Steps(math.nextafter(1 / (math.sqrt(total) * (1 + 2.0**-50)), 0.0), 1.0, 1, CONTINUOUS)]
