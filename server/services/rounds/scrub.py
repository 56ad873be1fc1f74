"""After a round: the updates go, their hashes stay."""

from __future__ import annotations

from sqlalchemy import select

from server.db import rows
from server.db.blobs import ROUNDS, optimisers_of, round_folder
from server.db.leases import Lease, commit_under_lease
from server.db.session import Transaction
from server.db.session_store import forget_shares
from server.db.tables import ModelRow, RoundRow, StudyRow
from server.services.coordinator import Coordinator
from study_protocol.wire.failpoints import failpoint, register

register("worker.before-scrub-files", "worker.after-scrub-files")

# Since the last write. One under way is cut off after seconds of silence, so none is that old.
_ABANDONED_UPLOAD_SECONDS = 3600.0


def scrub_round(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """Delete the files of an ended round, then remember that they are gone. Repeatable."""
    failpoint("worker.before-scrub-files")
    # Files before rows: killed in between, the round is still due and is cleared again.
    coordinator.blobs.clear(round_folder(study, number))
    superseded = coordinator.database.read("find-superseded", lambda tx: _superseded(tx, study, number))
    if superseded is not None:
        coordinator.blobs.remove(optimisers_of(study), superseded)
    failpoint("worker.after-scrub-files")

    def work(tx: Transaction) -> None:
        row = rows.find_round(tx, rows.find_study(tx, study).id, number)
        forget_shares(tx, row.study_id, number)
        tx.after_commit(lambda: coordinator.sessions.forget(study, number))
        row.scrubbed_at = row.scrubbed_at or tx.now()

    commit_under_lease(coordinator.database, lease, "scrub", work)


def tidy(coordinator: Coordinator) -> None:
    """Delete what killed processes left behind: half-written files, and files of rounds that are scrubbed."""
    coordinator.blobs.sweep(_ABANDONED_UPLOAD_SECONDS)
    for study in coordinator.blobs.folders(ROUNDS):
        for folder in coordinator.blobs.folders(study):
            _, name, number = folder.split("/")
            # Killed between an upload's file and its row, a process leaves a file that may be younger than the scrub.
            if coordinator.database.read("is-scrubbed", lambda tx, n=name, r=int(number): _is_scrubbed(tx, n, r)):
                coordinator.blobs.clear(folder)


def _superseded(tx: Transaction, study: str, number: int) -> str | None:
    """Return the optimiser state that the round's release replaced."""
    study_id = rows.find_study(tx, study).id
    newest = rows.latest_model(tx, study_id)
    base_version = rows.find_round(tx, study_id, number).base_version
    if base_version is None:
        return None
    base = tx.session.get_one(ModelRow, (study_id, base_version))
    # A round without a release did not replace its base, which is still the newest.
    if newest is None or newest.version <= base.version or newest.optimiser_sha256 == base.optimiser_sha256:
        return None
    return base.optimiser_sha256


def _is_scrubbed(tx: Transaction, study: str, number: int) -> bool:
    # By columns: a broken row must not keep the files of all other studies.
    statement = select(RoundRow.scrubbed_at).join(StudyRow, StudyRow.id == RoundRow.study_id)
    return tx.session.scalar(statement.where(StudyRow.name == study, RoundRow.number == number)) is not None
