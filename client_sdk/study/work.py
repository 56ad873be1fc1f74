"""The work of a hospital in a round: train, or answer a query. Both pay first, and both leave finished bytes behind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from accounting.plan.plan import Plan
from client_sdk.errors import BadAssignment, OwnBudgetExceeded, Refused
from client_sdk.guard.charges import Charge
from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.study_count import require_within_study
from client_sdk.outbox import Outbox
from client_sdk.study.delivery import Delivery, reported
from client_sdk.study.models import StudyModels
from private_learning.training import LocalTraining
from study_protocol.randomness.source import Purpose
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.study.messages import AssignmentBody
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.failpoints import failpoint, register

register(
    "hospital.before-charge",
    "hospital.after-charge",
    "hospital.after-training",
    "hospital.after-bytes",
    "hospital.after-settle",
)


class Make(Protocol):
    """Pays for a round unless it is paid for, computes, and leaves the finished bytes in the outbox."""

    def __call__(self, vectors: Sequence[VectorSpec], *, paid: bool) -> None: ...


class Work(Protocol):
    """One kind of round."""

    def subjects(self, assignment: AssignmentBody) -> tuple[str, ...]:
        """SHA-256 of what the round is about: a charged round is never about anything else. The first is what a charge
        names now, others what earlier versions did.

        Raises:
            BadAssignment: the assignment names none.
        """
        ...

    def open(self, assignment: AssignmentBody) -> Make:
        """Return what the round is charged to, as after the last finished one.

        Raises:
            Refused: this hospital, its budget or the study's own limits say no.
        """
        ...


@dataclass(frozen=True)
class RoundCharges:
    """The place where a round is paid for and its results are kept.

    after_charge  called once a charge is durable, before anything is computed for it. An exception ends the work
    """

    study: str
    ledger: HospitalLedger
    policy: SitePolicy
    outbox: Outbox
    after_charge: Callable[[], None] = field(default=lambda: None, repr=False)

    def pay(
        self,
        round_number: int,
        price: Charge,
        subject: str,
        approval: str | None = None,
        attempt: int | None = None,
    ) -> None:
        """Raises OwnBudgetExceeded: a limit of this hospital would be passed."""
        failpoint("hospital.before-charge")
        limits = self.ledger.own_limits(self.policy)
        self.ledger.charge(self.study, round_number, price, limits, subject, approval, attempt)
        failpoint("hospital.after-charge")
        self.after_charge()

    def finish(
        self,
        round_number: int,
        body: bytes,
        *,
        sums: bytes | None = None,
        individual: bytes | None = None,
        report: dict[str, Any] | None = None,
    ) -> None:
        """Keep the bytes, then their digest and all of their cost in one commit. A crash before the commit leaves no
        bytes to send.
        """
        self.outbox.put(round_number, body)
        failpoint("hospital.after-bytes")
        digest = hashlib.sha256(body).hexdigest()
        self.ledger.finish_update(
            self.study, round_number, sha256=digest, size=len(body), sums=sums, individual=individual, reported=report
        )
        failpoint("hospital.after-settle")

    def individual(self, patients: Sequence[str]) -> IndividualBudget | None:
        """The patients' own sums, where the policy keeps a limit for each."""
        limit, ledger = self.policy.individual, self.ledger
        if limit is None:
            return None
        entries = ledger.next_sequence - 1
        return IndividualBudget.open(
            limit, ledger.individual(), patients, entries=entries, sent_since=ledger.sent_since
        )


@dataclass(frozen=True, repr=False)
class _Accounts:
    """The accounts that the noised steps of a round are charged to beside the local ledger. saved: as it lies there."""

    log_moments: LogMomentBounds | None
    individual: IndividualBudget | None
    saved: tuple[bytes | None, bytes | None]


