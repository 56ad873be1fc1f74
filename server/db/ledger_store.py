"""The ledger and the budget row that stands for all of it, changed together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import func, select

from accounting.budget.bodies import RosterChange, Standing
from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, Kind, append, digest
from accounting.budget.releases import named_models
from accounting.plan.statistics import AnyPlan
from server.db.rows import active_members, settings_of
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow, ModelRow, RoundRow, StudyRow
from server.db.tamper_check import DatabaseDiffers, entry_of, require_as_signed, require_whole
from server.signing_key import SigningKey
from study_protocol.study.messages import LedgerHead, ModelInfo
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import LEDGER_HEAD, canonical_json, roster_fingerprint

_LOST_MODEL = "a model that the ledger names is missing in the database"
_OTHER_MODEL = "a model in the database is not the one that the signed ledger names"


@dataclass(frozen=True)
class Statement:
    """The statement of a budget in `state`, without the numbers that take long. Computed while no row is locked."""

    state: Mapping[str, Any]
    limits: list[Any]
    percentiles: list[Any]

    @classmethod
    def of(cls, budget: Budget) -> Self:
        """Compute the statement now, from every account."""
        return cls(budget.state(), budget.statements(whole=False), budget.percentiles())


@dataclass
class LedgerAccount:
    """One study's budget inside one transaction, its row locked."""

    tx: Transaction
    signer: SigningKey
    study: StudyRow
    row: BudgetRow
    budget: Budget
    newest: Entry

    def record(
        self, kind: Kind, round_number: int | None, event: Mapping[str, Any], ready: Statement | None = None
    ) -> None:
        """Apply one event to the budget, append it, and write the statement and the signed head beside it.

        `ready`: the result of `statement_after`, used if it is still that of the budget's state.

        Raises:
            accounting.LedgerError: the event cannot happen now, and no row is written.
        """
        # Before the row is added: an event that cannot happen raises here and leaves no trace.
        self.budget.happen(self.newest.sequence + 1, kind, round_number, event)
        self._append(kind, round_number, event, _write_statement(self.row, self.budget, ready))

    def record_roster(self, change: RosterChange) -> None:
        """Record that a member came, left or has another key. No budget is spent."""
        self._record_unspent("roster", None, {"change": change})

    def record_operated(self, act: Mapping[str, Any]) -> None:
        """Record what a person at the coordinator did. No budget is spent."""
        self._record_unspent("operated", None, act)

    def record_release(self, model: ModelRow) -> None:
        """Record that a model is released, or the initial one set: from now on no other file passes for it.

        Raises:
            DatabaseDiffers: the ledger names another file already.
        """
        if _release_entry(self.tx, self.study, model.version) is not None:
            # The database was set back to before the release: no second entry, and no second file.
            require_released(self.tx, self.study, model)
            return
        norm = {} if model.clip_norm is None else {"clip_norm": model.clip_norm}
        self._record_unspent("released", model.version or None, {"sha256": model.sha256, "bytes": model.bytes, **norm})

    def _record_unspent(self, kind: Kind, round_number: int | None, event: Mapping[str, Any]) -> None:
        self.budget.happen(self.newest.sequence + 1, kind, round_number, event)
        self._append(kind, round_number, event, Statement(self.row.state, self.row.limits, self.row.percentiles))

    def _append(self, kind: Kind, round_number: int | None, event: Mapping[str, Any], statement: Statement) -> None:
        standing = _standing(self.tx, self.study, self.budget, statement)
        entry = append(self.newest, kind, round_number, {**event, **standing.to_dict()})
        self.tx.session.add(_ledger_row(self.tx, self.row.study_id, entry))
        self.newest = entry
        _sign(self.row, self.signer, self.study.name, entry)

    def conclude(
        self, kind: Kind, round_row: RoundRow, event: Mapping[str, Any], ready: Statement | None = None
    ) -> None:
        """Record what became of a round's reservation, and beside the round what every limit has spent by then.

        Raises:
            accounting.LedgerError: as `record`.
        """
        self.record(kind, round_row.number, event, ready)
        fields = ("level", "definition", "epsilon", "spent")
        # An unprotected level is stated with no ε, because it has no budget to spend.
        limited = [limit for limit in self.row.limits if limit["epsilon"] is not None]
        round_row.spent = [{name: limit[name] for name in fields} | _used_parts(limit) for limit in limited]


