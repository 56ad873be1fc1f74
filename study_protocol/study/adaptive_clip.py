"""An adaptive clip norm: it follows a quantile of the gradients' norms (Andrew, Thakkar, McMahan & Ramaswamy 2021).

Beside its clipped gradient every drawn patient adds one bit: +1/2 if the gradient is no longer than the clip norm, and
-1/2 if it is. A patient who is not drawn adds nothing. The sum of the bits is one more number of the vector that a
hospital noises and sends ("Differentially Private Learning with Adaptive Clipping", Algorithm 1). The noised sum moves
the norm of the next round.

Gradient and bit of a patient belong to one sampled step. With clip norm C and a bit that weighs h, one patient moves
the vector by at most J = sqrt(C² + h²). Noise of noise_multiplier · J on all of it is the mechanism that the settings
state: its dominating pair does not depend on C. So a norm that follows from earlier releases changes no account.
On gradients that is J / C times the noise without bits, which is the paper's σ_g with 1/σ_g² = 1/σ² - 1/(2 σ_b)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import Field

from study_protocol.study.clip_norm import MIN_CLIP_NORM, ClipNorm
from study_protocol.study.robustness import max_records
from study_protocol.wire.values import Message, Probability, Rate

CLIP_BITS = "clip-bits"
"""The name of the sum of the bits beside the parameters of the model."""
MAX_EXTRA_NOISE = 1.02
"""The most by which the bits may raise the noise of the gradients."""
MIN_ROUND_BATCH = 50.75
"""In noise multipliers: from this expected_batch_size × √expected_clients on the bits raise it by no more."""
# The paper's choice: the deviation of the noise on the sum of bits is this part of the expected batch of a round.
_BIT_NOISE = 1 / 20
# The norm stays within this factor of the first one unless the settings say otherwise.
_DEFAULT_RANGE = 100.0
# Normal numbers of float32, with room for a sum of 2³² of them.
_LEAST_HALF, _LARGEST_HALF = 2.0**-126, 2.0**95
# Two machines may round an exponential differently in its last digits.
_TOLERANCE = 1 + 1e-9


class AdaptiveClip(Message):
    """A clip norm that moves after every round towards a quantile of the gradients' norms."""

    quantile: Probability = Field(
        description="share of patients whose gradient is not cut off, the aim: 0.2 to 0.5. Below 0.5, smaller rounds "
        "lower the norm further"
    )
    rate: Rate = Field(description="a round multiplies the norm by at most e^rate. 0.2 is usual")
    min: ClipNorm | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="no norm is smaller. Left out: clip_norm / 100",
    )
    max: ClipNorm | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="no norm is larger. Left out: 100 × clip_norm",
    )

    def bounds(self, first: float) -> tuple[float, float]:
        """Return the smallest and the largest norm of a study whose first norm is `first`."""
        smallest = max(MIN_CLIP_NORM, first / _DEFAULT_RANGE) if self.min is None else self.min
        return smallest, first * _DEFAULT_RANGE if self.max is None else self.max

    def require(self, first: float) -> None:
        """Raises ValueError: the first norm does not lie within the bounds."""
        smallest, largest = self.bounds(first)
        of_first = f"clip_norm {first:g}, the norm of the first round"
        if first < smallest:
            raise ValueError(f"adaptive_clip.min {smallest:g} must be at most {of_first}")
        if first > largest:
            raise ValueError(f"adaptive_clip.max {largest:g} must be at least {of_first}")

    def next_norm(self, norm: float, share: float, first: float) -> float:
        """Return the norm of the rounds after a release: norm · exp(-rate · (share - quantile)), within the bounds.

        It depends on noised values alone, so it is post-processing and costs no privacy.

        Args:
            norm: of the round that was released.
            share: noised share of its gradients that were no longer than the norm. It counts as 0 to 1.
            first: `clip_norm` of the settings.
        """
        smallest, largest = self.bounds(first)
        moved = norm * math.exp(-self.rate * (min(max(share, 0.0), 1.0) - self.quantile))
        return min(max(moved, smallest), largest)

    @property
    def max_factor(self) -> float:
        """The most by which the norm grows or shrinks from one release to the next."""
        return math.exp(self.rate * max(self.quantile, 1 - self.quantile))

    def fault(self, norm: float | None, before: float | None, first: float) -> str | None:
        """Return why a released model cannot have this norm, or None.

        Every hospital checks each norm so. The size of the norm has no effect on privacy, as noise is drawn in units of
        it: the check keeps a coordinator from spoiling the study. That all hospitals of a masked sum have the same norm
        does matter, where they share the noise: it is in the ledger, whose head a session's parameters name.

        Args:
            norm: of the rounds that start from the model.
            before: of those that started from the model before. None: it is the initial model.
        """
        smallest, largest = self.bounds(first)
        if norm is None:
            return "it names no clip norm, and the study's is adaptive"
        if before is None:
            return None if norm == first else f"the study begins with clip norm {first:g}, not {norm:g}"
        if not smallest <= norm <= largest:
            return f"clip norm {norm:g} is not between {smallest:g} and {largest:g}"
        if not (before <= norm * self.max_factor * _TOLERANCE and norm <= before * self.max_factor * _TOLERANCE):
            return f"clip norm {norm:g} is more than a factor of {self.max_factor:.4g} from {before:g} before it"
        return None


