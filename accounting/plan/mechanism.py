"""One noised step as one level sees it, and the histograms that a study publishes of its costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.errors import InvalidArgument
from accounting.units import Relation, check_array, check_count, check_positive


@dataclass(frozen=True)
class Mechanism:
    """One noised step as one level sees it.

    clip_norm      L2 norm of what one neighbour can change
    noise_std      standard deviation of the noise that is sure to be there, on the same scale
    sampling_rate  Poisson rate that is credited
    """

    clip_norm: float
    noise_std: float
    sampling_rate: float
    steps_per_round: int
    relation: Relation

    @property
    def noise_multiplier(self) -> float:
        """noise_std / clip_norm, rounded down."""
        return math.nextafter(self.noise_std / self.clip_norm, 0.0)


@dataclass(frozen=True)
class HistogramRelease:
    """Disclosure `noised`: every round whose number is a multiple of `every` publishes a histogram.

    std  standard deviation of the discrete Gaussian noise that is sure to be on each of its counts
    """

    std: float
    every: int

    def __post_init__(self) -> None:
        check_positive("std", self.std)
        check_count("every", self.every)

    def due(self, round: int) -> bool:
        """Whether round number `round` publishes one."""
        return round % self.every == 0


def total_noise(noise_stds: Sequence[float]) -> float:
    """√Σ s_j², rounded down: the noise of independent shares."""
    shares = check_array("noise_stds", noise_stds)
    if bool((shares <= 0).any()):
        raise InvalidArgument("noise_stds", "every share must be > 0")
    return math.sqrt(math.fsum(float(share) ** 2 for share in shares)) * (1 - 1e-15)
