"""Finding rows. Writers lock from the top down: study, round, participant, budget."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from server.db.session import Transaction
from server.db.tables import ClientRow, EventRow, ModelRow, ParticipantRow, RoundRow, StudyRow
from server.domain.errors import Rejected
from server.domain.rounds import Attendance


def find_study(tx: Transaction, name: str) -> StudyRow:
    """Raises Rejected `unknown-study`."""
    row = tx.session.scalars(select(StudyRow).where(StudyRow.name == name)).one_or_none()
    if row is None:
        raise unknown_study()
    return row


def lock_study(tx: Transaction, name: str) -> StudyRow:
    """The study, for a transaction that changes it. Raises Rejected `unknown-study`."""
    row = tx.session.scalars(select(StudyRow).where(StudyRow.name == name).with_for_update()).one_or_none()
    if row is None:
        raise unknown_study()
    return row


def unknown_study() -> Rejected:
    return Rejected("unknown-study", "there is no study of this name; ask for GET /v1/studies")


def find_client(tx: Transaction, study_id: int, name: str) -> ClientRow | None:
    return tx.session.get(ClientRow, (study_id, name))


def clients(tx: Transaction, study_id: int) -> Sequence[ClientRow]:
    """All members, whatever their state, by name."""
    return tx.session.scalars(select(ClientRow).where(ClientRow.study_id == study_id).order_by(ClientRow.name)).all()


def find_round(tx: Transaction, study_id: int, number: int) -> RoundRow:
    """Raises Rejected `round-unknown`."""
    row = tx.session.get(RoundRow, (study_id, number))
    if row is None:
        raise _unknown_round()
    return row


def share_round(tx: Transaction, study_id: int, number: int) -> RoundRow:
    """The round, held as it is until the transaction ends; many may hold it. Raises Rejected `round-unknown`."""
    wanted = select(RoundRow).where(RoundRow.study_id == study_id, RoundRow.number == number)
    row = tx.session.scalars(wanted.with_for_update(read=True)).one_or_none()
    if row is None:
        raise _unknown_round()
    return row


def _unknown_round() -> Rejected:
    return Rejected("round-unknown", "this study has had no such round")


def open_round(tx: Transaction, study_id: int) -> RoundRow | None:
    """The round under way, to look at."""
    wanted = select(RoundRow).where(RoundRow.study_id == study_id, RoundRow.ended_at.is_(None))
    return tx.session.scalars(wanted).one_or_none()


def lock_open_round(tx: Transaction, study_id: int) -> RoundRow | None:
    """The round under way, for a transaction that moves it."""
    wanted = select(RoundRow).where(RoundRow.study_id == study_id, RoundRow.ended_at.is_(None))
    return tx.session.scalars(wanted.with_for_update()).one_or_none()


def lock_round(tx: Transaction, study_id: int, number: int) -> RoundRow:
    """That round, for a transaction that moves it."""
    wanted = select(RoundRow).where(RoundRow.study_id == study_id, RoundRow.number == number)
    return tx.session.scalars(wanted.with_for_update()).one()


def lock_participant(tx: Transaction, round: RoundRow, client: str) -> ParticipantRow:
    """Raises Rejected `not-sampled`."""
    wanted = select(ParticipantRow).where(
        ParticipantRow.study_id == round.study_id, ParticipantRow.round == round.number, ParticipantRow.client == client
    )
    row = tx.session.scalars(wanted.with_for_update()).one_or_none()
    if row is None:
        raise Rejected("not-sampled", "this client takes no part in this round; wait for the next assignment")
    return row


def participants(tx: Transaction, round: RoundRow) -> Sequence[ParticipantRow]:
    """Everybody sampled in this round, by name."""
    wanted = select(ParticipantRow).where(
        ParticipantRow.study_id == round.study_id, ParticipantRow.round == round.number
    )
    return tx.session.scalars(wanted.order_by(ParticipantRow.client)).all()


def attendance(rows: Sequence[ParticipantRow]) -> Attendance:
    """What became of the sampled clients, read from their rows."""

    def names(state: str) -> list[str]:
        return [row.client for row in rows if row.state == state]

    sending = [row.client for row in rows if row.sending_since is not None]
    return Attendance(names("received"), names("refused"), names("sampled"), names("missing"), sending)


def latest_model(tx: Transaction, study_id: int) -> ModelRow | None:
    wanted = select(ModelRow).where(ModelRow.study_id == study_id).order_by(ModelRow.version.desc()).limit(1)
    return tx.session.scalars(wanted).one_or_none()


def append_event(tx: Transaction, study: StudyRow, kind: str, round: int | None = None) -> None:
    """Number it after the study's newest event; the study is locked by this transaction."""
    study.version += 1
    tx.session.add(EventRow(study_id=study.id, number=study.version, kind=kind, round=round, at=tx.now()))
