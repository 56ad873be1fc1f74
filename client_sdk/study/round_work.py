"""What one round's training changes besides the model: the accounts of the records, and the place it has come to.

The accounts are read from the own ledger when a round begins, or from its checkpoint, and become durable together
with the finished update, in one commit of the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from client_sdk.errors import PolicyRefused
from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy import IndividualLimit
from client_sdk.protocol.randomness.source import Purpose
from client_sdk.protocol.study.messages import AssignmentBody
from client_sdk.training import Checkpoints, LocalTraining

_FILE = "checkpoint"


@dataclass(frozen=True)
class RoundWork:
    """The accounts that every noised step is charged to, and the round's checkpoints."""

    log_moments: LogMomentBounds | None
    individual: IndividualBudget | None
    checkpoints: Checkpoints

    @classmethod
    def begin(
        cls,
        ledger: HospitalLedger,
        training: LocalTraining,
        limit: IndividualLimit | None,
        folder: Path,
        assignment: AssignmentBody,
    ) -> Self:
        """As after the last finished round, or where this round was interrupted.

        Raises:
            Refused: records were added since a study with a Bayesian limit began, or patients' own limits cannot be
                kept in it.
            ConfigurationError: the patients' own limit cannot be kept any more, or is not the one they began under.
            LedgerDamaged: the accounts on this disk are not what was written.
        """
        study, settings = assignment.study, training.settings
        sums, own = ledger.sums(study), ledger.individual()
        checkpoints = Checkpoints.open(
            folder / _FILE,
            *(study, str(assignment.round), assignment.model.sha256, settings.digest(), sums, own, repr(limit)),
            # Whoever withdrew since is not gone on with.
            *training.dataset.patients,
            every_seconds=training.checkpoint_seconds,
        )
        start = checkpoints.start
        return cls(
            _log_moments(ledger, training, study, sums if start is None else start.log_moments),
            _individual(ledger, training, limit, own if start is None else start.individual),
            checkpoints,
        )


def _log_moments(
    ledger: HospitalLedger, training: LocalTraining, study: str, saved: bytes | None
) -> LogMomentBounds | None:
    settings, patients = training.settings, training.dataset.patients
    if not settings.privacy.estimates_records:
        return None
    if saved is not None:
        return LogMomentBounds.restore(settings, patients, saved)
    log_moments = LogMomentBounds(settings, patients, training.randomness_in(0).of(Purpose.ACCOUNTING_SAMPLE))
    log_moments.charge_lost_rounds(ledger.rounds_lost(study))
    return log_moments


def _individual(
    ledger: HospitalLedger, training: LocalTraining, limit: IndividualLimit | None, saved: bytes | None
) -> IndividualBudget | None:
    if limit is None:
        return None
    privacy = training.settings.privacy
    if privacy.histogram_noise is not None and not privacy.rules.central:
        raise PolicyRefused("individual-limit", "patients' own limits cannot leave anybody out of a noised histogram")
    entries = ledger.next_sequence - 1
    patients = training.dataset.patients
    return IndividualBudget.open(limit, saved, patients, entries=entries, sent_since=ledger.sent_since)
