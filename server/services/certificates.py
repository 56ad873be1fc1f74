"""The certificate of a study, computed from its ledger and signed; never from rows that are not what was signed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from accounting.budget.ledger import Entry, LedgerError
from accounting.errors import InvalidArgument
from client_sdk.documents.certify import Computed, Facts, computed, issued
from client_sdk.protocol.study.certificate import SignedCertificate
from client_sdk.protocol.study.messages import ModelInfo
from client_sdk.protocol.study.plan_of import PlanDiffers
from client_sdk.protocol.wire.signing import CERTIFICATE
from server.db import rows
from server.db.comparison import DatabaseDiffers, require_as_signed
from server.db.ledger_store import entries, require_released
from server.db.session import Transaction
from server.db.tables import ModelRow, StudyRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.differences import FOUND_BEFORE, stopping_where_rows_differ
from server.services.views import model_info

_COMPUTING = threading.Lock()
_KEPT = 16


def certificate(coordinator: Coordinator, study: str, round: int | None = None) -> SignedCertificate:
    """Of the study as it is now, or of the model that `round` released.

    Raises:
        Rejected: `unknown-study`, `unknown-model`; `study-finished` (extra stop_reason `database-differs`).
    """

    def work(tx: Transaction) -> tuple[Facts, list[Entry]]:
        row, budget = rows.find_with_budget(tx, study)
        if row.stop_reason == "database-differs":
            raise DatabaseDiffers(study, FOUND_BEFORE)
        require_as_signed(tx, coordinator.signer, row, budget)
        if not rows.settings_of(row).privacy.rules.trains:
            raise Rejected("unknown-model", "a study of queries alone has no model: each of its answers is signed")
        facts = Facts(
            title=row.title,
            state=row.state,
            stop_reason=row.stop_reason,
            # Whole seconds: nobody asks for more of a date.
            issued_at=datetime.fromtimestamp(int(tx.now()), UTC),
            coordinator_key=coordinator.signer.public_key,
            head_signature=budget.signature,
            model=_model(tx, row, round),
        )
        return facts, entries(tx, row.id, 0, budget.entries)

    def signed() -> SignedCertificate:
        facts, ledger = coordinator.database.read("read-certificate", work)
        made = issued(_computed(coordinator, study, ledger, round), facts)
        signature = coordinator.signer.sign(CERTIFICATE, made.model_dump(mode="json"))
        return SignedCertificate(certificate=made, signature=signature)

    return stopping_where_rows_differ(coordinator, signed)


def _model(tx: Transaction, study: StudyRow, round: int | None) -> ModelInfo | None:
    if round is None:
        newest = rows.latest_model(tx, study.id)
        # No record went into the initial one.
        return None if newest is None or newest.version == 0 else _signed_for(tx, study, newest)
    row = tx.session.get(ModelRow, (study.id, round))
    if row is None:
        raise Rejected("unknown-model", "this round released no model: GET …/rounds shows which did")
    return _signed_for(tx, study, row)


def _signed_for(tx: Transaction, study: StudyRow, model: ModelRow) -> ModelInfo:
    require_released(tx, study, model)
    return model_info(model)


def _computed(coordinator: Coordinator, study: str, ledger: Sequence[Entry], round: int | None) -> Computed:
    """Once for a ledger and a round: it is the whole way from the first entry."""
    asked = study, round, "" if not ledger else ledger[-1].sha256
    with _COMPUTING:
        known = coordinator.certified.get(asked)
        if known is not None:
            return known
        try:
            made = computed(ledger, round)
        except (LedgerError, PlanDiffers, InvalidArgument) as error:
            raise DatabaseDiffers(study, str(error)) from error
        coordinator.certified[asked] = made
        while len(coordinator.certified) > _KEPT:
            coordinator.certified.pop(next(iter(coordinator.certified)))
        return made
