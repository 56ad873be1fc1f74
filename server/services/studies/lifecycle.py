"""Open, show, start, pause, resume, stop, delete a study."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator
from itertools import product

from sqlalchemy import exists, func, or_, select

from accounting.budget.budget import Budget
from accounting.errors import AccountingError
from accounting.plan.limits import FirstRoundOverspends, PlanError, WholePlanOverspends
from accounting.plan.schedule import first_attempts
from accounting.plan.statistics import AnyPlan
from accounting.values import rounded_up
from server.db import rows
from server.db.ledger_store import lock_account, open_account, require_unchanged
from server.db.row_checks import WRONG_VALUE, RowBroken
from server.db.session import Transaction
from server.db.tables import BudgetRow, ClientRow, InvitationRow, LeaseRow, StudyRow
from server.domain.errors import Rejected
from server.domain.queries import min_noise_multiplier
from server.domain.study import Action, move
from server.services import views
from server.services.coordinator import Coordinator, Written
from server.services.people.audit import begin_log, record_operated
from server.services.rounds.close import finish, stop_round
from server.services.tampered_studies import stopping_where_rows_differ
from study_protocol.documents.kept_windows import require_windows
from study_protocol.secure_sum.messages import ParameterFault
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import beyond_bounds
from study_protocol.study.messages import RoundUnderWay, Study, StudyCreate, StudyList
from study_protocol.study.plan_of import hides_attendance, plan_of
from study_protocol.study.setting_names import naming_settings
from study_protocol.study.settings import StudySettings
from study_protocol.versions import study_protocol
from study_protocol.wire.signing import roster_fingerprint

logger = logging.getLogger("wardround.coordinator")


def create(coordinator: Coordinator, request: StudyCreate) -> Written[Study]:
    """Open a study with its budget and the first ledger entry. The same request again: created False.

    Raises:
        Rejected: `study-exists` (other settings under this name), `whole-plan-overspends` (extra epsilon, max_steps,
            noise_max_steps), `first-round-overspends` (extra noise_one_round, noise_max_steps), `beyond-bounds`
            (unless the settings say that this is wanted), `invalid-request` (settings no budget can be kept for).
    """
    # First: to find out whether a budget can be kept takes long, and a repetition needs no answer to it.
    earlier = coordinator.database.read("find-study", lambda tx: _find_same(coordinator, tx, request))
    if earlier is not None:
        return Written(earlier, created=False)
    # Before the transaction, which would hold SQLite's only write lock meanwhile.
    plan = _feasible_plan(request)

    def work(tx: Transaction) -> Written[Study]:
        # Again: two may create it at once.
        earlier = _find_same(coordinator, tx, request)
        if earlier is not None:
            return Written(earlier, created=False)
        row = _study_row(tx, request, coordinator.binds_models)
        tx.session.add(row)
        tx.session.flush()
        # From the beginning, so that a worker takes it by one conditional UPDATE.
        tx.session.add(LeaseRow(study_id=row.id))
        open_account(tx, coordinator.signer, row, plan)
        tx.session.flush()
        begin_log(coordinator, tx, row.name)
        record_operated(coordinator, tx, row, "create")
        rows.append_event(tx, row, "study-created")
        tx.session.flush()
        return Written(_view(coordinator, tx, row), created=True)

    return coordinator.database.write("create-study", work)


def show(coordinator: Coordinator, study: str) -> Study:
    """Raises Rejected `unknown-study`."""
    return coordinator.database.read("show-study", lambda tx: _view(coordinator, tx, rows.find_study(tx, study)))


def protocol_of(coordinator: Coordinator, study: str) -> int:
    """Return the number of the protocol that the study was created with. Raises Rejected `unknown-study`."""
    return coordinator.database.read("show-study", lambda tx: rows.find_study(tx, study).protocol)


def list_studies(
    coordinator: Coordinator,
    after: str | None = None,
    limit: int = 100,
    search: str | None = None,
    *,
    among: Collection[str] | None = None,
) -> StudyList:
    """Return studies in order of their names, without deleted ones. `next` is the cursor to pass as `after`.

    search  in name or title, in any case
    among   only studies of these names. None: all
    """

    def work(tx: Transaction) -> StudyList:
        # One more than is shown tells whether there is a next page.
        not_deleted = or_(StudyRow.stop_reason.is_(None), StudyRow.stop_reason != "deleted")
        statement = select(StudyRow.name).where(StudyRow.name > (after or ""), not_deleted)
        if among is not None:
            statement = statement.where(StudyRow.name.in_(among))
        if search:
            matches = (column.icontains(search, autoescape=True) for column in (StudyRow.name, StudyRow.title))
            statement = statement.where(or_(*matches))
        names = tx.session.scalars(statement.order_by(StudyRow.name).limit(limit + 1)).all()
        more = names[limit - 1] if len(names) > limit else None
        return StudyList(studies=list(_readable(coordinator, tx, names[:limit])), next=more)

    return coordinator.database.read("list-studies", work)


def _readable(coordinator: Coordinator, tx: Transaction, names: Iterable[str]) -> Iterator[Study]:
    """Return the studies, without those whose rows are broken, or the others could not be seen."""
    for name in names:
        try:
            yield _view(coordinator, tx, rows.find_study(tx, name))
        except (Rejected, RowBroken, *WRONG_VALUE) as broken:
            logger.error("left out of the list: %s", broken, extra={"study": name, "event": "database-differs"})


def act(coordinator: Coordinator, study: str, action: Action) -> Study:
    """Carry out a lead's action. Repeatable. A stop ends the round under way and keeps its charge.

    Raises:
        Rejected: `unknown-study`, `model-missing`, `study-not-running`, `study-finished` (also where the database is
            not what was signed), `too-few-enrolled` (a start, with extra enrolled, min_clients), `invalid-request` (a
            start after which no secure sum could ever be opened, or questions first where nothing is trained),
            `no-queries` (questions first, without questions), `study-begun` (questions first, after training began).
    """

    def work(tx: Transaction) -> Study:
        row = rows.lock_study(tx, study)
        if move(row.state, action, row.pause_reason) != (row.state, row.pause_reason):
            require_unchanged(tx, coordinator.signer, row)
            _apply(coordinator, tx, row, action)
            tx.session.flush()
        return _view(coordinator, tx, row)

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.write(f"{action}-study", work))


def _apply(coordinator: Coordinator, tx: Transaction, row: StudyRow, action: Action) -> None:
    if action == "stop":
        open_round = rows.lock_open_round(tx, row.id)
        account = lock_account(tx, coordinator.signer, row)
        if open_round is not None:
            # First: a ledger has no end in the middle of a round.
            stop_round(tx, row, open_round, account)
        record_operated(coordinator, tx, row, action, account)
        finish(tx, row, account, "stopped")
        return
    if action == "start-asking":
        _require_both(row)
    if action in ("start", "start-asking", "train"):
        _require_a_session(tx, row)
        _require_enough(tx, row)
    if action == "resume":
        # A mended cause may need less patience than the failure.
        row.abandoned_in_a_row, row.resumed_alone, row.next_round_at = 0, 0, 0.0
    record_operated(coordinator, tx, row, action)
    state, reason = move(row.state, action, row.pause_reason)
    rows.enter_state(tx, row, state, pause_reason=reason)


def delete(coordinator: Coordinator, study: str) -> None:
    """End a study that has not begun, and leave it out of all lists. Repeatable.

    Its ledger is kept, closed by its last entry, because hospitals may have seen it. So its name stays used. Enrolled
    hospitals are told that the study is finished, and its invitations are refused.

    Raises:
        Rejected: `unknown-study`, `study-begun` (it was started), `study-finished` (otherwise).
    """

    def work(tx: Transaction) -> None:
        row = rows.lock_study(tx, study)
        if row.stop_reason == "deleted":
            return
        if row.state == "finished":
            raise Rejected(
                "study-finished",
                "the study has ended, and only a study that was never started can be deleted: its ledger and its "
                "models are kept for those who took part",
            )
        account = lock_account(tx, coordinator.signer, row)
        if row.state not in ("draft", "enrolling") or account.budget.last_round:
            raise Rejected("study-begun", "only a study that was never started can be deleted: stop it instead")
        record_operated(coordinator, tx, row, "delete", account)
        finish(tx, row, account, "deleted")
        logger.warning("deleted before it began", extra={"study": study, "event": "study-deleted"})

    stopping_where_rows_differ(coordinator, lambda: coordinator.database.write("delete-study", work))


def _require_both(row: StudyRow) -> None:
    """Refuse to hold training back where there is none, or for questions that the study does not take."""
    settings = rows.settings_of(row)
    if settings.statistics is None:
        raise Rejected(
            "no-queries", "this study takes no questions: its settings have no section statistics. Start it without"
        )
    if not settings.privacy.rules.trains:
        raise Rejected(
            "invalid-request", "this study trains nothing and takes questions from its start on: start it without"
        )


def _require_enough(tx: Transaction, row: StudyRow) -> None:
    """Refuse a start after which no round could begin, or every round would fail."""
    enrolled, needed = _active(tx, row), row.quorum
    if enrolled >= needed:
        return
    raise Rejected(
        "too-few-enrolled",
        f"{enrolled} of at least {needed} hospitals (schedule.min_clients) have enrolled: {needed - enrolled} more "
        "have to (wardround invite, if they are not invited yet). Then start again",
        enrolled=enrolled,
        min_clients=needed,
    )


def _require_a_session(tx: Transaction, row: StudyRow) -> None:
    """Check, with masking, that the present hospitals, or as many as a round waits for, can sum this model."""
    settings, base = rows.settings_of(row), rows.latest_model(tx, row.id)
    if not isinstance(settings, StudySettings) or settings.privacy.masking is None or base is None:
        return
    spec = rows.model_spec_of(row)
    plan_fields = {"study": row.name, "roster": row.roster_sha256, "model": base.sha256}
    adaptive, first, stages = settings.privacy.adaptive_clip, settings.privacy.clip_norm, settings.privacy.noise_stages
    norms = (first,) if adaptive is None else adaptive.bounds(first)
    attempts = [None] if stages is None else first_attempts(stages)
    for norm, attempt in product(norms, attempts):
        # No entry charges it yet. The entry's identity does not affect whether it can be opened.
        plan = SessionPlan.of(
            settings, spec, round_number=1, ledger=(1, base.sha256), clip_norm=norm, attempt=attempt, **plan_fields
        )
        try:
            # Their soundness does not depend on the session's name, and no signature is made.
            plan.parameters(max(_active(tx, row), row.quorum), session=bytes(32), now=tx.now())
        except ParameterFault as fault:
            raise Rejected("invalid-request", f"no secure sum could ever be opened: {fault}") from fault


def _active(tx: Transaction, row: StudyRow) -> int:
    active = select(func.count()).where(ClientRow.study_id == row.id, ClientRow.state == "active")
    return tx.session.scalar(active) or 0


def _invited(tx: Transaction, row: StudyRow) -> int:
    """Return the participants, and the clients that still can join by an invitation."""
    member = exists().where(ClientRow.study_id == row.id, ClientRow.name == InvitationRow.client)
    usable = (InvitationRow.study_id == row.id, InvitationRow.used_at.is_(None), InvitationRow.expires_at > tx.now())
    coming = select(func.count(InvitationRow.client.distinct())).where(*usable, ~member)
    return _active(tx, row) + (tx.session.scalar(coming) or 0)


def _under_way(tx: Transaction, row: StudyRow) -> RoundUnderWay | None:
    round = rows.open_round(tx, row.id)
    if round is None or round.state != "collecting":
        return None
    sampled, present = rows.presence(tx, round)
    hidden = hides_attendance(rows.settings_of(row))
    return RoundUnderWay(
        round=round.number,
        asked=None if hidden else sampled,
        present=None if hidden else present,
        deadline=views.at(round.deadline),
    )


def _feasible_plan(request: StudyCreate) -> AnyPlan:
    try:
        plan = plan_of(request.settings)
        beyond = [] if request.settings.beyond_bounds else beyond_bounds(request.settings)
        if beyond:
            raise Rejected("beyond-bounds", f"{'; '.join(beyond)}: say --i-know if this is wanted. Hospitals see it")
        with naming_settings():
            Budget.open(plan)
        _require_windows(request.settings, Budget(plan))
        _require_synthesis(request.settings, Budget(plan))
    except FirstRoundOverspends as error:
        fitting = {"noise_one_round": error.noise_one_round, "noise_max_steps": error.noise_max_steps}
        raise Rejected("first-round-overspends", str(error), **fitting) from error
    except WholePlanOverspends as error:
        fitting = {"epsilon": error.epsilon, "max_steps": error.steps, "noise_max_steps": error.noise}
        raise Rejected("whole-plan-overspends", str(error), **fitting) from error
    except PlanError as error:
        raise Rejected("invalid-request", str(error), fields=[f"body.settings.{error.field}"]) from error
    except AccountingError as error:
        raise Rejected("invalid-request", f"no budget can be kept for these settings: {error}") from error
    return plan


def _require_windows(settings: AnySettings, budget: Budget) -> None:
    """Check that all windows of later patients fit. Raises Rejected: they do not. The text names noise that would."""
    try:
        require_windows(settings, budget)
    except PlanError as error:
        raise Rejected("whole-plan-overspends", f"{error}{_noise_for_windows(settings, budget)}") from error


def _noise_for_windows(settings: AnySettings, budget: Budget) -> str:
    monitoring = settings.monitoring
    # Scheduled evaluations would be scaled with the windows.
    if monitoring is None or settings.evaluation is not None:
        return ""
    cost, costs_of_rest = monitoring.cost(), [monitoring.cost()] * (monitoring.windows - 1)
    min_noise = min_noise_multiplier(budget, cost, costs_of_rest)
    if min_noise is None:
        return ""
    # Of all windows together, as if they were one question.
    return f". A noise_multiplier of {rounded_up(min_noise * math.sqrt(monitoring.windows), 3):g} would fit"


def _require_synthesis(settings: AnySettings, budget: Budget) -> None:
    """Check that all questions of a synthesis fit together. Raises Rejected: they do not."""
    if settings.synthesis is None:
        return
    first = settings.synthesis.first_question()
    cost, later = first.cost(), settings.synthesis.kept_after(first)
    if budget.supposing(later).authorise_query(cost).is_allowed:
        return
    min_noise = min_noise_multiplier(budget, cost)
    hint = "none fits" if min_noise is None else f"at most {0.999 / min_noise**2:.3g} fits"
    text = f"synthesis.allowance: {settings.synthesis.allowance:g} passes a limit of the study: {hint}"
    raise Rejected("whole-plan-overspends", text)


def _study_row(tx: Transaction, request: StudyCreate, names_models: bool) -> StudyRow:
    return StudyRow(
        name=request.study,
        title=request.title,
        # A study without training waits for no model.
        state="draft" if request.settings.privacy.rules.trains else "enrolling",
        settings=request.settings.as_json(),
        settings_sha256=request.settings.digest(),
        roster_sha256=roster_fingerprint(request.study, []),
        protocol=study_protocol(request.settings.as_json(), names_models=names_models),
        # A round without clients would be charged for no result.
        quorum=max(1, request.settings.schedule.min_clients),
        state_since=tx.now(),
        created_at=tx.now(),
    )


def _find_same(coordinator: Coordinator, tx: Transaction, request: StudyCreate) -> Study | None:
    row = tx.session.scalars(select(StudyRow).where(StudyRow.name == request.study)).one_or_none()
    if row is None:
        return None
    if (row.settings_sha256, row.title) != (request.settings.digest(), request.title):
        raise Rejected("study-exists", "a study of this name has other settings: choose another name")
    if row.stop_reason == "deleted":
        raise Rejected("study-exists", "a study of this name was deleted, and its ledger is kept: choose another name")
    return _view(coordinator, tx, row)


def _view(coordinator: Coordinator, tx: Transaction, row: StudyRow) -> Study:
    budget = tx.session.get(BudgetRow, row.id)
    if budget is None:
        raise RowBroken("budgets has no row of the study")
    return views.study(
        row,
        rows.latest_model(tx, row.id),
        clients=_active(tx, row),
        invited=_invited(tx, row),
        under_way=_under_way(tx, row),
        rounds=budget.round,
        coordinator_key=coordinator.signer.public_key,
    )
