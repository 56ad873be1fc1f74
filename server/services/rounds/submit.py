"""Take one client's answer. An update: let it in, check it, keep it, record it. A refusal: record it."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.plan.report import report_to_dict
from server.db import rows
from server.db.blobs import Blob, IncomingFile, OpenedFile, update_of
from server.db.ledger_store import attempt_under_way
from server.db.session import Transaction
from server.db.session_store import lock_session
from server.db.tables import ModelRow, ParticipantRow, RoundRow, StudyRow
from server.db.witness_store import keep_header
from server.domain.admission import (
    Findings,
    body_spec,
    coordinates,
    examine,
    examine_answer,
    expects_log_moments,
    update_spec,
)
from server.domain.bounds import longest_update
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator, Written
from server.services.queries.show import asked_of
from server.services.rounds.anchor import anchor_of
from server.services.secure_sum.exchanges import leave_session
from server.services.views import refusal_of
from study_protocol.study.any_settings import require_training
from study_protocol.study.messages import Refusal, UpdateReceipt
from study_protocol.study.settings import StudySettings
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.tensor_files import TensorFile
from study_protocol.wire.tensors import Spec, answer_spec, encoded_size_limit

register(
    "api.before-begin-commit",
    "api.after-begin-commit",
    "api.before-update-file",
    "api.after-update-file",
    "api.after-update-commit",
)


@dataclass(frozen=True)
class Start:
    """The start of a round of training.

    settings           as the round sees them: at its clip norm and its place in a noise schedule
    weights, previous  digests of the model that the round starts from, and of the one before it if there is one
    """

    settings: StudySettings
    model: Spec
    weights: str
    previous: str | None


@dataclass(frozen=True)
class UpdateSlot:
    """Permission to send one body of at most `limit` bytes.

    body  its tensors
    of    the start of a round of training, None for a part of a query's answer
    """

    study: str
    round: int
    client: str
    body: Spec
    of: Start | None

    @property
    def limit(self) -> int:
        """Return the limit in bytes."""
        return encoded_size_limit(self.body)


def begin(
    coordinator: Coordinator, study: str, round_number: int, client: str, signed_sha256: str, witness: str | None = None
) -> UpdateSlot | UpdateReceipt:
    """Admit an update before its body is read. A receipt instead of a slot: these very bytes are recorded already.

    From here on the coordinator may have seen something of the update, and the round is charged in full.

    witness  the header that vouches for the ledger, kept in the same transaction

    Raises:
        Rejected: `unknown-study`, `round-unknown`, `not-sampled`, `round-closed`, `different-update`, `unknown-head`.
        SigningError: the witness's signature is not the client's.
    """

    def work(tx: Transaction) -> UpdateSlot | UpdateReceipt:
        study_row = rows.find_study(tx, study)
        round_row = rows.share_round(tx, study_row.id, round_number)
        row = rows.lock_participant(tx, round_row, client)
        if _is_recorded(tx, round_row, row, signed_sha256):
            return _receipt(study, row)
        keep_header(tx, study_row, client, witness)
        if row.sending_since is None:
            row.sending_since = tx.now()
        if round_row.base_version is None:
            question = asked_of(tx, study_row, round_row).question
            return UpdateSlot(study, round_number, client, answer_spec(question.cells), None)
        start = _start(tx, study_row, round_row.base_version)
        return UpdateSlot(study, round_number, client, body_spec(start.settings, start.model), start)

    # Committed before a byte is read: a coordinator that dies in the body has still noted that it may have seen it.
    failpoint("api.before-begin-commit")
    slot = coordinator.database.write_with_others(_group(study), "begin-update", work).result()
    failpoint("api.after-begin-commit")
    return slot


def _start(tx: Transaction, study: StudyRow, version: int) -> Start:
    base, before = (tx.session.get(ModelRow, (study.id, version - i)) for i in (0, 1))
    if base is None:
        raise LookupError("the model of a round is not in the database: restore the database from its backup")
    previous = None if before is None else before.sha256
    settings = require_training(rows.settings_of(study)).at_clip_norm(base.clip_norm)
    settings = settings.at_attempt(attempt_under_way(tx, study))
    return Start(settings, rows.model_spec_of(study), base.sha256, previous)


def submit(
    coordinator: Coordinator, slot: UpdateSlot, incoming: IncomingFile, signed_sha256: str
) -> Written[UpdateReceipt]:
    """Record the update whose whole body is in `incoming`. Durable when this returns.

    Raises:
        Rejected: as `begin`, and `digest-mismatch`, `clip-exceeded`, `norm-exceeded`, `log-moments-missing`,
            `invalid-request`.
        TensorError: the body is not the tensors of an update.
    """
    if incoming.sha256 != signed_sha256:
        raise Rejected("digest-mismatch", "sign the bytes that are sent, and send the bytes that were signed")
    with incoming.opened() as file:
        findings = _examined(coordinator, slot, file)
    failpoint("api.before-update-file")
    # The file before the row: an acknowledged update can be found after a crash.
    blob = coordinator.blobs.keep(incoming, update_of(slot.study, slot.round, slot.client))
    failpoint("api.after-update-file")
    try:
        written = coordinator.database.write_with_others(
            _group(slot.study), "submit-update", lambda tx: _record(tx, slot, blob, findings)
        ).result()
    except Rejected:
        # The same bytes on another connection are rejected too, unless they are recorded: rounds do not open again.
        _forget_unless_recorded(coordinator, slot, blob)
        raise
    failpoint("api.after-update-commit")
    return written


def _group(study: str) -> str:
    # Not with what locks the study first: a round is locked here without it, and the order must be one.
    return f"{study}/updates"


def _examined(coordinator: Coordinator, slot: UpdateSlot, file: OpenedFile) -> Findings:
    descriptor, start = file.descriptor, slot.of
    if start is None:
        examine_answer(TensorFile(descriptor, slot.body))
        return Findings(None, None)
    # A likely mistake gets a code of its own instead of `wrong-names`.
    if expects_log_moments(start.settings) and set(TensorFile(descriptor).spec) == set(
        update_spec(start.settings, start.model)
    ):
        raise Rejected(
            "log-moments-missing", "this study needs log-moments/filter and log-moments/moments beside the update"
        )
    anchor = anchor_of(coordinator, slot.study, start.settings, start.model, start.weights, start.previous)
    size = coordinates(start.settings.privacy.sent(start.model))
    longest = longest_update(start.settings, size, slot.round, anchor=anchor)
    return examine(start.settings, start.model, TensorFile(descriptor, slot.body), longest)


def _record(tx: Transaction, slot: UpdateSlot, blob: Blob, findings: Findings) -> Written[UpdateReceipt]:
    study = rows.find_study(tx, slot.study)
    round = rows.share_round(tx, study.id, slot.round)
    row = rows.lock_participant(tx, round, slot.client)
    if _is_recorded(tx, round, row, blob.sha256):
        return Written(_receipt(slot.study, row), created=False)
    row.state, row.answered_at = "received", tx.now()
    row.sha256, row.bytes = blob.sha256, blob.bytes
    row.distance, row.log_moments = findings.distance, report_to_dict(findings.log_moments)
    _announce(tx, study, round)
    return Written(_receipt(slot.study, row), created=True)


def _announce(tx: Transaction, study: StudyRow, round_row: RoundRow) -> None:
    """Tell the workers, once no client is waited for."""
    if not rows.is_awaited(tx, round_row):
        tx.announce(study.name)


def _is_recorded(tx: Transaction, round_row: RoundRow, row: ParticipantRow, sha256: str) -> bool:
    """Return whether these bytes are recorded. Raises Rejected if they may not be recorded now."""
    if row.state == "received" and row.sha256 == sha256:
        return True
    if row.state in ("received", "refused"):
        raise Rejected("different-update", "this round has an answer of yours already: send those very bytes again")
    # At the deadline itself, not when a worker comes to close: all clients have the same time.
    if row.state == "missing" or round_row.state != "collecting" or tx.now() >= round_row.deadline:
        raise Rejected("round-closed", "the round takes no more updates: ask for the next assignment")
    return False


def _receipt(study: str, row: ParticipantRow) -> UpdateReceipt:
    return UpdateReceipt.model_validate(
        {"study": study, "round": row.round, "client": row.client, "sha256": row.sha256, "bytes": row.bytes}
    )


def _forget_unless_recorded(coordinator: Coordinator, slot: UpdateSlot, blob: Blob) -> None:
    def work(tx: Transaction) -> bool:
        study_id = rows.find_study(tx, slot.study).id
        row = tx.session.get(ParticipantRow, (study_id, slot.round, slot.client))
        return row is not None and row.sha256 == blob.sha256

    if not coordinator.database.read("find-recorded-update", work):
        coordinator.blobs.remove(update_of(slot.study, slot.round, slot.client), blob.sha256)


def refuse(
    coordinator: Coordinator, study: str, round_number: int, client: str, refusal: Refusal, witness: str | None = None
) -> Written[Refusal]:
    """Record a refusal. Repeatable. The first one stays. `witness`: as in `begin`.

    Raises:
        Rejected, SigningError: as `begin`.
    """

    def work(tx: Transaction) -> Written[Refusal] | None:
        # Unlike an update, a refusal may move a session on, which numbers an event.
        study_row = rows.lock_study(tx, study)
        round_row = rows.share_round(tx, study_row.id, round_number)
        row = rows.lock_participant(tx, round_row, client)
        recorded = refusal_of(row)
        if recorded is not None:
            return Written(recorded, created=False)
        if row.state == "received":
            # It cannot take its vectors back, but it opens no shares: the session neither waits for it nor asks it
            # again.
            _leave_session(coordinator, tx, study_row, round_number, client)
            return None
        if row.state == "missing" or round_row.state != "collecting" or tx.now() >= round_row.deadline:
            raise Rejected("round-closed", "the round takes no more answers: ask for the next assignment")
        keep_header(tx, study_row, client, witness)
        row.state, row.answered_at = "refused", tx.now()
        row.refusal_code, row.refusal_detail = refusal.code, refusal.detail
        _leave_session(coordinator, tx, study_row, round_number, client)
        _announce(tx, study_row, round_row)
        return Written(refusal, created=True)

    written = coordinator.database.write("refuse", work)
    if written is None:
        raise Rejected("different-update", "this round has an update of yours already")
    return written


def _leave_session(coordinator: Coordinator, tx: Transaction, study: StudyRow, round_number: int, client: str) -> None:
    session = lock_session(tx, study.id, round_number)
    if session is not None:
        leave_session(coordinator, tx, study, session, client)
