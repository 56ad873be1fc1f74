"""Whom a study has trained on: keyed digests of patients, kept beside the hospital's own ledger.

They are of the patients' identifiers alone. So a patient whose dates are corrected later is not asked about, too.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from client_sdk.guard.decision_marks import DecisionMarks
from study_protocol.cells.identity import patient_identity

_KEY, _TRAINED = "/trained-key", "/trained/"
_LABEL = b"wardround/1/trained"
_BYTES = 16
_STORE = "INSERT OR REPLACE INTO running_sums VALUES (?, ?)"


class TrainedPatients(DecisionMarks):
    """The patients whom each study has trained on here."""

    def keep_trained(self, study: str, patients: Iterable[str]) -> None:
        """Keep who is trained on, beside those of earlier rounds. Durable on return."""
        key, before = self._stored(_KEY) or secrets.token_bytes(32), self._trained(study)
        digests = before | {_digest(key, patient) for patient in patients}
        if digests == before:
            return
        with self._writing():
            self._connection.execute(_STORE, (_KEY, key))
            self._connection.execute(_STORE, (_TRAINED + study, b"".join(sorted(digests))))

    def knows_trained(self, study: str) -> bool:
        """Return whether it was ever written down whom the study trains on."""
        return self._stored(_TRAINED + study) is not None

    def are_trained(self, study: str, patients: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether the study has trained on each of these patients here, shape (n,)."""
        key, trained = self._stored(_KEY) or b"", self._trained(study)
        return np.array([_digest(key, patient) in trained for patient in patients], np.bool_)

    def _trained(self, study: str) -> set[bytes]:
        data = self._stored(_TRAINED + study) or b""
        return {data[at : at + _BYTES] for at in range(0, len(data), _BYTES)}

    def _stored(self, name: str) -> bytes | None:
        row = self._connection.execute("SELECT data FROM running_sums WHERE study = ?", (name,)).fetchone()
        return None if row is None else row[0]


def _digest(key: bytes, patient: str) -> bytes:
    identity = patient_identity(patient).encode("utf-8", "surrogatepass")
    return hmac.digest(key, _LABEL + identity, "sha256")[:_BYTES]
