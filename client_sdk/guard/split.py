"""The split of a data set's patients between training and evaluation: one coin for each patient, for ever the same."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells.identity import patient_identity

_LABEL = b"wardround/1/split"
_SECRET_BYTES = 32


@dataclass(frozen=True)
class PatientSplit:
    """Every patient is on exactly one side, by its identifier and the hospital's secret alone.

    One patient more or less moves no other one. So the two sides are two data sets of which a neighbour changes one.
    With a larger share the patients who were set aside stay so. The secret never leaves the hospital: with it a
    patient's side could be told from the identifier.

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
        """Return (n,) booleans: whether each of these identifiers is evaluated. The others are trained on."""
        below = int(self.share * 2**64)
        return np.array([self._coin(patient_identity(patient)) < below for patient in patients], np.bool_)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of secret and share: what the ledger's entries hold it by."""
        return hashlib.sha256(_LABEL + self.secret + self.share.hex().encode()).hexdigest()

    def _coin(self, patient: str) -> int:
        """Uniform on 0 … 2⁶⁴ − 1."""
        return int.from_bytes(hmac.digest(self.secret, _LABEL + patient.encode(), "sha256")[:8], "big")