def _used_parts(limit: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many steps and squares a limit has used, where they are counted."""
    parts: dict[str, Any] = limit.get("progress", {})
    return {name: part["used"] for name in ("steps", "squares") if (part := parts.get(name)) is not None}


def budget_of(tx: Transaction, signer: SigningKey, study: StudyRow) -> Budget:
    """Return the study's budget, to look at. Raises DatabaseDiffers: settings, roster or budget are not as signed."""
    row = tx.session.get_one(BudgetRow, study.id)
    require_as_signed(tx, signer, study, row)
    return _restored(study, row)


def attempt_under_way(tx: Transaction, study: StudyRow) -> int | None:
    """Return the place of the round of training under way in the study's noise schedule, or None without one.

    A round is reserved once, and no other one while it is under way: the count stays until it has ended.
    """
    return tx.session.get_one(BudgetRow, study.id).state.get("attempts")


def open_account(tx: Transaction, signer: SigningKey, study: StudyRow, plan: AnyPlan) -> None:
    """Start the ledger of a new study. The caller has made sure that one round fits (`Budget.open`)."""
    row, budget = BudgetRow(study_id=study.id, max_steps=plan.max_steps), Budget(plan)
    statement = _write_statement(row, budget)
    event = {"study": study.name, "settings": study.settings, "plan": plan.to_dict()}
    entry = append(None, "opened", None, {**event, **_standing(tx, study, budget, statement).to_dict()})
    _sign(row, signer, study.name, entry)
    tx.session.add(_ledger_row(tx, study.id, entry))
    tx.session.add(row)


def lock_account(tx: Transaction, signer: SigningKey, study: StudyRow) -> LedgerAccount:
    """Return the study's account, locked until this transaction ends.

    Raises:
        DatabaseDiffers: settings, roster or budget are not what was signed.
    """
    row = tx.session.get_one(BudgetRow, study.id, with_for_update=True)
    newest = require_as_signed(tx, signer, study, row)
    return LedgerAccount(tx, signer, study, row, _restored(study, row), newest)


def require_unchanged(tx: Transaction, signer: SigningKey, study: StudyRow, *, whole: bool = False) -> None:
    """Check that settings, roster and budget are what was signed. `whole`: every entry of the ledger, too.

    Raises:
        DatabaseDiffers: they are not.
    """
    row = tx.session.get_one(BudgetRow, study.id)
    require_as_signed(tx, signer, study, row)
    if whole:
        require_whole(tx, study, row)
        _require_all_released(tx, study)


def statement_after(
    tx: Transaction, signer: SigningKey, study: StudyRow, kind: Kind, round_number: int | None, event: Mapping[str, Any]
) -> Statement:
    """Return the statement of the budget once this event is recorded.

    Raises:
        DatabaseDiffers: settings, roster or budget are not what was signed.
    """
    row = tx.session.get_one(BudgetRow, study.id)
    require_as_signed(tx, signer, study, row)
    budget = _restored(study, row)
    budget.happen(row.entries + 1, kind, round_number, event)
    return Statement.of(budget)


def limits_of(study: StudyRow, row: BudgetRow) -> list[dict[str, Any]]:
    """Return the limits as statements show them, without reports.

    They are ready since the ledger was written. Versions before statements named the grounds of a chance wrote them
    differently: those are computed again from the same state.
    """
    if all("guess_from" in (limit["certificate"] or {"guess_from": None}) for limit in row.limits):
        return row.limits
    return _restored(study, row).statements(whole=False)


def reports_of(study: StudyRow, row: BudgetRow) -> list[list[dict[str, Any]]]:
    """Return the tighter numbers beside each limit, as the budget's state gives them.

    This takes tenths of a second for each limit.
    """
    return _restored(study, row).reports()


def _restored(study: StudyRow, row: BudgetRow) -> Budget:
    # The plan is the settings: there is no second place for it.
    return Budget.restore(plan_of(settings_of(study)), row.state)


def entries(tx: Transaction, study_id: int, after: int, limit: int) -> list[Entry]:
    """Return at most `limit` entries above `after`, in order."""
    entries_after = select(LedgerRow).where(LedgerRow.study_id == study_id, LedgerRow.sequence > after)
    return [entry_of(row) for row in tx.session.scalars(entries_after.order_by(LedgerRow.sequence).limit(limit))]


def settled_at(tx: Transaction, study: StudyRow, round_number: int) -> tuple[int, str]:
    """Return the sequence and hash of the entry that settled a round. No later entry moves it.

    Raises:
        DatabaseDiffers: the ledger holds none.
    """
    statement = select(LedgerRow.sequence, LedgerRow.sha256).where(
        LedgerRow.study_id == study.id, LedgerRow.round == round_number, LedgerRow.kind == "settled"
    )
    entry = tx.session.execute(statement).one_or_none()
    if entry is None:
        raise DatabaseDiffers(study.name, "its ledger does not hold the entry that settled a round")
    return entry.sequence, entry.sha256


def names_models(tx: Transaction, study: StudyRow) -> bool:
    """Return whether the study's ledger names its models: it does from the initial one on, or never."""
    return _release_entry(tx, study, 0) is not None


def require_released(tx: Transaction, study: StudyRow, model: ModelRow) -> None:
    """Check that a model's row is the one that the ledger names, where it names models.

    Raises:
        DatabaseDiffers: it names another file, or none for this round.
    """
    if not names_models(tx, study):
        return
    entry = _release_entry(tx, study, model.version)
    release = None if entry is None else entry_of(entry).body
    if release is None or _file_of(release) != (model.sha256, model.bytes, model.clip_norm):
        raise DatabaseDiffers(study.name, _OTHER_MODEL)


def require_base(tx: Transaction, study: StudyRow, model: ModelRow, round_number: int) -> None:
    """Check that a round begins with the newest model that the ledger names before it. Raises as `require_released`."""
    require_released(tx, study, model)
    of_round = func.coalesce(LedgerRow.round, 0)
    earlier_releases = (LedgerRow.study_id == study.id, LedgerRow.kind == "released", of_round < round_number)
    newest = tx.session.scalar(select(func.max(of_round)).where(*earlier_releases))
    if newest is not None and newest != model.version:
        raise DatabaseDiffers(study.name, _OTHER_MODEL)


def released_models(tx: Transaction, study: StudyRow) -> list[ModelInfo]:
    """Return the models of all rounds that released one, ascending. Raises as `require_released`."""
    _require_all_released(tx, study)
    statement = select(ModelRow).where(ModelRow.study_id == study.id, ModelRow.version > 0).order_by(ModelRow.version)
    return [
        ModelInfo(version=row.version, sha256=row.sha256, bytes=row.bytes, clip_norm=row.clip_norm)
        for row in tx.session.scalars(statement)
    ]


def _require_all_released(tx: Transaction, study: StudyRow) -> None:
    """Check every model at once. Raises as `require_released`."""
    releases = select(LedgerRow).where(LedgerRow.study_id == study.id, LedgerRow.kind == "released")
    models_by_version = named_models(map(entry_of, tx.session.scalars(releases)))
    if not models_by_version:
        return
    models = tx.session.scalars(select(ModelRow).where(ModelRow.study_id == study.id)).all()
    if len(models) < len(models_by_version):
        raise DatabaseDiffers(study.name, _LOST_MODEL)
    for model in models:
        released = models_by_version.get(model.version)
        expected = (model.sha256, model.bytes, model.clip_norm)
        if released is None or (released.sha256, released.bytes, released.clip_norm) != expected:
            raise DatabaseDiffers(study.name, _OTHER_MODEL)


def _file_of(release: Mapping[str, Any]) -> tuple[str, int, float | None]:
    return release["sha256"], release["bytes"], release.get("clip_norm")


def _release_entry(tx: Transaction, study: StudyRow, version: int) -> LedgerRow | None:
    of_round = LedgerRow.round.is_(None) if version == 0 else LedgerRow.round == version
    conditions = (LedgerRow.study_id == study.id, LedgerRow.kind == "released", of_round)
    return tx.session.scalars(select(LedgerRow).where(*conditions)).one_or_none()


def _ledger_row(tx: Transaction, study_id: int, entry: Entry) -> LedgerRow:
    return LedgerRow(
        study_id=study_id,
        sequence=entry.sequence,
        kind=entry.kind,
        round=entry.round,
        # As text: a JSON column gives back equal values, not the bytes that were hashed.
        body=canonical_json(entry.body).decode(),
        previous=entry.previous,
        sha256=entry.sha256,
        written_at=tx.now(),
    )


def _write_statement(row: BudgetRow, budget: Budget, ready: Statement | None = None) -> Statement:
    row.state, row.can_continue, row.round = budget.state(), budget.can_continue, budget.last_round
    # Something may have been recorded since `ready` was computed.
    statement = ready if ready is not None and ready.state == row.state else Statement.of(budget)
    row.limits, row.percentiles = statement.limits, statement.percentiles
    return statement


def _standing(tx: Transaction, study: StudyRow, budget: Budget, statement: Statement) -> Standing:
    active = active_members(tx, study.id)
    return Standing(
        settings_sha256=digest(study.settings),
        roster_sha256=roster_fingerprint(study.name, active),
        members=len(active),
        state_sha256=digest(statement.state),
        statement_sha256=digest({"limits": statement.limits, "percentiles": statement.percentiles}),
        can_continue=budget.can_continue,
    )


def _sign(row: BudgetRow, signer: SigningKey, study: str, entry: Entry) -> None:
    head = LedgerHead(study=study, entries=entry.sequence, sha256=entry.sha256)
    row.entries, row.head_sha256 = entry.sequence, entry.sha256
    row.signature = signer.sign(LEDGER_HEAD, head.model_dump(mode="json"))
