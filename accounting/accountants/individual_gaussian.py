"""The individual filter for Gaussian steps: each record keeps Σ d²/s² ≤ μ², in closed form and without an order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.conversion import Values
from accounting.mechanisms.gaussian_squares import largest_squares, release_slack, squares
from accounting.mechanisms.unsampled import Steps, unsampled_delta
from accounting.units import Level, Observer
from accounting.values import FloatArray, check_array, check_count, check_delta, check_positive, check_word


@dataclass(frozen=True, kw_only=True)
class GaussianFilterSpec:
    """The (limit_epsilon, delta) that no record passes, kept by Gaussian differential privacy. Raises InvalidArgument.

    The record's own steps are μ-Gaussian-differentially private while Σ d²/s² ≤ μ² on every path (Koskela, Tobaben &
    Honkela 2023). There is no credit for sampling. A step counts at rate 1 for the records that are in it,
    and costs the others 0.

    releases  most noised sums: what discrete noise and its sampler may add over them comes off delta before it is
              read, and no record takes part in more. 0: the noise is taken to be exact

    >>> round(GaussianFilterSpec(delta=1e-5, limit_epsilon=2.0).bound * 20.0**2, 2)
    100.62
    """

    rule: ClassVar[str] = "gaussian"
    delta: float
    limit_epsilon: float
    level: Level = Level.INSTANCE
    observer: Observer = Observer.RELEASES
    releases: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_word("level", Level, self.level))
        object.__setattr__(self, "observer", check_word("observer", Observer, self.observer))
        check_positive("limit_epsilon", self.limit_epsilon)
        check_count("releases", self.releases, minimum=0)
        if self._spendable_delta <= 0:
            raise InvalidArgument(
                "limit_epsilon", "is too large for this rule: discrete noise may add more than delta to it"
            )

    @property
    def bound(self) -> float:
        """μ²: the largest Σ d²/s² of a record, rounded down."""
        return largest_squares(self.limit_epsilon, self._spendable_delta)

    @property
    def takes_noise_as_exact(self) -> bool:
        """False: the error of the noise is always taken off delta."""
        return False

    def costs(self, distances: Values, *, noise_std: float, sampling_rate: float) -> FloatArray:
        """Return d²/s² of each distance, rounded up.

        Raises:
            InvalidArgument: sampling_rate is not 1, or a number is out of its range.
        """
        if sampling_rate != 1:
            raise InvalidArgument("sampling_rate", "must be 1: this rule gives no credit for sampling")
        # On the largest distance of all: the factors of rounding are the same for every one.
        norms = check_array("distances", np.atleast_1d(np.asarray(distances)))
        once = squares(1.0, noise_std)
        # A record without a signal pays nothing under any noise, also where 1/s² is no float.
        with np.errstate(invalid="ignore"):
            return np.where(norms > 0, np.nextafter(norms * norms * once * (1 + 2.0**-50), np.inf), 0.0)

    def delta_at(self, epsilon: float) -> float:
        """Return δ at another ε of the same filter."""
        whole = Steps(math.nextafter(1 / math.sqrt(self.bound), 0.0), 1.0, 1)
        return min(1.0, unsampled_delta([whole], epsilon) + release_slack(epsilon, self.releases))

    @property
    def reading(self) -> dict[str, Any]:
        """Return the fields of a Guarantee that say how ε was read."""
        return {"composition": "gaussian-filter", "resolution": "closed form, rounded up"}

    @property
    def _spendable_delta(self) -> float:
        return math.nextafter(check_delta(self.delta) - release_slack(self.limit_epsilon, self.releases), 0.0)
