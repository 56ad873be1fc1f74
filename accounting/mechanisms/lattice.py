"""Discrete Gaussian noise as continuous noise that was rounded, which carries the continuous law's theorems over.

Let X be a continuous Gaussian of variance s² − 1/12, rounded to the nearest integer. Its law q at an integer k is the
density at k of X plus an independent uniform number on [−½, ½], which has variance s² and, among its cumulants, only
the fourth (−1/120) and higher even ones that a Gaussian of variance s² has not. The discrete Gaussian p of parameter s
is that Gaussian's density at the integers, up to a factor 1 ± 3 e^{−2π²s²}. With He₄ the Hermite polynomial,

    q(k) − p(k) = −p(k) He₄(k/s) / (2880 s⁴) · (1 + O(s⁻²)),

so that the total variation between the two is 4.9e-4/s⁴ · (1 + O(s⁻²)). `lattice_error` states 1e-3/s⁴. The tests
compare it with sums in 60 digits.

Adding an integer vector before rounding is adding it afterwards. So a sum of integers with discrete noise is, up to
that error in each cell, a post-processing of the same sum with continuous noise.

Noise in shares is a sum of discrete Gaussians, which is not quite one itself: `summation_error` bounds how far it is.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidArgument
from accounting.values import check_count

# Of s², for the continuous noise that is rounded.
LESS_VARIANCE = 1 / 12
_MIN_STD = 8.0


def summation_error(share_std: float, shares: int) -> float:
    """Total variation between the sum of so many discrete Gaussians of this parameter and one discrete Gaussian of the
    same variance: 10 Σ_{k<n} exp(−2π²s²k/(k+1)), rounded up (Kairouz, Liu & Steinke 2021).

    share_std  in grid steps, at least ½

    Below 1e-250 for shares of 8 grid steps and more: nothing is ever charged for them.

    Raises:
        InvalidArgument: shares too narrow for the bound.

    >>> summation_error(1.0, 10) < 5.44e-4, summation_error(3.0, 10) < 2.7e-38, summation_error(3.0, 1)
    (True, True, 0.0)
    """
    check_count("shares", shares)
    if not share_std >= 0.5:
        raise InvalidArgument("share_std", f"must be at least half a grid step, not {share_std!r}")
    rate = 2 * math.pi * math.pi * share_std * share_std
    return math.fsum(10 * math.exp(-rate * k / (k + 1)) for k in range(1, shares)) * (1 + 1e-12)


def lattice_error(std: float) -> float:
    """Total variation between the discrete Gaussian of parameter `std` ≥ 8 grid steps and the rounded continuous one.

    Raises:
        InvalidArgument: a coarser grid, for which no bound is proved.
    """
    if not std >= _MIN_STD:
        raise InvalidArgument("std", f"must be at least {_MIN_STD:g} grid steps, not {std!r}")
    return math.nextafter(1e-3 / std / std / std / std, math.inf)
