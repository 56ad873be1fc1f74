"""Numbers measured on a declared evaluation set outside the guarantee, put beside a model."""

from __future__ import annotations

from client_sdk.protocol.study.messages import Metrics
from server.db.repositories import append_event, lock_study
from server.db.session import Transaction
from server.db.tables import ModelRow
from server.domain.errors import Rejected
from server.domain.ports import Written
from server.services.coordinator import Coordinator


def record(coordinator: Coordinator, study: str, version: int, metrics: Metrics) -> Written[Metrics]:
    """Repeatable; later numbers for the same model replace earlier ones. Raises `unknown-study`, `unknown-model`."""

    def work(tx: Transaction) -> Written[Metrics]:
        row = lock_study(tx, study)
        model = tx.session.get(ModelRow, (row.id, version))
        if model is None:
            raise Rejected("unknown-model", "no such version: it is not published yet, or its round came to nothing")
        fresh, written = model.metrics is None, metrics.model_dump(mode="json")
        if model.metrics != written:
            model.metrics = written
            append_event(tx, row, "metrics-recorded", version)
        return Written(metrics, created=fresh)

    return coordinator.database.write("record-metrics", work)
