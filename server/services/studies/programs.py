"""The program of each hospital: kept from its signed requests, and shown to the readers of its study."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from sqlalchemy import select, update

from server.db import rows
from server.db.row_checks import WRONG_VALUE
from server.db.session import Transaction
from server.db.tables import ClientRow, StudyRow
from server.domain.versions import needed_protocol
from server.services.coordinator import Coordinator
from server.services.views import at
from study_protocol.study.site_versions import SiteVersions, compare
from study_protocol.versions import PROTOCOL, ProgramVersion, is_protocol, is_version, program_version


@lru_cache(maxsize=1024, typed=True)
def stored_program(version: object, protocol: object) -> ProgramVersion | None:
    """Return the program in two columns of a client. None where no version is stored, or one that was never written."""
    if isinstance(version, str) and isinstance(protocol, int) and is_version(version) and is_protocol(protocol):
        return ProgramVersion(version, protocol)
    return None


def note_program(coordinator: Coordinator, study: str, client: str, program: ProgramVersion) -> None:
    """Keep the program that a verified request of a member named. Call it only where another one is stored.

    Its row is passed over while another transaction holds it: the next request names the program again.
    """
    is_new = ClientRow.program.is_distinct_from(program.version) | ClientRow.protocol.is_distinct_from(program.protocol)
    member = (
        select(ClientRow.study_id)
        .join(StudyRow, StudyRow.id == ClientRow.study_id)
        .where(StudyRow.name == study, ClientRow.name == client, is_new)
        # Without a conflict with rows that refer to the client, such as those of a round that opens.
        .with_for_update(of=ClientRow, key_share=True, skip_locked=True)
    )

    def work(tx: Transaction) -> None:
        study_id = tx.session.scalar(member)
        if study_id is None:
            return
        named = {"program": program.version, "protocol": program.protocol, "program_since": tx.now()}
        statement = update(ClientRow).where(ClientRow.study_id == study_id, ClientRow.name == client)
        # By columns, because values that nobody of ours wrote there must not keep the true ones out.
        tx.session.execute(statement.values(**named, written_by=tx.name).execution_options(synchronize_session=False))

    coordinator.database.write("note-program", work)


def list_versions(coordinator: Coordinator, study: str) -> SiteVersions:
    """Return the programs of the active members. Raises Rejected `unknown-study`."""

    def work(tx: Transaction) -> SiteVersions:
        row = rows.find_study(tx, study)
        needed = needed_protocol(row.protocol, row.settings)
        running = ProgramVersion(program_version(), PROTOCOL)
        columns = select(ClientRow.name, ClientRow.program, ClientRow.protocol, ClientRow.program_since)
        members = columns.where(ClientRow.study_id == row.id, ClientRow.state == "active").order_by(ClientRow.name)
        return SiteVersions(
            study=study,
            coordinator_version=running.version,
            coordinator_protocol=running.protocol,
            needed_protocol=needed,
            hospitals=[
                compare(
                    client,
                    stored_program(version, protocol),
                    _time(since),
                    needed_protocol=needed,
                    coordinator=running,
                )
                for client, version, protocol, since in tx.session.execute(members)
            ],
        )

    return coordinator.database.read("list-versions", work)


def _time(seconds: float | None) -> datetime | None:
    """Return the time. None where there is none, or none that the coordinator wrote."""
    try:
        return None if seconds is None else at(seconds)
    except (*WRONG_VALUE, OSError):
        return None
