"""Tests of the law of a study's steps: is the noise there and fresh, are records clipped, are batches drawn?

The model stands still, so that every record has one gradient g_j. Without the coins and the noise the auditor knows
everything. Under the certificate's law the rest of a step's sum is

    r = Σ (b_j − q)·g_j + noise,    with covariance Σ = q(1 − q)·GᵀG + σ²·I,

with coins b_j of chance q and clipped gradients g_j. Draws of that law give the rank of any statistic of a step, which
may depend on all steps before. Ranks of different steps are independent and uniform, so that their normal scores add up
exactly (Stouffer 1949. Monte Carlo tests: Barnard 1963). There is no approximation: a sound study raises an alarm with
the stated probability. Among the records are many copies of one with a gradient that is much longer than the clip norm.
With a the sum of theirs, the statistics are

noise         rᵀ((Σ − ¾σ²I)⁻¹ − Σ⁻¹)r, the likelihood ratio of half the noise
clipping      rᵀΣ⁻¹a: far from zero where the copies are not clipped
batches       (rᵀΣ⁻¹a)²: too small where batches have one size, too large where they are drawn together
same batches  rᵀΣ⁻¹r − (r − m)ᵀV⁻¹(r − m), with m the mean of the rests before, and V with ¼ of the batches' covariance:
              the likelihood ratio of batches that resemble those before
same noise    the same, where V has ¼ of the noise's
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import special as _special_functions  # pyright: ignore[reportMissingTypeStubs]

Floats = NDArray[np.float64]
_special = cast(Any, _special_functions)
_DRAWS = 499


@dataclass(frozen=True)
class LawResult:
    """p-values of the tests by name, two-sided. steps: how many were tested.

    longest  length of the longest gradient before clipping, in clip norms. Up to 1 no gradient is clipped
    """

    p_values: dict[str, float]
    steps: int
    longest: float

    def alarms(self, chance: float) -> tuple[str, ...]:
        """Return the tests that a sound study fails all together with probability at most `chance`."""
        return tuple(name for name, value in self.p_values.items() if value < chance / len(self.p_values))


class LawTests:
    """Takes in one step after the other.

    Args:
        gradients: (records, coordinates) clipped, of all records that can be drawn but the copies.
        copied: (coordinates,) the clipped gradient of each copy.
        copies: how many there are, at least one.
        rate: the chance of each record to be drawn.
        noise: standard deviation of each coordinate's noise.
    """

    def __init__(self, gradients: Floats, copied: Floats, copies: int, *, rate: float, noise: float, seed: int) -> None:
        self._draw, self._rate, self._noise, self._copies = np.random.default_rng([seed, 17]), rate, noise, copies
        stacked = np.concatenate([gradients, copied[None] * copies**0.5])
        left_vectors, sizes, self._axes = np.linalg.svd(stacked, full_matrices=False)
        # (records, axes) and (axes,): what a record and a copy add to each axis of the gradients' space.
        self._each, self._copied = (left_vectors * sizes)[:-1], (left_vectors * sizes)[-1] / copies**0.5
        self._mean = rate * (self._each.sum(axis=0) + copies * self._copied)
        self._drawn = rate * (1 - rate) * sizes**2
        self._outside = len(copied) - len(self._copied)
        self._scores: dict[str, list[float]] = {}
        self.begin()

    def begin(self) -> None:
        """Begin a run: its steps are compared with none of a run before."""
        self._count, self._inside, self._beyond = 0, np.zeros(len(self._copied)), np.zeros(len(self._axes[0]))

    def take(self, total: Floats) -> None:
        """Test one step, of which (coordinates,) is the noised sum."""
        inside = self._axes @ total
        # Outside of the gradients' space there is nothing but noise.
        beyond, inside = total - self._axes.T @ inside, inside - self._mean
        draws, variance = self._drawn_steps(), self._noise**2
        spread = self._drawn + variance
        weights = 1 / (spread - 0.75 * variance) - 1 / spread
        outside = variance * self._chi_squared(self._outside)
        self._rank(
            "noise",
            float(weights @ inside**2) + 3 / variance * float(beyond @ beyond),
            draws**2 @ weights + 3 / variance * outside,
        )
        along = self._copied / spread
        self._rank("clipping", float(inside @ along), draws @ along)
        if self._rate < 1:
            self._rank("batches", float(inside @ along) ** 2, (draws @ along) ** 2)
        if self._count:
            growth = 1 + 1 / self._count
            if self._rate < 1:
                self._resemblance("same batches", inside, beyond, draws, self._drawn / 4, variance * growth)
            self._resemblance("same noise", inside, beyond, draws, self._drawn * growth, variance / 4)
        self._count, self._inside, self._beyond = self._count + 1, self._inside + inside, self._beyond + beyond

    def _resemblance(
        self, name: str, inside: Floats, beyond: Floats, draws: Floats, batch_variance: Floats, variance: float
    ) -> None:
        """Compare with the mean of the rests before.

        batch_variance, variance: those of a rest around it, if it resembles.
        """
        mean, mean_beyond = self._inside / self._count, self._beyond / self._count
        spread, near = self._drawn + self._noise**2, batch_variance + variance
        length = float(np.sqrt(mean_beyond @ mean_beyond))

        def ratio(rest: Floats, size: Floats, along: Floats) -> Floats:
            """Of (n, axes) rests. size: squared length beyond the axes. along: the part of it along the mean."""
            ratios: Floats = rest**2 @ (1 / spread) - (rest - mean) ** 2 @ (1 / near)
            return ratios + size / self._noise**2 - (size - 2 * length * along + length**2) / variance

        along, size = np.zeros(_DRAWS), np.zeros(_DRAWS)
        if self._outside > 0:
            along = self._noise * self._draw.normal(size=_DRAWS)
            size = along**2 + self._noise**2 * self._chi_squared(self._outside - 1)
        projection = np.array([beyond @ mean_beyond / length if length > 0 else 0.0])
        (value,) = ratio(inside[None], np.array([beyond @ beyond]), projection)
        self._rank(name, float(value), ratio(draws, size, along))

    def _chi_squared(self, degrees: int) -> Floats:
        return self._draw.chisquare(degrees, _DRAWS) if degrees > 0 else np.zeros(_DRAWS)

    def _drawn_steps(self) -> Floats:
        """Return (draws, axes) of rests under the certificate's law."""
        coins = (self._draw.random((_DRAWS, len(self._each))) < self._rate) - self._rate
        copies = self._draw.binomial(self._copies, self._rate, _DRAWS) - self._rate * self._copies
        noise = self._noise * self._draw.normal(size=(_DRAWS, len(self._copied)))
        steps: Floats = coins @ self._each + copies[:, None] * self._copied + noise
        return steps

    def _rank(self, name: str, value: float, draws: Floats) -> None:
        below, equal = int((draws < value).sum()), int((draws == value).sum())
        # Ties, such as zeros, are broken at random: the rank stays uniform.
        place = below + self._draw.integers(equal + 1) + self._draw.random()
        self._scores.setdefault(name, []).append(float(_special.ndtri(place / (_DRAWS + 1))))

    def result(self, longest: float) -> LawResult:
        """Return what the steps so far say."""
        values = {name: _two_sided(scores) for name, scores in self._scores.items()}
        return LawResult(values, len(self._scores.get("noise", ())), longest)


def _two_sided(scores: Sequence[float]) -> float:
    return 2 * float(_special.ndtr(-abs(sum(scores)) / len(scores) ** 0.5))
