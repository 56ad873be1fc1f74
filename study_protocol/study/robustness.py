"""Bounds on the effect of one hospital on the model.

They cost no privacy, and no guarantee of privacy counts on them.
"""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from accounting.plan.schemes import Scheme
from study_protocol.wire.values import Message, Positive, Whole

# Bounds on what an honest hospital sends fail with probability e^-LOG_ODDS = 10⁻¹² each.
LOG_ODDS = math.log(1e12)
Aggregation = Literal["mean", "median", "trimmed-mean"]


class Robustness(Message):
    """Bounds on what one hospital sends, and how updates in the clear are brought together."""

    sum_radius: Positive | None = Field(
        default=None,
        description="L2 bound on a hospital's sum in one local step, before its noise. Left out: clip_norm × the "
        "largest expected batch. Smaller: one hospital does less, a large one counts less",
    )
    aggregation: Aggregation = Field(
        default="mean",
        description="of updates. median and trimmed-mean bear a malicious hospital, are noisier and need unmasked "
        "updates",
    )
    trim: Whole | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="required for trimmed-mean: how many values are left out at each end",
    )

    @model_validator(mode="after")
    def _trim_belongs_to_the_trimmed_mean(self) -> Self:
        if (self.trim is not None) != (self.aggregation == "trimmed-mean"):
            raise ValueError("trim and aggregation trimmed-mean come together")
        return self

    def require(self, scheme: Scheme, clip_norm: float, *, summed: bool, min_clients: int) -> None:
        """Raises ValueError where these settings make no sense for the scheme. Arguments are as of the two checks."""
        self._require_bound(scheme, clip_norm)
        self._require_updates(scheme, summed=summed, min_clients=min_clients)

    def _require_bound(self, scheme: Scheme, clip_norm: float) -> None:
        """Raises ValueError for a sum_radius that the scheme has no use for, or that one record alone may pass."""
        if self.sum_radius is None:
            return
        if scheme.clips_updates or scheme.bounds_clients_too:
            setting = "clip_norm" if scheme.clips_updates else "client_clip_norm"
            raise ValueError(
                f"robustness.sum_radius: in scheme {scheme.display_name} privacy.{setting} bounds what a client adds"
            )
        if self.sum_radius < clip_norm:
            raise ValueError(
                "robustness.sum_radius must be at least privacy.clip_norm: one record alone may reach that"
            )

    def _require_updates(self, scheme: Scheme, *, summed: bool, min_clients: int) -> None:
        """Raises ValueError unless the aggregation can be computed, and is no more than post-processing.

        Args:
            summed: whether updates are summed under masks.
            min_clients: updates that every round has.
        """
        if self.aggregation == "mean":
            return
        if summed:
            explanation = "of masked updates only the sum is visible, and with it only the mean"
            raise ValueError(f"robustness.aggregation {self.aggregation} needs updates in the clear: {explanation}")
        if scheme.clips_updates:
            # One hospital's update would move a median by more than the sum's sensitivity.
            central = f"the noise of scheme {scheme.display_name} is scaled to a sum"
            raise ValueError(f"robustness.aggregation {self.aggregation} needs updates noised by hospitals: {central}")
        # The median of two is their mean. A trimmed mean must keep at least one update.
        needed = 3 if self.trim is None else 2 * self.trim + 1
        if min_clients < needed:
            raise ValueError(
                f"robustness.aggregation {self.aggregation}: schedule.min_clients must be at least {needed}"
            )


def max_records(expected: float) -> int:
    """Return a size that a Poisson batch of `expected` expected records reaches with probability at most 10⁻¹².

    It is Bernstein's inequality for independent coins, with variance at most the mean (Boucheron, Lugosi & Massart
    2013, Theorem 2.10). P(X ≥ μ + t) ≤ exp(−t² / (2μ + 2t/3)) is solved for t.
    """
    third = LOG_ODDS / 3
    return math.ceil(expected + third + math.sqrt(third * third + 2 * expected * LOG_ODDS))
