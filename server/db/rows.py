"""Finding rows. Writers lock from the top down: study, round, participant.

Budgets and sessions are locked by those only who hold their study. SQLite has no row locks and needs none: its writers
begin with the one write lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Select, bindparam, select

from accounting.plan.report import moments_in, report_from_dict
from server.db.row_checks import WRONG_VALUE, RowBroken
from server.db.session import Transaction
from server.db.tables import (
    Answer,
    BudgetRow,
    ClientRow,
    EventRow,
    InvitationRow,
    ModelRow,
    ParticipantRow,
    RoundRow,
    SessionMessageRow,
    SessionRow,
    StudyRow,
)
from server.domain.admission import Findings
from server.domain.errors import Rejected
from server.domain.rounds import Attendance
from server.domain.study import unknown_study
from study_protocol.study.any_settings import AnySettings, settings_from
from study_protocol.study.messages import StopReason, StudyState
from study_protocol.wire.tensors import Spec, spec_from_json

# Built once: these are compared with what was signed at every step and for every statement.
_ACTIVE = (
    select(ClientRow.name, ClientRow.public_key)
    .where(ClientRow.study_id == bindparam("study"), ClientRow.state == "active")
    .order_by(ClientRow.name)
)
_STUDY = select(StudyRow).where(StudyRow.name == bindparam("study"))
_WITH_BUDGET = (
    select(StudyRow, BudgetRow)
    .join(BudgetRow, BudgetRow.study_id == StudyRow.id)
    .where(StudyRow.name == bindparam("study"))
)
T = TypeVar("T")


def find_study(tx: Transaction, name: str) -> StudyRow:
    """Raises Rejected `unknown-study`."""
    return _study(tx, _STUDY, name)


def find_with_budget(tx: Transaction, name: str) -> tuple[StudyRow, BudgetRow]:
    """Return the study and its budget, in one question. Raises Rejected `unknown-study`."""
    study, budget = _known_study(tx.session.execute(_WITH_BUDGET, {"study": name}).one_or_none())
    return study, budget


def lock_study(tx: Transaction, name: str) -> StudyRow:
    """Return the study, for a transaction that changes it. Raises Rejected `unknown-study`."""
    return _study(tx, _STUDY.with_for_update(), name)


def _study(tx: Transaction, statement: Select[StudyRow], name: str) -> StudyRow:
    return _known_study(tx.session.scalars(statement, {"study": name}).one_or_none())


def _known_study(row: T | None) -> T:
    if row is None:
        raise unknown_study()
    return row


def settings_of(row: StudyRow) -> AnySettings:
    """Return the settings that were frozen when the study was created. Raises RowBroken."""
    try:
        return settings_from(row.settings)
    except WRONG_VALUE as error:
        raise RowBroken("studies.settings holds no settings") from error


def model_spec_of(row: StudyRow) -> Spec:
    """Return names, shapes and types of its model. Empty before the initial weights are here."""
    return spec_from_json(row.model_spec or {})


def find_client(tx: Transaction, study_id: int, name: str) -> ClientRow | None:
    """Return the member of this name, in any state."""
    return tx.session.get(ClientRow, (study_id, name))


def known_client(tx: Transaction, study_id: int, client: str) -> ClientRow:
    """Raises Rejected `not-enrolled` (invited only), `unknown-client`."""
    row = find_client(tx, study_id, client)
    if row is not None:
        return row
    invited = select(InvitationRow.id).where(InvitationRow.study_id == study_id, InvitationRow.client == client)
    if tx.session.scalar(invited.limit(1)) is not None:
        raise Rejected("not-enrolled", "this client is invited but has not enrolled yet")
    raise Rejected("unknown-client", "the study has no client of this name")


def clients(tx: Transaction, study_id: int) -> Sequence[ClientRow]:
    """Return all members, in any state, by name."""
    return tx.session.scalars(select(ClientRow).where(ClientRow.study_id == study_id).order_by(ClientRow.name)).all()


def active_members(tx: Transaction, study_id: int) -> list[tuple[str, str]]:
    """Return name and encoded public key of every active member, by name. A roster's fingerprint is made of these."""
    members = tx.session.execute(_ACTIVE, {"study": study_id})
    return [(name, public_key) for name, public_key in members]


def find_round(tx: Transaction, study_id: int, number: int) -> RoundRow:
    """Raises Rejected `round-unknown`."""
    return _require_round(tx.session.get(RoundRow, (study_id, number)))


def share_round(tx: Transaction, study_id: int, number: int) -> RoundRow:
    """Return the round, held until the transaction ends. Many may hold it. Raises Rejected `round-unknown`."""
    # Hospitals write their own rows side by side. A close takes the round alone and so waits for them.
    return _require_round(tx.session.get(RoundRow, (study_id, number), with_for_update={"read": True}))


def lock_round(tx: Transaction, study_id: int, number: int) -> RoundRow:
    """Return that round, for a transaction that moves it. Raises Rejected `round-unknown`."""
    return _require_round(tx.session.get(RoundRow, (study_id, number), with_for_update=True))


def _require_round(row: RoundRow | None) -> RoundRow:
    if row is None:
        raise Rejected("round-unknown", "this study has had no such round")
    return row


