"""Rows as the messages that leave the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from client_sdk.protocol.study.messages import (
    LedgerHead,
    Metrics,
    ModelInfo,
    Refusal,
    RosterEntry,
    RoundClient,
    RoundView,
    Spent,
    Study,
)
from server.db.repositories import settings_of
from server.db.tables import BudgetRow, ClientRow, ModelRow, ParticipantRow, RoundRow, StudyRow


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def model_info(row: ModelRow) -> ModelInfo:
    return ModelInfo(version=row.version, sha256=row.sha256, bytes=row.bytes)


def study(row: StudyRow, model: ModelRow | None, *, clients: int, rounds: int, coordinator_key: str) -> Study:
    return Study(
        study=row.name,
        title=row.title,
        state=row.state,
        stop_reason=row.stop_reason,
        settings=settings_of(row),
        settings_sha256=row.settings_sha256,
        model=None if model is None else model_info(model),
        clients=clients,
        rounds=rounds,
        coordinator_key=coordinator_key,
        created_at=at(row.created_at),
    )


def roster_entry(row: ClientRow) -> RosterEntry:
    return RosterEntry(client=row.name, public_key=row.public_key, state=row.state)


def ledger_head(study: str, row: BudgetRow) -> LedgerHead:
    return LedgerHead(study=study, entries=row.entries, sha256=row.head_sha256)


def round_view(row: RoundRow, model: ModelRow | None, clients: Sequence[ParticipantRow] | None) -> RoundView:
    metrics = None if model is None or model.metrics is None else Metrics.model_validate(model.metrics)
    return RoundView(
        round=row.number,
        state=row.state,
        model_version=None if model is None else model.version,
        started_at=at(row.started_at),
        deadline=at(row.deadline),
        ended_at=None if row.ended_at is None else at(row.ended_at),
        reason=row.reason,
        metrics=metrics,
        spent=None if row.spent is None else [Spent.model_validate(limit) for limit in row.spent],
        clients=None if clients is None else [_round_client(client) for client in clients],
    )


def refusal_of(row: ParticipantRow) -> Refusal | None:
    if row.refusal_code is None:
        return None
    return Refusal(code=row.refusal_code, detail=row.refusal_detail or "")


def _round_client(row: ParticipantRow) -> RoundClient:
    return RoundClient.model_validate(
        {"client": row.client, "state": row.state, "sha256": row.sha256, "refusal": refusal_of(row)}
    )
