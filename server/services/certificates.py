"""The certificate of a study, computed from its ledger and signed. Rows that differ from the ledger are never used.

Earlier results are found by the ledger's head, before any entry of the ledger is read. Otherwise entries are read that
this process has not walked over yet, and for an earlier round those that follow the milestone before it.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import select

from accounting.budget.history import Walk
from accounting.budget.ledger import Entry, LedgerError
from accounting.errors import InvalidArgument
from server.db import rows
from server.db.ledger_store import entries, require_released
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import ModelRow, StudyRow
from server.db.tamper_check import DatabaseDiffers, require_as_signed
from server.domain.errors import Rejected
from server.services.coordinator import Certified, Coordinator
from server.services.queries.show import as_signed
from server.services.results import ResultModels, averaged, certified_mean
from server.services.tampered_studies import FOUND_BEFORE, stopping_where_rows_differ
from server.services.views import model_info
from study_protocol.documents.by_hospital import DistanceBlocks
from study_protocol.documents.certify import CertificateAccount, Facts, account_of, bound_by, issue_certificate
from study_protocol.study.certificate import SignedCertificate
from study_protocol.study.messages import ModelInfo
from study_protocol.study.plan_of import PlanDiffers
from study_protocol.wire.signing import CERTIFICATE

_COMPUTING = threading.Lock()
_CERTIFIED, _WALKS = 1024, 16


def certificate(coordinator: Coordinator, study: str, round_number: int | None = None) -> SignedCertificate:
    """Return the certificate of the study as it is now, or of the model that `round_number` released.

    Raises:
        Rejected: `unknown-study`, `unknown-model`, or `study-finished` (extra stop_reason `database-differs`).
    """

    def work(tx: Transaction) -> tuple[Facts, int, Entry, ResultModels | None]:
        row, budget = rows.find_with_budget(tx, study)
        if row.stop_reason == "database-differs":
            raise DatabaseDiffers(study, FOUND_BEFORE)
        newest = require_as_signed(tx, coordinator.signer, row, budget)
        if not rows.settings_of(row).privacy.rules.trains:
            raise Rejected("unknown-model", "a study of queries alone has no model: each of its answers is signed")
        facts = Facts(
            title=row.title,
            state=row.state,
            stop_reason=row.stop_reason,
            # Whole seconds are enough for a date.
            issued_at=datetime.fromtimestamp(int(tx.now()), UTC),
            coordinator_key=coordinator.signer.public_key,
            head_signature=budget.signature,
            model=_model(tx, row, round_number),
            distances=_distances(coordinator, tx, row) if round_number is None else None,
        )
        return facts, row.id, newest, averaged(tx, study) if round_number is None else None

    def signed() -> SignedCertificate:
        facts, study_id, newest, result = coordinator.database.read("read-certificate", work)
        if result is not None:
            facts = replace(facts, result=certified_mean(coordinator, result))
        body = issue_certificate(_computed(coordinator, study, study_id, newest, round_number), facts)
        signature = coordinator.signer.sign(CERTIFICATE, body.model_dump(mode="json"))
        return SignedCertificate(certificate=body, signature=signature)

    return stopping_where_rows_differ(coordinator, signed)


def _model(tx: Transaction, study: StudyRow, round_number: int | None) -> ModelInfo | None:
    if round_number is None:
        newest = rows.latest_model(tx, study.id)
        # No record went into the initial one.
        return None if newest is None or newest.version == 0 else _signed_for(tx, study, newest)
    row = tx.session.get(ModelRow, (study.id, round_number))
    if row is None:
        raise Rejected("unknown-model", "this round released no model: GET …/rounds shows which did")
    return _signed_for(tx, study, row)


def _distances(coordinator: Coordinator, tx: Transaction, study: StudyRow) -> DistanceBlocks | None:
    """Return the newest answer by hospital of how much training has cost each patient. Raises RowBroken."""
    answered = (QueryRow.study_id == study.id, QueryRow.state == "answered")
    for row in tx.session.scalars(select(QueryRow).where(*answered).order_by(QueryRow.number.desc())):
        if row.answer is not None and row.document["question"]["kind"] == "distances":
            blocks = DistanceBlocks.of(as_signed(coordinator, row).published)
            if blocks is not None:
                return blocks
    return None


def _signed_for(tx: Transaction, study: StudyRow, model: ModelRow) -> ModelInfo:
    require_released(tx, study, model)
    return model_info(model)


def _computed(
    coordinator: Coordinator, study: str, study_id: int, newest: Entry, round_number: int | None
) -> CertificateAccount:
    """Return the numbers of the ledger with this head, up to the charge of `round_number`."""
    key = study, round_number
    cached = coordinator.certified.get(key)
    if cached is not None and cached.computed.sha256 == newest.sha256:
        return cached.computed
    # One at a time: it is computing, and others want this process, too.
    with _COMPUTING:
        cached = coordinator.certified.get(key)
        if cached is None or cached.computed.sha256 != newest.sha256:
            try:
                cached = coordinator.certified[key] = _certified(
                    coordinator, study, study_id, newest, round_number, cached
                )
            except (LedgerError, PlanDiffers, InvalidArgument) as error:
                coordinator.walks.pop(study, None)
                raise DatabaseDiffers(study, str(error)) from error
            while len(coordinator.certified) > _CERTIFIED:
                coordinator.certified.pop(next(iter(coordinator.certified)))
        return cached.computed


def _certified(
    coordinator: Coordinator,
    study: str,
    study_id: int,
    newest: Entry,
    round_number: int | None,
    cached: Certified | None,
) -> Certified:
    walk = _walk(coordinator, study, study_id, newest)
    told_by, bound = walk.told_by(round_number), bound_by(walk.named_models, newest, walk.begun, round_number)
    if cached is not None and cached.told_by == told_by:
        # Later rounds do not change an earlier one's numbers.
        return Certified(told_by, replace(cached.computed, entries=newest.sequence, sha256=newest.sha256, bound=bound))
    entries = _entries(coordinator, study_id, *walk.since(round_number))
    return Certified(told_by, account_of(walk.opening, walk.history(round_number, entries), newest, bound))


def _walk(coordinator: Coordinator, study: str, study_id: int, newest: Entry) -> Walk:
    """Return this process's walk along the study's ledger, up to its newest entry."""
    # Out of its place, and in again as the one that was used last.
    walk = coordinator.walks.pop(study, None)
    if walk is None or walk.newest.sequence > newest.sequence:
        (opening,) = _entries(coordinator, study_id, 0, 1)
        walk = Walk(opening)
    walk.extend(_entries(coordinator, study_id, walk.newest.sequence, newest.sequence))
    if walk.newest.sha256 != newest.sha256:
        raise LedgerError(newest.sequence, "is not the head that was signed")
    coordinator.walks[study] = walk
    while len(coordinator.walks) > _WALKS:
        coordinator.walks.pop(next(iter(coordinator.walks)))
    return walk


def _entries(coordinator: Coordinator, study_id: int, after: int, last: int) -> list[Entry]:
    """Return the entries above `after`, up to `last`."""
    if last <= after:
        return []
    return coordinator.database.read("read-ledger", lambda tx: entries(tx, study_id, after, last - after))
