"""What hospitals tell of the columns that a study lets a site lack."""

from __future__ import annotations

from server.db import rows
from server.db.session import Transaction
from server.db.tables import ClientRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from study_protocol.study.lacking import HospitalLacks, LackingColumns, LackingList, columns_that_may_lack


def put(coordinator: Coordinator, study: str, client: str, lacking: LackingColumns) -> LackingColumns:
    """Keep what a member tells of its own table, in place of what it told before. Repeatable.

    Raises:
        Rejected: `unknown-study`, `not-enrolled`, `unknown-client`, `revoked` (also withdrawn),
            `invalid-request` (a column that the study lets no site lack).
    """

    def work(tx: Transaction) -> LackingColumns:
        row = rows.lock_study(tx, study)
        member = rows.known_client(tx, row.id, client)
        if member.state != "active":
            raise Rejected("revoked", "this client no longer takes part: ask the study's lead for an invitation")
        unknown = {*(lacking.columns or ())}.difference(columns_that_may_lack(rows.settings_of(row).as_json()))
        if unknown:
            raise Rejected(
                "invalid-request",
                f"columns: the study lets a site lack none of {len(unknown)} of these: name only columns that its "
                "settings declare with site-may-lack",
            )
        member.lacking_columns = None if lacking.columns is None else sorted(lacking.columns)
        return _columns_of(member)

    return coordinator.database.write("tell-lacking-columns", work)


def list_all(coordinator: Coordinator, study: str) -> LackingList:
    """Return what every member has told. Raises Rejected `unknown-study`."""

    def work(tx: Transaction) -> LackingList:
        members = rows.clients(tx, rows.find_study(tx, study).id)
        hospitals = [HospitalLacks(client=member.name, columns=_columns_of(member).columns) for member in members]
        return LackingList(study=study, hospitals=hospitals)

    return coordinator.database.read("list-lacking-columns", work)


def _columns_of(member: ClientRow) -> LackingColumns:
    return LackingColumns(columns=None if member.lacking_columns is None else tuple(member.lacking_columns))
