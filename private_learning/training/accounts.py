"""Accounts that local training charges at every step. The hospital's agent implements them (`client_sdk.guard`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from study_protocol.randomness.source import RandomSource
from study_protocol.study.privacy import Privacy

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class StepAccount(Protocol):
    """An account that a checkpoint of a round saves and resumes."""

    def to_bytes(self) -> bytes:
        """Return everything that must survive a restart."""
        ...

    def resume(self, saved: bytes) -> None:
        """Continue from what `to_bytes` returned earlier in the same study, for the same patients."""
        ...


class SampleAccount(StepAccount, Protocol):
    """Running sums of the accounting sample, for a Bayesian limit at instance level."""

    @property
    def rows(self) -> Rows:
        """Rows of the training data whose norms `measure` takes, in this order."""
        ...

    @property
    def trained(self) -> Rows:
        """Rows of the training data that may be trained on."""
        ...

    def measure(self, norms: Floats, *, rounding: float, total_records: float | None = None) -> None:
        """Charge one noised step.

        Args:
            norms: (rows,) gradient norms before clipping, of `rows` in their order. Infinity and NaN count as the
                clip norm.
            rounding: L2 norm that rounding to the noise's grid can add to one contribution.
            total_records: records of all hospitals together, where the study knows the number.
        """
        ...

    def publish(self, round_number: int, source: RandomSource) -> None:
        """Read the sums through noise from `source` if `round_number` is a declared checkpoint."""
        ...


class PatientAccount(StepAccount, Protocol):
    """One sum for each patient, with a limit that decides who takes part in a step."""

    @property
    def needs_every_norm(self) -> bool:
        """Whether each step measures the records that were not drawn as well."""
        ...

    @property
    def charges_only_drawn(self) -> bool:
        """Whether `charge` gets the records that are in the step and no others."""
        ...

    def admitted(self, rows: Rows, privacy: Privacy) -> Rows:
        """Return those rows whose patients have room for one more step."""
        ...

    def charge(self, rows: Rows, norms: Floats, privacy: Privacy, *, rounding: float) -> None:
        """Charge one noised step to all patients.

        Args:
            rows: rows whose gradient norms were computed.
            norms: their norms before clipping, in the same order.
            privacy: settings of the step.
            rounding: L2 norm that rounding to the noise's grid can add to one contribution.
        """
        ...
