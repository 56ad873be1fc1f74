"""Who of a data set is trained on and who is evaluated: a coin of each patient's own, for ever the same."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from private_learning.records.identity import patient_identity

_LABEL = b"wardround/1/split"
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Split:
    """Every patient is on exactly one side, by its identifier and the hospital's secret alone.

    One patient more or less moves nobody else; so the two sides are two data sets of which a neighbour changes one.
    With a larger share whoever was set aside stays so. The secret never leaves the hospital: whoever knew it could tell
    a patient's side from the identifier.

    secret  32 random bytes, made once for a data set
    share   expected share of patients who are set aside
    """

    secret: bytes = field(repr=False)
    share: float

    @classmethod
    def draw(cls, share: float) -> Self:
        """With a new secret."""
        return cls(secrets.token_bytes(_SECRET_BYTES), share)

    def set_aside(self, patients: Iterable[str]) -> NDArray[np.bool_]:
        """(n,) whether each of these identifiers is evaluated; the others are trained on."""
        below = int(self.share * 2**64)
        return np.array([self._coin(patient_identity(patient)) < below for patient in patients], np.bool_)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of secret and share: what the ledger's entries hold it by."""
        return hashlib.sha256(_LABEL + self.secret + self.share.hex().encode()).hexdigest()

    def _coin(self, patient: str) -> int:
        """Uniform on 0 … 2⁶⁴ − 1."""
        return int.from_bytes(hmac.digest(self.secret, _LABEL + patient.encode(), "sha256")[:8], "big")