class TrainingWork:
    """Local steps on this hospital's records."""

    def __init__(
        self, party: str, books: RoundCharges, training: LocalTraining, models: StudyModels, delivery: Delivery
    ) -> None:
        self._party, self._books, self._training = party, books, training
        self._models, self._delivery = models, delivery

    def subjects(self, assignment: AssignmentBody) -> tuple[str, ...]:
        if assignment.model is None or assignment.query is not None:
            raise BadAssignment("the assignment of a round of training names no model")
        return (assignment.model.sha256,)

    def open(self, assignment: AssignmentBody) -> Make:
        """Raises also ConfigurationError (the patients' own limit cannot be kept any more, or is not the one they began
        under), LedgerDamaged (the accounts on this disk are not what was written).
        """
        books, settings, patients = self._books, self._training.settings, self._training.dataset.patients
        ledger, study, round = books.ledger, books.study, assignment.round
        if ledger.evaluations(study, "monitored"):
            raise Refused("monitoring-begun", "this hospital has answered about later patients: no training follows")
        sums, individual_state = ledger.sums(study), ledger.individual()
        source = self._training.randomness.of(Purpose.ACCOUNTING_SAMPLE, party=self._party, round_number=0)
        log_moments = LogMomentBounds.open(
            settings, patients, sums, rounds_lost=ledger.rounds_lost(study), source=source
        )
        charged = ledger.rounds_trained(study) | {round}
        _require_next(plan_of(settings), ledger.attempts(study, except_round=round), assignment.attempt)
        price = Charge.of(settings, attempt=assignment.attempt)
        require_within_study(plan_of(settings), ledger.sent(study), price, charged)
        accounts = _Accounts(log_moments, books.individual(patients), (sums, individual_state))
        return partial(self._make, assignment, accounts)

    def _make(
        self, assignment: AssignmentBody, accounts: _Accounts, vectors: Sequence[VectorSpec], *, paid: bool
    ) -> None:
        round, books = assignment.round, self._books
        log_moments, individual, model = accounts.log_moments, accounts.individual, assignment.model
        if model is None:
            raise BadAssignment("the assignment of a round of training names no model")
        # Everything that can still say no comes before the charge.
        weights, previous = self._models.assigned(model), self._models.before(model)
        if self._training.settings.monitoring is not None:
            # Before the charge: a round that is paid for has its patients written down.
            books.ledger.keep_trained(books.study, self._training.dataset.patients)
        if not paid:
            price = Charge.of(self._training.settings, [round], assignment.attempt)
            books.pay(round, price, model.sha256, attempt=assignment.attempt)
        # From where a round of several steps was interrupted.
        belonging = (books.study, str(round), model.sha256, self._training.settings.digest(), *accounts.saved)
        checkpoints = self._training.checkpoints(books.outbox.checkpoint, *belonging, repr(books.policy.individual))
        contribution = self._training.contribution(
            weights,
            log_moments,
            round_number=round,
            total_records=self._delivery.total_records(),
            individual=individual,
            checkpoints=checkpoints,
            previous=previous,
            clip_norm=model.clip_norm,
            attempt=assignment.attempt,
        )
        body = self._delivery.body(round, vectors, contribution, log_moments)
        failpoint("hospital.after-training")
        # Counted with the entry that this commit adds.
        filter_state = None if individual is None else individual.to_bytes(entries=books.ledger.next_sequence)
        sums = None if log_moments is None else log_moments.to_bytes()
        books.finish(round, body, sums=sums, individual=filter_state, report=reported(contribution, log_moments))
        if checkpoints is not None:
            checkpoints.erase()


def _require_next(plan: Plan, used: set[int], attempt: int | None) -> None:
    """Require a place of the noise schedule that lies in it and after all that this hospital has used.

    Raises:
        OwnBudgetExceeded: the schedule has no such place.
        Refused: it was used before, or others after it were.
    """
    if attempt is None:
        return
    if attempt > plan.rounds:
        raise OwnBudgetExceeded("max-steps-exceeded", "the round lies past the end of the study's noise schedule")
    if attempt <= max(used, default=0):
        raise Refused(
            "attempt-used",
            f"the round has place {attempt} of the study's noise schedule, and this hospital has used place "
            f"{max(used)} already: each place is used once, in order",
        )
