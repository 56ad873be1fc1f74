"""Tests of the law of every noised step, with every record known: is the noise there, fresh, and are batches drawn?

Without the coins and the noise the auditor knows everything. Under the certificate's law the rest of a step's sum is
Σ (b_j − q)·g_j + noise, with coins b_j and clipped gradients g_j. Draws of that law at the same weights give the rank
of any statistic of the step, which may depend on all steps before. Ranks of different steps are independent and
uniform, whatever the model did, so that their normal scores add up exactly (Stouffer 1949; Monte Carlo tests: Barnard
1963). There is no approximation: a sound study raises one test's alarm with the stated probability.

size      |rest|². Too small: less noise than charged. Too large: records that are not clipped
drift     the rest along Σ g_j: more or fewer records take part than are drawn
batches   the rest along the records that stood out before: the same batch again
repeats   the rest along the rests before: the same noise again
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
TESTS = ("size", "drift", "batches", "repeats")
_DRAWS = 199


@dataclass(frozen=True)
class LawResult:
    """p-values of the tests by name, two-sided. steps: how many were tested."""

    p_values: dict[str, float]
    steps: int

    def alarms(self, chance: float) -> tuple[str, ...]:
        """Return the tests that a sound study fails all together with probability at most `chance`."""
        return tuple(name for name, value in self.p_values.items() if value < chance / len(self.p_values))


class LawTests:
    """Takes in one step after the other."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng([seed, 17])
        self._scores: dict[str, list[float]] = {name: [] for name in TESTS}
        self._rests: Floats | None = None
        self._standing: Floats | None = None

    def take(self, total: Floats, gradients: Floats, rate: float, noise: float) -> None:
        """One step.

        Args:
            total: (coordinates,) the noised sum.
            gradients: (records, coordinates) clipped, of all records that can be drawn, in one order for all steps.
        """
        rest = total - rate * gradients.sum(axis=0)
        coins = (self._draw.random((_DRAWS, len(gradients))) < rate) - rate
        draws = coins @ gradients + noise * self._draw.normal(size=(_DRAWS, len(rest)))
        directions = {"drift": gradients.sum(axis=0)}
        if self._rests is not None and self._standing is not None:
            directions |= {"repeats": self._rests, "batches": self._standing @ gradients}
        self._rank("size", float(rest @ rest), np.square(draws).sum(axis=1))
        for name, direction in directions.items():
            self._rank(name, float(rest @ direction), draws @ direction)
        along = gradients @ rest
        self._rests = rest if self._rests is None else self._rests + rest
        self._standing = along if self._standing is None else self._standing + along

    def _rank(self, name: str, value: float, draws: Floats) -> None:
        below, equal = int((draws < value).sum()), int((draws == value).sum())
        # Ties, such as zeros, are broken at random: the rank stays uniform.
        place = below + self._draw.integers(equal + 1) + self._draw.random()
        self._scores[name].append(float(_special.ndtri(place / (_DRAWS + 1))))

    def result(self) -> LawResult:
        """Return what the steps so far say."""
        return LawResult(
            {name: _two_sided(scores) for name, scores in self._scores.items() if scores},
            len(self._scores["size"]),
        )


def _two_sided(scores: Sequence[float]) -> float:
    return 2 * float(_special.ndtr(-abs(sum(scores)) / len(scores) ** 0.5))
