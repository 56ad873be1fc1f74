"""Views of the coordinator: rows as messages, and every question that changes no row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

from sqlalchemy import select

from server.db import rows
from server.db.blobs import OpenedFile, models_of
from server.db.ledger_store import limits_of, reports_of, require_released
from server.db.raw_rows import raw_rows
from server.db.session import Transaction
from server.db.session_store import members_at_opening
from server.db.tables import BudgetRow, ClientRow, ModelRow, ParticipantRow, RoundRow, StudyRow
from server.db.tamper_check import DatabaseDiffers, require_as_signed
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.tampered_studies import FOUND_BEFORE, stopping_where_rows_differ
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import (
    BudgetLedger,
    BudgetStatement,
    LedgerHead,
    LimitStatement,
    Metrics,
    ModelInfo,
    PauseReason,
    Percentile,
    Refusal,
    Roster,
    RosterEntry,
    RoundClient,
    RoundList,
    RoundUnderWay,
    RoundView,
    Spent,
    Study,
)
from study_protocol.study.reasons import BY_OPERATOR, HOSPITALS_MISSING, QUESTIONS_FIRST, in_words

_REPORTING = threading.Lock()
_RESUMES = " The study resumes by itself when enough hospitals are back."
_RESUMES_AGAIN = (
    " It resumed by itself, and rounds failed again: it tries anew later if these cost nothing, else "
    "`wardround study resume STUDY`."
)


@dataclass(frozen=True)
class StoredModel:
    """A published model. `open` returns its file, which never changes. Raises FileNotFoundError: it is gone."""

    info: ModelInfo
    open: Callable[[], OpenedFile]


def roster(coordinator: Coordinator, study: str, round_number: int | None = None) -> Roster:
    """Return the members as they are, or, of a round that sums under masks, those active at its opening.

    Raises:
        Rejected: `unknown-study`.
    """

    def work(tx: Transaction) -> Roster:
        row = rows.find_study(tx, study)
        opened_with = None if round_number is None else members_at_opening(rows.find_session(tx, row.id, round_number))
        if opened_with is not None:
            then = [RosterEntry(client=name, public_key=key, state="active") for name, key in opened_with[1].items()]
            return Roster(study=study, members=then, fingerprint=opened_with[0])
        members = [roster_entry(client) for client in rows.clients(tx, row.id)]
        return Roster(study=study, members=members, fingerprint=row.roster_sha256)

    return coordinator.database.read("show-roster", work)


def list_rounds(
    coordinator: Coordinator,
    study: str,
    *,
    with_clients: bool,
    own_client: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> RoundList:
    """Return rounds above `after`. Raises Rejected `unknown-study`.

    with_clients  shows the participants, for administrators, leads and auditors
    own_client    shows a hospital its own part, which says whether its ledger knows of every update that it sent
    """

    def work(tx: Transaction) -> RoundList:
        statement = select(RoundRow).where(RoundRow.study_id == rows.find_study(tx, study).id, RoundRow.number > after)
        round_rows = tx.session.scalars(statement.order_by(RoundRow.number).limit(limit + 1)).all()
        more = round_rows[limit - 1].number if len(round_rows) > limit else None
        return RoundList(rounds=[_view_for(tx, row, with_clients, own_client) for row in round_rows[:limit]], next=more)

    return coordinator.database.read("list-rounds", work)


def show_round(
    coordinator: Coordinator, study: str, round_number: int, *, with_clients: bool, own_client: str | None = None
) -> RoundView:
    """Raises Rejected `unknown-study`, `round-unknown`."""

    def work(tx: Transaction) -> RoundView:
        return _view_for(tx, rows.find_round(tx, rows.find_study(tx, study).id, round_number), with_clients, own_client)

    return coordinator.database.read("show-round", work)


def _view_for(tx: Transaction, row: RoundRow, with_clients: bool, own_client: str | None) -> RoundView:
    model = tx.session.get(ModelRow, (row.study_id, row.number))
    if with_clients:
        return round_view(row, model, rows.participants(tx, row))
    part = None if own_client is None else tx.session.get(ParticipantRow, (row.study_id, row.number, own_client))
    return round_view(row, model, None if part is None else [part])


def read_budget(coordinator: Coordinator, study: str) -> BudgetStatement:
    """Return the statement that the newest ledger entry has the digest of. Other rows are not shown.

    Raises:
        Rejected: `unknown-study`, or `study-finished` (extra stop_reason `database-differs`), even if it had ended
        before.
    """

    def work(tx: Transaction) -> BudgetStatement:
        stored, cached = raw_rows(tx, study), coordinator.statements.get(study)
        # The same bytes were compared with what was signed, and this is what they say: it is neither old nor believed.
        if cached is not None and cached[0] == stored:
            return cached[1]
        row, budget = rows.find_with_budget(tx, study)
        if row.stop_reason == "database-differs":
            # Any difference, also an entry that only a walk of the whole ledger finds.
            raise DatabaseDiffers(study, FOUND_BEFORE)
        require_as_signed(tx, coordinator.signer, row, budget)
        statement = _statement(row, budget, _reports(coordinator, row, budget))
        coordinator.statements[study] = stored, statement
        return statement

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.read("read-budget", work))


def _reports(coordinator: Coordinator, study: StudyRow, row: BudgetRow) -> list[list[dict[str, Any]]]:
    """Return the reports, computed on demand, once for all charges so far: no round waits for them."""
    charged = row.state["accounts"], row.state["finished"]
    with _REPORTING:
        cached = coordinator.reports.get(study.name)
        if cached is None or cached[0] != charged:
            cached = coordinator.reports[study.name] = charged, reports_of(study, row)
        return cached[1]


def _statement(study: StudyRow, row: BudgetRow, reports: list[list[dict[str, Any]]]) -> BudgetStatement:
    return BudgetStatement(
        study=study.name,
        state=study.state,
        round=row.round,
        max_steps=row.max_steps,
        # A study may have been stopped without a word in the ledger.
        can_continue=row.can_continue and study.stop_reason is None,
        pause_reason=pause_reason(study),
        stop_reason=study.stop_reason,
        # Ready since the ledger was written. The slow numbers are ready since the first request for them.
        limits=[
            LimitStatement.model_validate({**limit, "reports": more})
            # Unprotected levels come last, and have none.
            for limit, more in zip(limits_of(study, row), chain(reports, repeat([])), strict=False)
        ],
        percentiles=[Percentile.model_validate(percentile) for percentile in row.percentiles],
        ledger=BudgetLedger(entries=row.entries, head=f"sha256:{row.head_sha256}", signature=row.signature),
    )


def locate_model(coordinator: Coordinator, study: str, version: int | None = None) -> StoredModel:
    """Return a published model. Version None: the latest. A file that the ledger does not name is not shown.

    Raises:
        Rejected: `unknown-study`, `unknown-model`, or `study-finished` (extra stop_reason `database-differs`).
    """

    def work(tx: Transaction) -> ModelRow | None:
        study_row = rows.find_study(tx, study)
        row = (
            rows.latest_model(tx, study_row.id)
            if version is None
            else tx.session.get(ModelRow, (study_row.id, version))
        )
        if row is not None:
            require_released(tx, study_row, row)
        return row

    row = stopping_where_rows_differ(coordinator, lambda: coordinator.database.read("locate-model", work))
    if row is None:
        raise Rejected("unknown-model", "no such version: it is not published yet, or its round was abandoned")

    def opened() -> OpenedFile:
        file = coordinator.blobs.open(models_of(study), row.sha256)
        if file is None:
            raise FileNotFoundError(f"the file of model {row.version} is gone: restore the blobs from their backup")
        return file

    return StoredModel(model_info(row), opened)


def at(seconds: float) -> datetime:
    """Return a time of the database, in seconds since the epoch, as messages say it."""
    return datetime.fromtimestamp(seconds, UTC)


def model_info(row: ModelRow) -> ModelInfo:
    return ModelInfo(version=row.version, sha256=row.sha256, bytes=row.bytes, clip_norm=row.clip_norm)


def pause_reason(row: StudyRow) -> PauseReason | None:
    """Return why the study is paused. None if it is not."""
    code = row.pause_reason
    if code is None:
        return None
    more = ""
    if code in HOSPITALS_MISSING:
        more = _RESUMES_AGAIN if row.resumed_alone else _RESUMES
    elif code == BY_OPERATOR:
        more = _paused_by_operator(rows.settings_of(row))
    elif code != QUESTIONS_FIRST:
        more = " No round of training begins until its lead resumes the study."
    return PauseReason(code=code, detail=in_words(code) + more)


def _paused_by_operator(settings: AnySettings) -> str:
    if not settings.privacy.rules.trains:
        return " No question is asked."
    return f" No round of training begins.{'' if settings.statistics is None else ' Questions are answered.'}"


def study(
    row: StudyRow,
    model: ModelRow | None,
    *,
    clients: int,
    invited: int,
    rounds: int,
    under_way: RoundUnderWay | None,
    coordinator_key: str,
) -> Study:
    return Study(
        study=row.name,
        title=row.title,
        state=row.state,
        state_since=at(row.state_since),
        pause_reason=pause_reason(row),
        stop_reason=row.stop_reason,
        resumed_at=None if row.resumed_at is None else at(row.resumed_at),
        settings=rows.settings_of(row),
        settings_sha256=row.settings_sha256,
        model=None if model is None else model_info(model),
        clients=clients,
        invited=invited,
        rounds=rounds,
        under_way=under_way,
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
        query=row.query,
        metrics=metrics,
        clip_norm=None if model is None else model.clip_norm,
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
