"""The history of rounds."""

from __future__ import annotations

from sqlalchemy import select

from client_sdk.protocol.study.messages import RoundList, RoundView
from server.db.repositories import find_round, find_study, participants
from server.db.session import Transaction
from server.db.tables import ModelRow, ParticipantRow, RoundRow
from server.services import views
from server.services.coordinator import Coordinator


def list_rounds(
    coordinator: Coordinator,
    study: str,
    *,
    with_clients: bool,
    own: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> RoundList:
    """Rounds above `after`.

    `with_clients` shows who took part: for operators only. `own` shows a hospital its own part, from which it sees
    whether its ledger knows of every update that it sent. Raises Rejected `unknown-study`.
    """

    def work(tx: Transaction) -> RoundList:
        wanted = select(RoundRow).where(RoundRow.study_id == find_study(tx, study).id, RoundRow.number > after)
        rows = tx.session.scalars(wanted.order_by(RoundRow.number).limit(limit + 1)).all()
        more = str(rows[limit - 1].number) if len(rows) > limit else None
        return RoundList(rounds=[_view(tx, row, with_clients, own) for row in rows[:limit]], next=more)

    return coordinator.database.read("list-rounds", work)


def show_round(
    coordinator: Coordinator, study: str, round: int, *, with_clients: bool, own: str | None = None
) -> RoundView:
    """Raises Rejected `unknown-study`, `round-unknown`."""

    def work(tx: Transaction) -> RoundView:
        return _view(tx, find_round(tx, find_study(tx, study).id, round), with_clients, own)

    return coordinator.database.read("show-round", work)


def _view(tx: Transaction, row: RoundRow, with_clients: bool, own: str | None) -> RoundView:
    model = tx.session.get(ModelRow, (row.study_id, row.number))
    if with_clients:
        return views.round_view(row, model, participants(tx, row))
    part = None if own is None else tx.session.get(ParticipantRow, (row.study_id, row.number, own))
    return views.round_view(row, model, None if part is None else [part])