def open_round(tx: Transaction, study_id: int) -> RoundRow | None:
    """Return the round under way, to look at. Raises RowBroken: there are two."""
    return _the_one(tx.session.scalars(_under_way(study_id)).all())


def lock_open_round(tx: Transaction, study_id: int) -> RoundRow | None:
    """Return the round under way, for a transaction that moves it. Raises RowBroken: there are two."""
    return _the_one(tx.session.scalars(_under_way(study_id).with_for_update()).all())


def _the_one(round_rows: Sequence[RoundRow]) -> RoundRow | None:
    if len(round_rows) > 1:
        raise RowBroken("rounds has two that are under way")
    return round_rows[0] if round_rows else None


def _under_way(study_id: int) -> Select[RoundRow]:
    return select(RoundRow).where(RoundRow.study_id == study_id, RoundRow.ended_at.is_(None))


def lock_participant(tx: Transaction, round_row: RoundRow, client: str) -> ParticipantRow:
    """Raises Rejected `not-sampled`."""
    row = tx.session.get(ParticipantRow, (round_row.study_id, round_row.number, client), with_for_update=True)
    if row is None:
        raise Rejected("not-sampled", "this client takes no part in this round: wait for the next assignment")
    return row


def participants(tx: Transaction, round_row: RoundRow) -> Sequence[ParticipantRow]:
    """Return the rows of all clients sampled in this round, by name."""
    statement = select(ParticipantRow).where(
        ParticipantRow.study_id == round_row.study_id, ParticipantRow.round == round_row.number
    )
    return tx.session.scalars(statement.order_by(ParticipantRow.client)).all()


def is_awaited(tx: Transaction, round_row: RoundRow) -> bool:
    """Return whether a sampled client has not answered yet."""
    open = (ParticipantRow.study_id == round_row.study_id, ParticipantRow.round == round_row.number)
    return (
        tx.session.scalar(select(ParticipantRow.client).where(*open, ParticipantRow.state == "sampled").limit(1))
        is not None
    )


def presence(tx: Transaction, round_row: RoundRow) -> tuple[int, int]:
    """Return how many were sampled in this round, and how many of them have sent anything in it."""
    sampled = participants(tx, round_row)
    spoken = select(SessionMessageRow.client).where(
        SessionMessageRow.study_id == round_row.study_id, SessionMessageRow.round == round_row.number
    )
    present = set(tx.session.scalars(spoken.distinct())) | {row.client for row in sampled if row.state != "sampled"}
    return len(sampled), len(present)


def attendance(tx: Transaction, rows: Sequence[ParticipantRow], session: SessionRow | None) -> Attendance:
    """Return the attendance of the sampled clients, read from the rows of their round."""

    def names(state: Answer) -> frozenset[str]:
        return frozenset(row.client for row in rows if row.state == state)

    sending = frozenset(row.client for row in rows if row.sending_since is not None)
    counts = Attendance(names("received"), names("sampled"), names("missing"), sending)
    if session is None:
        return counts
    # Also those that have left: their records may carry the largest bound.
    enrolled = frozenset(client.name for client in clients(tx, session.study_id))
    return replace(counts, survivors=frozenset(session.survivors), enrolled=enrolled)


def findings(rows: Sequence[ParticipantRow]) -> tuple[Findings, ...]:
    """Return the findings of every update received."""
    return tuple(
        Findings(row.distance, moments_in(report_from_dict(row.log_moments))) for row in rows if row.state == "received"
    )


def refusals(rows: Sequence[ParticipantRow]) -> frozenset[str]:
    """Return the codes of all that was refused."""
    return frozenset(row.refusal_code for row in rows if row.refusal_code is not None)


def find_session(tx: Transaction, study_id: int, round_number: int) -> SessionRow | None:
    """Return the round's secure sum. None if updates came in the clear and no sum was made under masks."""
    return tx.session.get(SessionRow, (study_id, round_number))


def latest_model(tx: Transaction, study_id: int) -> ModelRow | None:
    """Return the newest published model. None before the initial weights are here."""
    statement = select(ModelRow).where(ModelRow.study_id == study_id).order_by(ModelRow.version.desc()).limit(1)
    return tx.session.scalars(statement).one_or_none()


def enter_state(
    tx: Transaction,
    study: StudyRow,
    state: StudyState,
    *,
    pause_reason: str | None = None,
    stop_reason: StopReason | None = None,
) -> None:
    """Set the study's state, and tell its watchers. This transaction has locked the study."""
    study.state, study.pause_reason, study.stop_reason = state, pause_reason, stop_reason
    study.state_since = tx.now()
    append_event(tx, study, f"study-{state}")


def append_event(
    tx: Transaction, study: StudyRow, kind: str, round_number: int | None = None, *, work: bool = True
) -> None:
    """Number the event after the study's newest one. This transaction has locked the study.

    work  whether a worker has something to do now
    """
    # One number says whether there is news: waiting requests compare it, and read no other column.
    study.version += 1
    tx.announce(study.name, study.version, work=work)
    tx.session.add(EventRow(study_id=study.id, number=study.version, kind=kind, round=round_number, at=tx.now()))
