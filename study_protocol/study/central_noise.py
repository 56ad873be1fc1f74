"""Central noise for a sum of clipped updates: integers on a public grid, so that sums and noise are exact.

Every update is rounded to multiples of `spacing` before it is added. Sums of integers below 2^53 are exact in float64
in any order. So removing one client moves the sum by exactly its own rounded update, whose norm is at most
`sensitivity`. Noise is drawn in grid units with standard deviation noise_multiplier · sensitivity. The coordinator adds
it to the sum, or every hospital adds a share of equal variance to its own rounded update, under masks. The guaranteed
part of a sum of shares is as much noise as the coordinator's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# An update travels as float32: its norm, computed again, may pass the clip norm by its rounding.
CLIP_TOLERANCE = 1e-6
# Sums of integers below this come out alike in float64, in any order.
EXACT = 2.0**53
GRID_BITS = 14
# Of a share, in grid steps. At 3 the law of a sum of shares lies within 10⁻³⁷ of one noise's
# (`accounting.mechanisms.lattice.summation_error`). 2⁴⁰ is the sampler's own bound.
MIN_SHARE, MAX_SHARE = 3.0, 2.0**40
# Grid steps to the standard deviation of all the noise, at least.
MIN_UNITS = 256.0
# Of clip_norm, and of clip_norm × noise_multiplier where that is smaller: the grid beside them is a float.
_LEAST_SCALE, _LARGEST_SCALE = 1e-100, 1e100
# In standard deviations: what the sampler draws is never longer.
LONGEST_DRAW = 16


@dataclass(frozen=True)
class CentralNoise:
    """The mechanism of one study with `coordinates` parameters.

    spacing      grid spacing, a power of two at most min(1, noise_multiplier) · clip_norm · 2^-14 / sqrt(coordinates),
                 with 16 for fewer coordinates: `units` is 2^16 at least
    sensitivity  most that one client can move the sum, in the L2 norm: its clipped norm and the rounding
    std          noise standard deviation on the scale of the sum
    shares       among how many honest hospitals the noise is shared at least. 1: the coordinator draws it
    """

    clip_norm: float
    noise_multiplier: float
    coordinates: int
    shares: int = 1

    @property
    def spacing(self) -> float:
        """On the scale of the sum, a power of two."""
        # Fine beside the noise too, where that is smaller than the clip norm.
        return public_grid(self._scale, self.coordinates)

    @property
    def _scale(self) -> float:
        return self.clip_norm * min(1.0, self.noise_multiplier)

    @property
    def rounding(self) -> float:
        """Half a grid step in every coordinate, as an L2 norm."""
        return _up(self.spacing * math.sqrt(self.coordinates) / 2)

    @property
    def sensitivity(self) -> float:
        """L2 norm, rounded up."""
        return _up(self.clip_norm * (1 + CLIP_TOLERANCE) + self.rounding)

    @property
    def std(self) -> float:
        """On the scale of the sum, rounded up."""
        return _up(self.noise_multiplier * self.sensitivity)

    @property
    def units(self) -> float:
        """`std` in grid units: the parameter of the discrete Gaussian."""
        return self.std / self.spacing

    @property
    def share(self) -> float:
        """One hospital's part in grid units, rounded up: variances of so many `shares` add up to that of `std`."""
        return _up(self.units / math.sqrt(self.shares))

    @property
    def longest_share(self) -> int:
        """In grid units: no share that is drawn is longer, in any coordinate."""
        return math.ceil(LONGEST_DRAW * self.share)

    @property
    def fault(self) -> str | None:
        """Why this noise cannot be drawn in shares, or None."""
        if not _LEAST_SCALE <= self._scale <= _LARGEST_SCALE:
            return f"times clip_norm {self._scale:g} is beyond any grid: take both between 1e-50 and 1e+50"
        if not self.share >= MIN_SHARE:
            return f"each share must have at least {MIN_SHARE:g} grid steps, for shares to sum like one noise"
        if not self.units >= MIN_UNITS:
            return f"the noise must have at least {MIN_UNITS:g} grid steps, for whole numbers to be noised like reals"
        if not self.share <= MAX_SHARE:
            return f"the noise is too large to be drawn: a share of {self.share:.3g} grid steps"
        return None

    def std_of(self, adders: int) -> float:
        """Return the standard deviation of the noise that is in a sum to which so many hospitals added shares."""
        return _up(self.share * self.spacing * math.sqrt(adders))

    def accounted_distance(self, norm: float) -> float:
        """Return the distance d with d / (noise_multiplier · clip_norm) >= (norm + rounding) / std.

        The budget counts this distance.
        """
        return min(self.clip_norm, _up(self.clip_norm * (norm + self.rounding) / self.sensitivity))

    def admits(self, norm: float) -> bool:
        """Return whether an update of this norm respects the clip. NaN does not."""
        return norm <= self.clip_norm * (1 + CLIP_TOLERANCE)


def public_grid(scale: float, coordinates: int) -> float:
    """Return the largest power of two ≤ scale · 2^-14 / √coordinates: rounding to it adds 2^-14 · scale to an L2 norm.

    For fewer than 16 coordinates as for 16: accounts count on 2^16 steps to a deviation of noise as large as `scale`.
    """
    return 2.0 ** math.floor(math.log2(scale) - GRID_BITS - math.log2(max(coordinates, 16)) / 2)


def _up(value: float) -> float:
    # Four relative ulps cover the roundings of the products and sums above.
    return math.nextafter(value * (1 + 2.0**-50), math.inf)
