"""The run loop of one hospital in one study.

A round, in this order: believe the assignment, ask the site policy, pay from the own ledger, train, sync the finished
bytes, send. Killed anywhere and started again, the same round gets the same bytes or was never sent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from client_sdk.api.client import Client
from client_sdk.errors import (
    ApiError,
    BadAssignment,
    ConflictError,
    LedgerNotExtended,
    LostLedger,
    NotFoundError,
    NotTrusted,
    Refused,
    RosterNotPinned,
    TrainingStopped,
    UpdateDisputed,
)
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.own_budget import Charge, histograms_in, require_within_study
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.study.messages import AssignmentBody, BudgetStatement, Refusal
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.failpoints import failpoint, register
from client_sdk.protocol.wire.tensors import UPDATE, Array, TensorError, decode, encode, encoded_size_limit
from client_sdk.secure_sum.round import MaskedRound, SessionEnded
from client_sdk.secure_sum.study import MaskedStudy
from client_sdk.study.events import OnRound, round_event
from client_sdk.study.outbox import Outbox
from client_sdk.study.round_work import RoundWork
from client_sdk.study.verifier import CoordinatorVerifier
from client_sdk.training import Contribution, LocalTraining
from client_sdk.training.weights import spec_of_model

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 25.0
_PAUSE_SECONDS = 2.0
_REASON_ATTEMPTS = 5

register(
    "hospital.before-charge",
    "hospital.after-charge",
    "hospital.after-training",
    "hospital.after-bytes",
    "hospital.after-settle",
    "hospital.after-send",
    "hospital.after-answer",
    "hospital.before-refusal",
    "hospital.after-refusal",
)


@dataclass(frozen=True)
class Outcome:
    """How a participation ended. `statement`: the coordinator's last budget, whose ledger was followed to its head."""

    study: str
    reason: str
    rounds_sent: int
    rounds_refused: int
    statement: BudgetStatement