@dataclass(frozen=True)
class ClipBits:
    """The bits of one hospital in one step, on the scale of the sum of its clipped gradients.

    half        what one patient adds: +half, or -half
    joint_norm  L2 norm of the most that one patient changes, gradient and bit together, rounded up
    max_sum     the sum of the bits is cut off here: an expected batch reaches it with probability at most 10⁻¹²
    """

    half: float
    joint_norm: float
    max_sum: float

    @classmethod
    def of(
        cls, clip_norm: float, *, noise_multiplier: float, expected_batch_size: float, expected_clients: float
    ) -> Self:
        """Return the bits of a round with this clip norm.

        Their weight is such that the noise on the bits of all expected hospitals together has a deviation of 1/20 of
        the expected batch of the round, in bits of ±1/2.
        """
        ratio = _weight(noise_multiplier, expected_batch_size, expected_clients)
        # Of float32's digits: the sum of 2²⁹ bits is exact in float64. Any weight is covered by the norm below.
        half = float(np.float32(clip_norm * ratio))
        joint_norm = math.hypot(clip_norm, half) * (1 + 2.0**-50)
        return cls(half, joint_norm, half * max_records(expected_batch_size))

    def total(self, below: int, records: int) -> float:
        """Return the sum of the bits of a batch, cut off at ±max_sum: one patient moves it by at most `half`.

        Args:
            below: how many gradients are no longer than the clip norm.
            records: how many were drawn.
        """
        return min(max(self.half * (2 * below - records), -self.max_sum), self.max_sum)

    def share(self, total: float, expected_clients: float) -> float:
        """Return the noised share of gradients that are no longer than the norm.

        Args:
            total: noised sum over the hospitals, each divided by the expected batch size.
            expected_clients: of the settings, by which a sum of updates is divided.
        """
        return 0.5 + total / (2 * self.half * expected_clients)


def extra_noise(noise_multiplier: float, expected_batch_size: float, expected_clients: float) -> float:
    """Return the factor by which the bits raise the noise of the gradients. Infinite: no noise is enough."""
    return math.hypot(1.0, _weight(noise_multiplier, expected_batch_size, expected_clients))


def fits_float32(norm: float, noise_multiplier: float, expected_batch_size: float, expected_clients: float) -> bool:
    """Return whether a bit beside gradients of this norm, and a sum of 2³² such bits, are normal numbers of float32."""
    half = norm * _weight(noise_multiplier, expected_batch_size, expected_clients)
    return half >= _LEAST_HALF and max(half, norm) <= _LARGEST_HALF


def _weight(noise_multiplier: float, expected_batch_size: float, expected_clients: float) -> float:
    """Return half / clip_norm.

    One hospital's noise on a sum of bits of ±1/2 has the deviation s = B √n / 20, so that of n hospitals has n B / 20.
    On the scale of gradients a bit adds half, and the noise is noise_multiplier · joint_norm: solved for half.
    """
    deviation = expected_batch_size * math.sqrt(expected_clients) * _BIT_NOISE
    # By products, not powers, which would raise an error where they are infinite.
    square = 4 * deviation * deviation - noise_multiplier * noise_multiplier
    return noise_multiplier / math.sqrt(square) if square > 0 else math.inf
