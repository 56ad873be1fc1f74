"""Whose records are measured, and what their norms count.

All of a hospital's records, or a fixed accounting sample drawn once and remembered by digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from client_sdk.errors import ConfigurationError, Refused
from client_sdk.protocol.randomness.source import RandomSource
from client_sdk.protocol.study.settings import AccountingSample

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# Per-record norms are sums in float32; this covers their rounding, as the clip factors do.
_NORM_SLACK = 1 + 2.0**-14


@dataclass(frozen=True)
class SampleRows:
    """The accounting sample among today's records.

    rows     of the training data that are measured;  places  of each of them in the accounting sample
    trained  rows that are trained on: all, but those held out
    """

    rows: Rows
    slots: Rows
    trained: Rows


@dataclass(frozen=True)
class SampledRecords:
    """Fixed before the first round. A place whose record is gone, or never was, counts at the clip norm.

    digests  of the records drawn, in the order of their places
    setting  the study's; None: every record of the first round, none may join later
    """

    digests: tuple[str, ...]
    setting: AccountingSample | None

    @classmethod
    def draw(cls, setting: AccountingSample | None, patients: Sequence[str], source: RandomSource) -> SampledRecords:
        """A uniform draw without repetition; of fewer patients than places, all.

        Raises:
            ConfigurationError: the held-out sample would leave nothing to train on. Stays in this building.
        """
        digests = [_digest(patient) for patient in patients]
        if setting is None:
            return cls(tuple(digests), None)
        if setting.source == "held-out" and len(digests) <= setting.records:
            raise ConfigurationError(
                f"accounting sample: {setting.records} records are held out of training and this data set has "
                f"{len(digests)}: do not take part in this study"
            )
        # 128 random bits each: two alike among a billion are less likely than 2^-68.
        order = np.lexsort((source.words(len(digests), np.uint64), source.words(len(digests), np.uint64)))
        return cls(tuple(digests[int(row)] for row in order[: setting.records]), setting)

    @property
    def size(self) -> int:
        """How many places; public where the study sets it."""
        return len(self.digests) if self.setting is None else self.setting.records

    def rows_of(self, patients: Sequence[str]) -> SampleRows:
        """Where the accounting sample's records are among these.

        Raises:
            Refused: `records-added` where every record is measured, because the past of a new one would be unknown.
        """
        slot = {digest: i for i, digest in enumerate(self.digests)}
        found = [slot.get(_digest(patient), -1) for patient in patients]
        slots = np.array(found, dtype=np.int64)
        rows = np.flatnonzero(slots >= 0).astype(np.int64)
        if self.setting is None and rows.size < slots.size:
            raise Refused(
                "records-added",
                "records were added since the first round: leave them out, or take them into a new study",
            )
        held_out = self.setting is not None and self.setting.source == "held-out"
        trained = np.flatnonzero(slots < 0) if held_out else np.arange(slots.size)
        return SampleRows(rows, slots[rows], trained.astype(np.int64))


def accounted(norms: Floats, *, clip_norm: float, rounding: float) -> Floats:
    """The distances that are accounted, from gradient norms: never below what a record moved the noised sum.

    For noise of noise_multiplier · clip_norm; rounded up, at most clip_norm.

    norms     before clipping, finite; clipped together or layer by layer, a record adds at most min(norm, clip_norm)
    rounding  L2 norm that rounding to the noise's grid can add to a contribution; the noise covers clip_norm + rounding
    """
    contribution = np.minimum(norms * _NORM_SLACK, clip_norm) + rounding
    # Scaling both back to the clip norm keeps their ratio, and the top stays it.
    scaled = np.nextafter(contribution * (clip_norm / (clip_norm + rounding)), np.inf)
    return np.minimum(scaled, clip_norm)


def _digest(patient: str) -> str:
    return hashlib.sha256(b"wardround/1/patient" + patient.encode()).hexdigest()