class Participation:
    """One hospital in one study; `run` returns when the study has ended."""

    def __init__(
        self,
        client: Client,
        membership: Membership,
        ledger: HospitalLedger,
        policy: SitePolicy,
        training: LocalTraining,
        *,
        dataset: str,
        outbox: Path,
        settings_sha256: str,
        on_round: OnRound | None = None,
    ) -> None:
        self._client, self._membership, self._ledger = client, membership, ledger
        self._policy, self._training, self._dataset = policy, training, dataset
        self._outbox = Outbox(outbox / membership.study)
        self._settings: StudySettings = training.settings
        self._spec = spec_of_model(training.task.model())
        self.study, self.name = membership.study, membership.client
        self._verifier = CoordinatorVerifier(client, membership, settings_sha256, ledger.head_seen(self.study))
        self._sent = self._refused = self._reported = 0
        self._on_round = on_round
        self._masked: MaskedStudy | None = None
        masking = self._settings.privacy.masking
        if masking is not None:
            folder, floors = self._outbox.folder / "secure-sum", policy.floors().raised_to(masking)
            self._masked = MaskedStudy(client, membership, floors, training, folder)

    def run(self) -> Outcome:
        """Take part until the study ends.

        A round that the policy or the own budget refuses is answered with the refusal, and the hospital stays.

        Raises:
            NotTrusted: the coordinator contradicts itself. Told to it where possible; nothing more is sent.
            TrainingStopped: NaN or an infinity; told to the coordinator as a refusal of the round.
            LostLedger: rounds are missing from the own ledger.
            ApiError, ConnectionFailed: nothing is lost; run again.
        """
        try:
            return self._run()
        finally:
            if self._masked is not None:
                self._masked.close()

    def _run(self) -> Outcome:
        self._require_known_past()
        while True:
            try:
                given = self._client.assignment(self.study, _WAIT_SECONDS)
            except ConflictError as error:
                if error.code == "study-finished":
                    return self._finished()
                self._client.sleep(_PAUSE_SECONDS)
                continue
            if given is None:
                if not self._client.budget(self.study).can_continue:
                    return self._finished()
                continue
            begun = self._client.clock.now()
            try:
                self._take_part(self._verifier.assignment(given))
            except Refused as refused:
                self._refuse(given.assignment.round, refused)
            except (BadAssignment, LedgerNotExtended, RosterNotPinned) as error:
                self._stop(given.assignment.round, error)
            self._tell(given.assignment.round, self._client.clock.now() - begun)

    def _tell(self, round: int, seconds: float) -> None:
        """Let whoever joined know of a round that was answered, once."""
        if self._on_round is None or round <= self._reported:
            return
        statement, limits = self._client.budget(self.study), self._policy.own_limits()
        event = round_event(self._ledger, self._settings, statement, limits, round, seconds)
        if event is not None:
            self._reported = round
            self._on_round(event)

    def _take_part(self, assignment: AssignmentBody) -> None:
        self._ledger.see_head(self.study, self._verifier.head)
        pinned = self._membership.pinned is not None
        self._policy.check(self.study, self._dataset, self._settings, roster_pinned=pinned)
        charged = self._ledger.charged_round(self.study, assignment.round)
        if charged is None and assignment.deadline.timestamp() <= self._client.clock.now():
            _LOG.warning("round %d: its deadline has passed; nothing is charged", assignment.round)
            self._client.sleep(_PAUSE_SECONDS)
            return
        if charged is not None and charged.model_sha256 != assignment.model.sha256:
            raise BadAssignment("this round was assigned before, from another model")
        masked = None if self._masked is None else self._masked.round(assignment)
        try:
            vectors = () if masked is None else masked.prepare()
        except SessionEnded as ended:
            _LOG.warning("round %d: %s", assignment.round, ended)
            self._client.sleep(_PAUSE_SECONDS)
            return
        if charged is None or charged.sha256 is None:
            try:
                self._make(assignment, vectors, paid=charged is not None)
            except (Refused, TrainingStopped, BadAssignment):
                if masked is not None:
                    masked.leave()
                raise
        self._send(assignment.round, masked)

    def _make(self, assignment: AssignmentBody, vectors: Sequence[VectorSpec], *, paid: bool) -> None:
        # Everything that can still say no comes before the charge.
        rounds = self._ledger.rounds_known(self.study) | {assignment.round}
        histograms = histograms_in(self._settings, rounds)
        require_within_study(self._settings, self._ledger.rounds_sent(self.study), histograms)
        weights, previous = self._model(assignment), self._previous(assignment)
        work = RoundWork.begin(self._ledger, self._training, self._policy.individual, self._outbox.folder, assignment)
        if not paid:
            self._pay(assignment)
        self._compute(assignment.round, weights, previous, work, vectors)

    def _pay(self, assignment: AssignmentBody) -> None:
        failpoint("hospital.before-charge")
        charge = Charge.of_round(self._settings, assignment.round)
        limits = self._policy.own_limits()
        self._ledger.charge(self.study, assignment.round, charge, limits, assignment.model.sha256)
        failpoint("hospital.after-charge")

    def _compute(
        self,
        round: int,
        weights: dict[str, Array],
        previous: dict[str, Array] | None,
        work: RoundWork,
        vectors: Sequence[VectorSpec],
    ) -> None:
        """Train and put the finished bytes on the disk; a crash before the last commit leaves nothing to send."""
        total_records = None if self._masked is None else self._masked.total_records()
        try:
            made = self._training.contribution(
                weights,
                work.log_moments,
                round=round,
                total_records=total_records,
                individual=work.individual,
                checkpoints=work.checkpoints,
                previous=previous,
            )
            body = self._body(round, made, work.log_moments, vectors)
        except TrainingStopped as stopped:
            self._refuse(round, Refused("training-stopped", "training met NaN or an infinity"))
            raise stopped
        failpoint("hospital.after-training")
        self._outbox.put(round, body)
        failpoint("hospital.after-bytes")
        self._finish(round, body, work)
        failpoint("hospital.after-settle")
        work.checkpoints.erase()
        self._outbox.forget_before(round)

    def _finish(self, round: int, body: bytes, work: RoundWork) -> None:
        """The update and everything it has cost, in one commit."""
        sums = None if work.log_moments is None else work.log_moments.to_bytes()
        own = None if work.individual is None else work.individual.to_bytes(entries=self._ledger.next_sequence)
        digest = hashlib.sha256(body).hexdigest()
        self._ledger.finish_update(self.study, round, sha256=digest, size=len(body), sums=sums, individual=own)

    def _body(
        self, round: int, made: Contribution, log_moments: LogMomentBounds | None, vectors: Sequence[VectorSpec]
    ) -> bytes:
        """The finished bytes: the update and its log-moments in the clear, or the words that will be masked."""
        update = {UPDATE + name: array for name, array in made.update.items()}
        if self._masked is not None and vectors:
            return self._masked.body(round, vectors, made, log_moments, update)
        return encode(update | ({} if log_moments is None else log_moments.tensors()))

    def _send(self, round: int, masked: MaskedRound | None) -> None:
        charged = self._ledger.charged_round(self.study, round)
        body = self._outbox.take(round, None if charged is None else charged.sha256)
        digest = hashlib.sha256(body).hexdigest()
        try:
            if self._masked is None or masked is None:
                self._client.put_update(self.study, round, self.name, body)
            else:
                self._masked.send(round, masked, body)
            answer = "accepted"
            self._sent += 1
            _LOG.info("round %d: update of %d bytes sent", round, len(body))
        except SessionEnded as ended:
            answer = ended.code
            _LOG.warning("round %d: %s; its charge stays", round, ended)
        except ConflictError as error:
            if error.code == "different-update":
                raise UpdateDisputed(
                    f"the coordinator holds another update of this hospital for round {round}: a second installation, "
                    "or a ledger that was restored"
                ) from error
            answer = error.code
            _LOG.warning("round %d: the coordinator did not take the update (%s); its charge stays", round, error.code)
        failpoint("hospital.after-send")
        self._ledger.mark_answered(self.study, round, digest, answer)
        failpoint("hospital.after-answer")

    def _refuse(self, round: int, refused: Refused) -> None:
        """Write the no down, then tell the coordinator."""
        _LOG.warning("round %d refused: %s", round, refused.detail)
        refusal = Refusal(code=refused.code, detail=refused.detail[:500])
        body = refusal.model_dump_json().encode()
        digest = hashlib.sha256(body).hexdigest()
        self._ledger.ready_refusal(self.study, round, sha256=digest, size=len(body))
        failpoint("hospital.before-refusal")
        try:
            self._client.put_refusal(self.study, round, self.name, refusal)
            answer = "recorded"
        except ConflictError as error:
            answer = error.code
        self._refused += 1
        failpoint("hospital.after-refusal")
        self._ledger.mark_answered(self.study, round, digest, answer)

    def _stop(self, round: int, error: NotTrusted) -> NoReturn:
        """Say why, so that the round does not wait for this hospital, and stop."""
        try:
            self._refuse(round, Refused(error.code, str(error)))
        except ApiError as unheard:
            _LOG.warning("the coordinator did not take the refusal: %s", unheard)
        raise error

    def _model(self, assignment: AssignmentBody) -> dict[str, Array]:
        body = self._client.model(self.study, assignment.model.version, largest=encoded_size_limit(self._spec))
        if hashlib.sha256(body).hexdigest() != assignment.model.sha256:
            raise BadAssignment("the model is not the one that the assignment names")
        return self._weights(body)

    def _previous(self, assignment: AssignmentBody) -> dict[str, Array] | None:
        """The weights released before the assigned ones, where the study clips around what has changed since."""
        version = assignment.model.version - 1
        if self._settings.training.clipping_centre == "zero" or version < 0:
            return None
        try:
            body = self._client.model(self.study, version, largest=encoded_size_limit(self._spec))
        except NotFoundError:
            # That round came to nothing.
            return None
        return self._weights(body)

    def _weights(self, body: bytes) -> dict[str, Array]:
        try:
            return decode(body, self._spec)
        except TensorError as error:
            raise BadAssignment(f"the model is not one of this task: {error.detail}") from error

    def _require_known_past(self) -> None:
        """Compare what the coordinator says it took from this hospital with the own ledger."""
        reported = rounds_received(self._client, self.study, self.name)
        missing = reported - self._ledger.rounds_known(self.study)
        if missing:
            raise LostLedger(
                "lost-ledger",
                f"the coordinator holds updates of this hospital from round {min(missing)} on that the ledger of data "
                f"set {self._dataset!r} does not know: restore it, or accept the loss with --accept-lost-ledger",
            )
        for departure in self._ledger.departures(self.study):
            # Killed between the answer and its line in the log.
            if departure.what == "update" and departure.answer is None and departure.round in reported:
                self._ledger.mark_answered(self.study, departure.round, departure.sha256, "accepted")

    def _finished(self) -> Outcome:
        statement = self._client.budget(self.study)
        for _ in range(_REASON_ATTEMPTS):
            if statement.stop_reason is not None:
                break
            # No round can follow, but the coordinator has not written the end down yet.
            self._client.sleep(_PAUSE_SECONDS)
            statement = self._client.budget(self.study)
        self._verifier.statement(statement)
        self._ledger.see_head(self.study, self._verifier.head)
        reason = statement.stop_reason or "no further round fits"
        self._ledger.finish_study(self.study, reason)
        return Outcome(self.study, reason, self._sent, self._refused, statement)


def rounds_received(client: Client, study: str, name: str) -> set[int]:
    """Rounds in which the coordinator took an update of `name`, as far as it shows them to the caller."""
    found: set[int] = set()
    after: str | None = None
    while True:
        page = client.rounds(study, after)
        found |= {
            view.round
            for view in page.rounds
            for entry in view.clients or []
            if entry.client == name and entry.state == "received"
        }
        if page.next is None:
            return found
        after = page.next
