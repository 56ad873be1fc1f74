"""Signed heads of the ledger by witness. The newest one of each is kept, and shown to all readers."""

from __future__ import annotations

from sqlalchemy import or_, select

from server.db.rows import known_client, settings_of
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow, StudyRow, WitnessRow
from server.domain.errors import Rejected
from study_protocol.study.messages import LedgerHead, WitnessedHead
from study_protocol.study.plan_of import hides_attendance
from study_protocol.study.witness import from_header, require_witnessed


def keep_header(tx: Transaction, study: StudyRow, client: str, header: str | None) -> None:
    """Keep the signed head of a request that carries one. Raises as `keep_witness`."""
    if header is not None:
        key = known_client(tx, study.id, client).public_key
        keep_witness(tx, study.id, from_header(header, study=study.name, client=client, public_key=key))


def keep_witness(tx: Transaction, study_id: int, witness: WitnessedHead) -> bool:
    """Keep the head if it is newer than the one kept of this client, and return whether it is.

    Raises:
        SigningError: the signature is not that of the key beside it.
        Rejected: `unknown-head`, for a head that is not on this ledger.
    """
    require_witnessed(witness)
    # First, because a number may be larger than a database can hold.
    is_recorded = witness.head.entries <= tx.session.get_one(BudgetRow, study_id).entries
    entry = tx.session.get(LedgerRow, (study_id, witness.head.entries)) if is_recorded else None
    # Never passed on: it would stop the others, who cannot tell whose ledger is the right one.
    if entry is None or entry.sha256 != witness.head.sha256:
        raise Rejected(
            "unknown-head", "the signed head is not on this ledger: compare ledgers with the other hospitals"
        )
    row = tx.session.get(WitnessRow, (study_id, witness.client))
    if row is None:
        tx.session.add(_row(study_id, witness))
        return True
    # An older one is a repetition that was long on its way. Under another key the same head is news.
    repeated = (row.entries, row.public_key) == (witness.head.entries, witness.public_key)
    if repeated or row.entries > witness.head.entries:
        return False
    row.public_key, row.entries = witness.public_key, witness.head.entries
    row.sha256, row.signature = witness.head.sha256, witness.signature
    return True


def witnesses(tx: Transaction, study: StudyRow) -> list[WitnessedHead]:
    """Return the newest signed head of each client, by name.

    If the sampling of clients is credited, a signed head would tell in which round its hospital was drawn. Then no
    heads of clients are shown before the study has ended. Afterwards only the signers of the ledger's last entry are
    shown. Outside witnesses are never drawn.
    """
    statement = select(WitnessRow).where(WitnessRow.study_id == study.id).order_by(WitnessRow.client)
    settings = settings_of(study)
    if hides_attendance(settings):
        outside = WitnessRow.client.in_([witness.name for witness in settings.schedule.witnesses])
        last = WitnessRow.entries == tx.session.get_one(BudgetRow, study.id).entries
        statement = statement.where(or_(outside, last) if study.state == "finished" else outside)
    return [_view(study.name, row) for row in tx.session.scalars(statement)]


def _row(study_id: int, witness: WitnessedHead) -> WitnessRow:
    return WitnessRow(
        study_id=study_id,
        client=witness.client,
        public_key=witness.public_key,
        entries=witness.head.entries,
        sha256=witness.head.sha256,
        signature=witness.signature,
    )


def _view(study: str, row: WitnessRow) -> WitnessedHead:
    head = LedgerHead(study=study, entries=row.entries, sha256=row.sha256)
    return WitnessedHead(client=row.client, public_key=row.public_key, head=head, signature=row.signature)
