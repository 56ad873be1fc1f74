"""The run loop of one hospital in one study.

A round, in this order: believe the assignment, ask the site policy, prepare the delivery, pay from the own ledger,
train, sync the finished bytes, send. Killed anywhere and started again, the same round gets the same bytes or was never
sent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from client_sdk.api.calls import POLL_SECONDS
from client_sdk.api.client import Client
from client_sdk.errors import (
    ApiError,
    BadAssignment,
    ConflictError,
    ConnectionFailed,
    LedgerContradicted,
    LedgerForked,
    LedgerNotExtended,
    NotTrusted,
    Refused,
    RosterNotPinned,
    SessionContradicted,
    SessionEnded,
    UnexpectedAnswer,
    UpdateDisputed,
)
from client_sdk.guard.ledger import ChargedRound, HospitalLedger
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rules import require_allowed
from client_sdk.identity import Membership
from client_sdk.outbox import Outbox
from client_sdk.study.delivery import Capabilities
from client_sdk.study.equipment import Equipment, PatientsObjected
from client_sdk.study.events import OnRound, round_event
from client_sdk.study.evidence import Evidence
from client_sdk.study.pace import Pace
from client_sdk.study.single_installation import SingleInstallation
from client_sdk.study.stay import Stay
from client_sdk.study.verifier import CoordinatorVerifier, require_known_past
from client_sdk.study.waiting import Watch, awaited, last_statement
from client_sdk.study.work import Make, Work
from study_protocol.study.messages import (
    Assignment,
    AssignmentBody,
    BudgetStatement,
    Refusal,
    SignedParameters,
    WitnessedHead,
)
from study_protocol.study.reasons import MORE_TO_COME
from study_protocol.study.settings import StudySettings
from study_protocol.wire.failpoints import failpoint, register

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 2.0
_FIRST_WAIT_SECONDS = 1.0

register(
    "hospital.after-send",
    "hospital.after-answer",
    "hospital.before-refusal",
    "hospital.after-refusal",
    "hospital.after-evidence",
    "hospital.before-witness",
    "hospital.after-witness",
)


@dataclass(frozen=True)
class Outcome:
    """How a participation ended. `more_to_come`: the study goes on, without this hospital for now.

    statement  the coordinator's last budget. Of a study that has ended, its ledger was followed to its head
    """

    study: str
    reason: str
    rounds_sent: int
    rounds_refused: int
    statement: BudgetStatement
    more_to_come: bool = False


class Participation:
    """One hospital in one study. `run` returns when the study has ended, or earlier as `one_round_within` says.

    able       what this hospital can do in the study: train, answer, or both
    directory  of the hospital: finished bytes and checkpoints are in its outbox, proofs against the coordinator beside
    slot       seconds at whose multiples this hospital answers. None: as soon as it can
    one_round_within  of `Stay`
    renew      makes the capabilities anew where the policy leaves further patients out. None: that is not looked for
    """

    def __init__(
        self,
        client: Client,
        membership: Membership,
        ledger: HospitalLedger,
        policy: SitePolicy,
        able: Capabilities,
        dataset: str,
        directory: Path,
        on_round: OnRound | None = None,
        watch: Watch | None = None,
        slot: float | None = None,
        one_round_within: float | None = None,
        renew: Callable[[SitePolicy], Capabilities] | None = None,
    ) -> None:
        self._client, self._membership, self._ledger = client, membership, ledger
        self._dataset, self._settings = dataset, able.settings
        self.study, self.name = membership.study, membership.client
        self._outbox = Outbox(directory / "outbox" / self.study)
        self._verifier = CoordinatorVerifier(client, membership, self._settings, ledger)
        self._evidence = Evidence(directory / "evidence", self.study)
        self._equipment = Equipment(client, membership, ledger, self._verifier, directory, renew)
        self._equipment.take(policy, able)
        self._sent = self._refused = self._reported = 0
        self._single_installation = SingleInstallation()
        self._on_round, self._watch = on_round, watch or Watch()
        self._pace, self._stay = Pace(client, slot, self._watch.waits), Stay(one_round_within, client.clock.elapsed)
        # Their opening takes the longer the more patients there are, before anything is sent.
        self._opens_accounts = policy.individual is not None or (
            isinstance(able.settings, StudySettings) and able.settings.privacy.bayesian is not None
        )

    def run(self) -> Outcome:
        """Take part until the study ends, or in at most one round.

        A round that the policy or the own budget refuses is answered with the refusal, which is no end.

        Raises:
            NotTrusted: the coordinator contradicts itself. It is told where possible, and no more messages are sent.
            TrainingStopped: NaN or an infinity that no record is to blame for. The coordinator is not told, so that it
                cannot tell this from a lost connection.
            LostLedger: rounds are missing from the own ledger.
            ApiError, ConnectionFailed: no work is lost. Run again.
        """
        self._evidence.require_none()
        require_known_past(self._client, self._ledger, self.study, self.name, self._dataset)
        try:
            return self._rounds()
        finally:
            self._equipment.delivery.close()

    def _rounds(self) -> Outcome:
        # Short before anything is known of why there may be nothing to do: nobody is left in silence.
        wait = _FIRST_WAIT_SECONDS
        while not self._has_ended(wait):
            if self._stay.is_over:
                statement = self._client.budget(self.study)
                return self._finished() if statement.stop_reason is not None else self._outcome(None, statement)
            wait = POLL_SECONDS
        return self._finished()

    def _has_ended(self, wait: float) -> bool:
        """Wait for an assignment, and answer it. Return whether the study has ended."""
        self._equipment.delivery.erase_expired()
        self._outbox.keep(self._equipment.delivery.keeps)
        wait = wait if self._equipment.consents is None else min(wait, self._equipment.consents.speak())
        try:
            assignment = self._client.assignment(self.study, self._stay.wait_at_most(wait))
        except ConflictError as error:
            if error.code != "study-finished":
                self._client.sleep(self._stay.wait_at_most(_PAUSE_SECONDS))
            return error.code == "study-finished"
        if assignment is not None:
            self._watch.goes_on()
            self._answer(assignment)
        elif not self._client.budget(self.study).can_continue:
            return True
        else:
            self._watch.waits(awaited(self._client, self._membership, self._equipment.policy, self._settings))
        return False

    def _answer(self, assignment: Assignment) -> None:
        """Take part in a round or say why not."""
        # Without the coordinator's correction, which may come in between.
        begun, round = self._client.clock.read(), assignment.assignment.round
        self._single_installation.begin(round)
        self._pace.begin()
        self._equipment.heed_objections(round)
        try:
            try:
                self._take_part(assignment)
            except PatientsObjected:
                # The round is paid for, and nothing of it is computed: it goes on as after a new start.
                self._equipment.heed_objections(round)
                self._take_part(assignment)
        except Refused as refused:
            if refused.proof is not None:
                proof = {**refused.proof, **self._verifier.shown_with(assignment)}
                self._stop(round, SessionContradicted(refused.detail, proof), refused.code)
            self._refuse(round, refused, self._verifier.vouch())
        except (BadAssignment, LedgerNotExtended, LedgerContradicted, LedgerForked, RosterNotPinned) as error:
            self._stop(round, error)
        self._tell(round, self._client.clock.read() - begun)

    def _take_part(self, received: Assignment) -> None:
        # 1. Believe: what is signed, what continues the ledger that was seen, who is on the roster.
        assignment = self._verifier.assignment(received)
        # No earlier round is assigned again once this one's reservation has been seen.
        self._outbox.forget_before(assignment.round)
        try:
            # 2. Ask: the site policy, the own ledger, the study's own limits. Nothing is promised to anybody before.
            pinned = self._membership.pinned is not None
            require_allowed(self._equipment.policy, self.study, self._dataset, self._settings, roster_pinned=pinned)
            self._verifier.require_witnesses(self._equipment.policy)
            charged = self._ledger.charged_round(self.study, assignment.round)
            # A round that is paid for is finished and sent: the coordinator alone knows whether it is too late.
            round_seconds = self._settings.schedule.round_deadline_seconds
            late = self._pace.lateness(assignment.deadline, round_seconds) if charged is None else None
            if late is not None:
                self._pass(assignment.round, late)
                return
            # Before keys are promised to the others: the accounts may still say no.
            make = self._open(assignment, received, charged)
            if make is not None and self._opens_accounts:
                self._pace.wait(f"round {assignment.round}")
            # 3. Prepare the delivery.
            self._watch.waits_for_others(assignment, received.session)
            vectors = self._equipment.delivery.prepare(assignment, received.session)
            # 4. to 6. Pay, compute, and sync the finished bytes.
            if make is not None:
                self._watch.goes_on()
                make(vectors, paid=charged is not None)
        except SessionEnded as ended:
            self._single_installation.require(assignment.round, ended)
            self._pass(assignment.round, str(ended))
            return
        except (Refused, BadAssignment):
            self._equipment.delivery.leave(assignment)
            raise
        self._pace.wait(f"round {assignment.round}")
        self._watch.waits_for_others(assignment, received.session)
        # 7. Send.
        self._send(assignment.round)

    def _open(self, assignment: AssignmentBody, received: Assignment, charged: ChargedRound | None) -> Make | None:
        """Return the round's work, or None if it is finished. Raises BadAssignment, and Refused as `Work.open`."""
        work = self._work_of(assignment)
        subjects = work.subjects(assignment)
        if charged is not None and (charged.model_sha256 not in subjects or charged.attempt != assignment.attempt):
            another = "this round was assigned before, about another model, another query or another noise"
            raise BadAssignment(another, self._verifier.shown_with(received))
        self._bind(assignment, received.session, subjects[0])
        if charged is None or charged.sha256 is None:
            return work.open(assignment)
        if not self._equipment.delivery.keeps(assignment.round):
            raise Refused("round-over", "the session of this round is over here, and its bytes are erased")
        return None

    def _bind(self, assignment: AssignmentBody, session: SignedParameters | None, subject: str) -> None:
        """Let the keys of this round's noise depend on all that the round is: as a whole it never comes again."""
        training, local_entries = self._equipment.able.training, self._ledger.entries
        self._equipment.able.randomness.bind(
            self.study,
            str(assignment.round),
            assignment.ledger.sha256,
            "" if session is None else hashlib.sha256(session.parameters).hexdigest(),
            subject,
            local_entries[-1].sha256 if local_entries else "",
            "" if training is None else training.dataset.digest,
        )

    def _work_of(self, assignment: AssignmentBody) -> Work:
        work = self._equipment.answers if assignment.phase == "query" else self._equipment.training
        if work is None:
            raise BadAssignment("the study's settings know no such round")
        return work

    def _pass(self, round_number: int, reason: str) -> None:
        _LOG.warning("round %d: %s", round_number, reason)
        self._client.sleep(_PAUSE_SECONDS)

    def _send(self, round_number: int) -> None:
        charged = self._ledger.charged_round(self.study, round_number)
        body = self._outbox.take(round_number, None if charged is None else charged.sha256)
        ended: SessionEnded | ConflictError | None = None
        try:
            self._equipment.delivery.send(round_number, body)
            answer = "accepted"
            self._sent += 1
            _LOG.info("round %d: update of %d bytes sent", round_number, len(body))
        except (SessionEnded, ConflictError) as error:
            if error.code == "different-update":
                raise UpdateDisputed(
                    f"the coordinator holds another update of this hospital for round {round_number}: a second "
                    "installation, or a ledger that was restored"
                ) from error
            ended, answer = error, error.code
            _LOG.warning(
                "round %d: the coordinator did not take the update (%s), its charge stays", round_number, error.code
            )
        failpoint("hospital.after-send")
        was_taken, digest = self._equipment.delivery.was_accepted, hashlib.sha256(body).hexdigest()
        self._ledger.mark_answered(self.study, round_number, digest, answer, accepted=was_taken)
        self._stay.end_round()
        failpoint("hospital.after-answer")
        if ended is not None:
            self._single_installation.require(round_number, ended)
        self._outbox.keep(self._equipment.delivery.keeps)

    def _refuse(self, round_number: int, refused: Refused, witness: WitnessedHead | None = None) -> None:
        """Write the no down, then tell the coordinator."""
        _LOG.warning("round %d refused: %s", round_number, refused.detail)
        # The message takes no more than 500 characters.
        refusal = Refusal(code=refused.code, detail=refused.detail[:500])
        body = refusal.model_dump_json().encode()
        digest = hashlib.sha256(body).hexdigest()
        self._ledger.ready_refusal(self.study, round_number, sha256=digest, size=len(body))
        failpoint("hospital.before-refusal")
        self._pace.wait(f"the refusal of round {round_number}")
        try:
            self._client.put_refusal(self.study, round_number, self.name, refusal, witness)
            answer = "recorded"
        except ConflictError as error:
            answer = error.code
        self._refused += 1
        self._stay.end_round()
        failpoint("hospital.after-refusal")
        self._ledger.mark_answered(self.study, round_number, digest, answer)

    def _stop(self, round_number: int, error: NotTrusted, code: str | None = None) -> NoReturn:
        """Keep the proof, say why, so that the round does not wait for this hospital, and stop.

        code  of what was refused, where that says more than the error's own
        """
        message = str(error)
        self._keep(error)
        try:
            # Without a signature on the ledger.
            self._refuse(round_number, Refused(code or error.code, message))
        except (ApiError, ConnectionFailed, UnexpectedAnswer) as unheard:
            _LOG.warning("the coordinator did not take the refusal: %s", unheard)
        raise error

    def _keep(self, error: NotTrusted) -> None:
        # Before anybody is told: whoever is killed here has it already.
        self._evidence.keep(error, self._membership, self._ledger.seen_ledger(self.study).head.sequence)
        failpoint("hospital.after-evidence")

    def _tell(self, round_number: int, seconds: float) -> None:
        """Report a round that was answered to the caller of `join`, once."""
        if self._on_round is None or round_number <= self._reported:
            return
        statement, limits = self._client.budget(self.study), self._ledger.own_limits(self._equipment.policy)
        event = round_event(
            self._ledger,
            self._settings.rounds,
            statement,
            limits,
            round_number,
            seconds,
            None if self._pace.slot is None else self._pace.waited,
        )
        if event is not None:
            self._reported = round_number
            self._on_round(event)

    def _finished(self) -> Outcome:
        statement = last_statement(self._client, self.study, _PAUSE_SECONDS)
        try:
            self._verifier.statement(statement)
        except NotTrusted as error:
            self._keep(error)
            raise
        witness = self._verifier.vouch()
        if witness is not None:
            # In a request of its own: no update follows that could carry it.
            failpoint("hospital.before-witness")
            self._client.put_witness(self.study, witness)
            failpoint("hospital.after-witness")
        if statement.stop_reason is not None:
            # No round of it is ever asked for again.
            self._outbox.keep(lambda _: False, checkpoint=False)
        reason = statement.stop_reason or "no further round fits"
        self._ledger.finish_study(self.study, reason)
        return self._outcome(reason, statement)

    def _outcome(self, reason: str | None, statement: BudgetStatement) -> Outcome:
        return Outcome(self.study, reason or MORE_TO_COME, self._sent, self._refused, statement, reason is None)
