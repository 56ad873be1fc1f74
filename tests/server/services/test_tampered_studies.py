"""Rows that somebody changed without its key stop the study, on both databases."""

from __future__ import annotations

import json
import logging

import pytest

from server.db.blobs import noised_of
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow, ModelRow
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from study_protocol.study.messages import ModelInfo
from tests.factories.databases import SQLITE_FIRST
from tests.factories.forging import drop_triggers, forge
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.studies import open_study, work


def row(coordinator: Coordinator) -> BudgetRow:
    return coordinator.database.read("row", lambda tx: tx.session.query(BudgetRow).one())


def running(coordinator: Coordinator, **options: object) -> list[Hospital]:
    """A study whose first round is released and whose second one is under way."""
    hospitals = open_study(coordinator, max_steps=6, **options)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    return hospitals


def require_stopped(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    """Nothing is released or handed out any more, and everybody is told why."""
    models = views.locate_model(coordinator, "sepsis").info.version
    for hospital in hospitals:
        with pytest.raises(Rejected) as refused:
            hospital.assignment()
        assert refused.value.code == "study-finished"
        assert refused.value.extra == {"stop_reason": "database-differs"}
    work(coordinator)
    assert ended(coordinator) == ("finished", "database-differs")
    with pytest.raises(Rejected) as refused:
        views.read_budget(coordinator, "sepsis")
    assert (refused.value.code, refused.value.extra) == ("study-finished", {"stop_reason": "database-differs"})
    assert views.locate_model(coordinator, "sepsis").info.version == models
    open_ones = [r for r in views.list_rounds(coordinator, "sepsis", with_clients=False).rounds if r.ended_at is None]
    assert open_ones == []


def ended(coordinator: Coordinator) -> tuple[str, str | None]:
    """State and stop reason of the study."""

    def read(tx: Transaction) -> tuple[str, str | None]:
        study = find_study(tx, "sepsis")
        return study.state, study.stop_reason

    return coordinator.database.read("ended", read)


def unspent(coordinator: Coordinator) -> str:
    """The budget's state as it was before anything was spent."""
    state = json.loads(json.dumps(row(coordinator).state))
    state |= {"last_round": 2, "charged_rounds": 0}
    for account in state["accounts"]:
        account["rounds"] = 0
    return json.dumps(state)


def softened(coordinator: Coordinator, name: str, value: object) -> str:
    """The study's settings with another number in the section privacy."""
    settings = lifecycle.show(coordinator, "sepsis").settings.as_json()
    settings["privacy"][name] = value
    return json.dumps(settings)


FORGERIES = {
    "state": lambda c: ("UPDATE budgets SET state = :value", unspent(c)),
    "can_continue": lambda c: ("UPDATE budgets SET can_continue = NOT can_continue", None),
    "max_steps": lambda c: ("UPDATE budgets SET max_steps = 99", None),
    "round": lambda c: ("UPDATE budgets SET round = 0", None),
    "limits": lambda c: ("UPDATE budgets SET limits = :value", "[]"),
    "percentiles": lambda c: (
        "UPDATE budgets SET percentiles = :value",
        '[{"population": 0.9, "epsilon": 0.1, "delta": 1e-4}]',
    ),
    # JSON of no shape that anything here has; what is no JSON at all, PostgreSQL's own type refuses.
    "state of no shape": lambda c: ("UPDATE budgets SET state = :value", '"text"'),
    "limits of no shape": lambda c: ("UPDATE budgets SET limits = :value", '{"level": "client"}'),
    "percentiles of no shape": lambda c: ("UPDATE budgets SET percentiles = :value", '[7, null, {"x": []}]'),
    "settings of no shape": lambda c: ("UPDATE studies SET settings = :value", "[]"),
    "no state": lambda c: ("UPDATE budgets SET state = :value", "[]"),
    "noise": lambda c: ("UPDATE studies SET settings = :value", softened(c, "noise_multiplier", 0.001)),
    "horizon": lambda c: ("UPDATE studies SET settings = :value", softened(c, "max_steps", 600)),
    "settings digest": lambda c: ("UPDATE studies SET settings_sha256 = :value", "a" * 64),
    "quorum": lambda c: ("UPDATE studies SET quorum = 1", None),
    "client key": lambda c: ("UPDATE clients SET public_key = :value WHERE name = 'h0'", "A" * 43),
    "client state": lambda c: ("UPDATE clients SET state = 'revoked' WHERE name = 'h0'", None),
    "roster": lambda c: ("UPDATE studies SET roster_sha256 = :value", "b" * 64),
    "newest body": lambda c: (
        "UPDATE ledger SET body = :value WHERE sequence = (SELECT entries FROM budgets)",
        "{}",
    ),
    "newest entry": lambda c: ("DELETE FROM ledger WHERE sequence = (SELECT entries FROM budgets)", None),
    "head": lambda c: ("UPDATE budgets SET head_sha256 = :value", "c" * 64),
    "length": lambda c: ("UPDATE budgets SET entries = entries - 1", None),
    "signature": lambda c: ("UPDATE budgets SET signature = :value", "A" * 86),
}


def made(coordinator: Coordinator, name: str) -> None:
    statement, value = FORGERIES[name](coordinator)
    forge(coordinator, statement, **({} if value is None else {"value": value}))


@pytest.mark.quick("limits-sqlite")
@SQLITE_FIRST
@pytest.mark.parametrize("name", FORGERIES)
def test_an_update_stops_the_study_before_the_next_assignment(
    coordinator: Coordinator, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    hospitals = running(coordinator)
    made(coordinator, name)
    with caplog.at_level(logging.CRITICAL), pytest.raises(Rejected) as refused:
        hospitals[1].assignment()
    assert "without its key" in refused.value.detail
    assert "without its key" in caplog.text
    require_stopped(coordinator, hospitals[1:])


@pytest.mark.quick("sqlite-round")
@pytest.mark.parametrize("name", FORGERIES)
def test_an_update_stops_the_study_before_the_next_release(coordinator: Coordinator, name: str) -> None:
    """Everything has been sent; the worker alone is left to notice."""
    hospitals = running(coordinator)
    for hospital in hospitals:
        hospital.send(2, update())
    made(coordinator, name)
    work(coordinator)
    require_stopped(coordinator, hospitals[1:])
    assert views.locate_model(coordinator, "sepsis").info.version == 1


@pytest.mark.quick("newest entry-sqlite", "noise-sqlite")
@SQLITE_FIRST
@pytest.mark.parametrize("name", FORGERIES)
def test_an_update_is_never_shown_in_a_statement(coordinator: Coordinator, name: str) -> None:
    """Nor after the true one was shown, which is kept for whoever asks again."""
    hospitals = running(coordinator)
    assert views.read_budget(coordinator, "sepsis").state == "running"
    made(coordinator, name)
    with pytest.raises(Rejected) as refused:
        views.read_budget(coordinator, "sepsis")
    assert (refused.value.code, refused.value.extra) == ("study-finished", {"stop_reason": "database-differs"})
    assert "without its key" in refused.value.detail
    require_stopped(coordinator, hospitals[1:])


@pytest.mark.quick("sqlite")
def test_a_study_that_ended_before_its_rows_were_changed_shows_no_numbers(coordinator: Coordinator) -> None:
    running(coordinator)
    lifecycle.act(coordinator, "sepsis", "stop")
    work(coordinator)
    assert views.read_budget(coordinator, "sepsis").stop_reason == "stopped"
    made(coordinator, "limits")
    with pytest.raises(Rejected) as refused:
        views.read_budget(coordinator, "sepsis")
    assert refused.value.extra == {"stop_reason": "database-differs"}


@pytest.mark.quick("sqlite-revoke")
@pytest.mark.parametrize("change", ["withdraw", "revoke", "rotate"])
def test_members_of_an_ended_study_may_leave_and_its_numbers_are_shown_on(
    coordinator: Coordinator, change: str
) -> None:
    """No entry follows the last one of a ledger, so that nothing says how the roster stands now."""
    running(coordinator)
    lifecycle.act(coordinator, "sepsis", "stop")
    work(coordinator)
    before, hospitals_then = views.read_budget(coordinator, "sepsis"), views.roster(coordinator, "sepsis").fingerprint
    if change == "rotate":
        new = Hospital(UseCases(coordinator), "sepsis", "h2")
        enrolment.rotate_key(coordinator, "sepsis", "h2", new.rotation())
    else:
        {"withdraw": enrolment.withdraw, "revoke": enrolment.revoke}[change](coordinator, "sepsis", "h2")
    assert views.roster(coordinator, "sepsis").fingerprint != hospitals_then
    assert views.read_budget(coordinator, "sepsis") == before
    assert ended(coordinator) == ("finished", "stopped")


@pytest.mark.quick("sqlite--state")
@pytest.mark.parametrize("column", ["state", "limits", "percentiles"])
@pytest.mark.parametrize("value", ["[{", "NaN", "[" * 5000, ""])
def test_what_is_no_json_stops_the_study_as_anything_else_does(
    coordinator: Coordinator, column: str, value: str
) -> None:
    if coordinator.database.engine.dialect.name != "sqlite":
        pytest.skip("a column of PostgreSQL's type json holds nothing else")
    hospitals = running(coordinator)
    forge(coordinator, f"UPDATE budgets SET {column} = :value", value=value)
    with pytest.raises(Rejected, match="in the database is not what the signed ledger says"):
        views.read_budget(coordinator, "sepsis")
    require_stopped(coordinator, hospitals[1:])


@pytest.mark.quick("sqlite")
def test_a_statement_follows_every_change_that_is_signed(coordinator: Coordinator) -> None:
    hospitals = running(coordinator)
    before = views.read_budget(coordinator, "sepsis")
    assert views.read_budget(coordinator, "sepsis") == before
    for hospital in hospitals:
        hospital.send(2, update())
    work(coordinator)
    after = views.read_budget(coordinator, "sepsis")
    assert after.ledger.entries > before.ledger.entries
    assert after.limits[0].spent > before.limits[0].spent
    lifecycle.act(coordinator, "sepsis", "pause")
    assert views.read_budget(coordinator, "sepsis").state != after.state


@pytest.mark.quick("sqlite-3")
@pytest.mark.parametrize("value", ["[]", "3", "{}", '{"privacy": 3}', '{"privacy": {}, "schedule": []}'])
def test_settings_that_are_none_are_a_difference_too(coordinator: Coordinator, value: str) -> None:
    hospitals = running(coordinator)
    forge(coordinator, "UPDATE studies SET settings = :value", value=value)
    with pytest.raises(Rejected, match="its settings in the database"):
        hospitals[0].assignment()
    found = coordinator.database.read("look", lambda tx: find_study(tx, "sepsis"))
    assert (found.state, found.stop_reason) == ("finished", "database-differs")


def noised_and_kept(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> ModelInfo:
    """A round of scheme client is released, and its files stay."""
    # Whoever owns the database keeps them: a trigger that says that they are gone does it.
    monkeypatch.setattr("server.worker.scrub_round", lambda *_: None)
    hospitals = open_study(coordinator, scheme="client", max_steps=1)
    work_with_scrub_undone(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    work_with_scrub_undone(coordinator)
    released = views.locate_model(coordinator, "sepsis").info
    assert released.version == 1
    return released


def unrelease(coordinator: Coordinator) -> None:
    forge(coordinator, "DELETE FROM models WHERE version = 1")
    forge(coordinator, "UPDATE rounds SET state = 'settled', ended_at = NULL, noised_sha256 = NULL")
    work_with_scrub_undone(coordinator)


def work_with_scrub_undone(coordinator: Coordinator) -> None:
    """Clearing away stays due for ever: so many steps are enough for all else."""
    # One name: it has the lease still when it comes again.
    worker = Worker(coordinator, owner="one")
    for _ in range(5):
        worker.step()


@pytest.mark.quick("sqlite")
def test_a_round_that_is_made_unreleased_again_is_not_noised_a_second_time(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of many draws over one sum would be the sum, with nothing charged for it."""
    first = noised_and_kept(coordinator, monkeypatch)
    for _ in range(3):
        forge(coordinator, "UPDATE participants SET sha256 = NULL, state = 'missing' WHERE client = 'h1'")
        unrelease(coordinator)
        again = views.locate_model(coordinator, "sepsis").info
        assert (again.version, again.sha256) == (1, first.sha256)


@pytest.mark.quick("sqlite")
def test_of_two_noised_sums_nobody_knows_which_was_released(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    noised_and_kept(coordinator, monkeypatch)
    coordinator.blobs.write(noised_of("sepsis", 1), b"what another worker drew")
    unrelease(coordinator)
    shown = views.show_round(coordinator, "sepsis", 1, with_clients=False)
    assert (shown.state, shown.reason) == ("abandoned", "noised-sum-lost")
    assert views.locate_model(coordinator, "sepsis").info.version == 0


@pytest.mark.quick("sqlite-100000000.0-1", "sqlite-1000000000000.0-0")
@pytest.mark.parametrize(("length", "released"), [(1e8, 1), (1e12, 0)])
def test_an_update_as_long_as_a_huge_clip_norm_is_no_difference(
    coordinator: Coordinator, length: float, released: int
) -> None:
    """Of the longer one comes no model: its weights would be beyond what a hospital trains from."""
    hospitals = open_study(coordinator, scheme="client", max_steps=1, clip_norm=10 * length)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update(length))
    work(coordinator)
    assert views.locate_model(coordinator, "sepsis").info.version == released
    assert views.show_round(coordinator, "sepsis", 1, with_clients=False).reason == (
        None if released else "weights-out-of-bounds"
    )
    assert ended(coordinator) == (("finished", "max-steps-reached") if released else ("running", None))


@pytest.mark.quick("sqlite")
def test_a_row_that_is_read_again_in_part_is_no_difference(coordinator: Coordinator) -> None:
    running(coordinator)

    def again(tx: Transaction) -> tuple[str, int]:
        row = find_study(tx, "sepsis")
        tx.session.expire(row)
        tx.session.refresh(row, ["title"])
        return row.state, row.quorum

    assert coordinator.database.read("again", again)[0] == "running"


@pytest.mark.quick("sqlite")
def test_an_old_entry_is_looked_at_when_a_worker_takes_the_study(coordinator: Coordinator) -> None:
    hospitals = running(coordinator)
    forge(coordinator, "UPDATE ledger SET body = '{}' WHERE sequence = 2")
    for hospital in hospitals:
        hospital.send(2, update())
    Worker(coordinator, owner="another").step()
    require_stopped(coordinator, hospitals)


@pytest.mark.quick("sqlite")
def test_membership_is_not_recorded_over_rows_that_were_changed(coordinator: Coordinator) -> None:
    """An honest rotation would otherwise sign the forged key of another hospital."""
    hospitals = running(coordinator)
    made(coordinator, "client key")
    with pytest.raises(Rejected, match="names or keys of its members"):
        enrolment.withdraw(coordinator, "sepsis", "h2")
    require_stopped(coordinator, hospitals[1:])


@pytest.mark.quick("sqlite")
def test_the_operator_is_told_what_to_do(coordinator: Coordinator) -> None:
    running(coordinator)
    made(coordinator, "state")
    with pytest.raises(Rejected, match="restore database and files together from a backup"):
        lifecycle.act(coordinator, "sepsis", "pause")


@pytest.mark.quick("sqlite")
def test_members_that_come_and_leave_are_told_from_an_update(coordinator: Coordinator) -> None:
    hospitals = running(coordinator)
    late = Hospital(UseCases(coordinator), "sepsis", "late").enrol()
    enrolment.revoke(coordinator, "sepsis", "h2")
    for hospital in hospitals[:2]:
        hospital.send(2, update())
    work(coordinator)
    assert views.locate_model(coordinator, "sepsis").info.version == 2
    assert late.assignment() is not None
    kinds = [entry.body.get("change") for entry in ledger_page(coordinator, "sepsis").entries]
    assert [kind for kind in kinds if kind is not None] == ["enrolled"] * 4 + ["revoked"]


@pytest.mark.quick("sqlite")
def test_a_difference_that_is_gone_under_the_lock_stops_nothing(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.services.tampered_studies import stop_differing

    hospitals = running(coordinator)
    assert stop_differing(coordinator, "sepsis") == (None, False)
    assert lifecycle.show(coordinator, "sepsis").state == "running"
    assert hospitals[0].assignment() is not None


@pytest.mark.quick("sqlite")
def test_whole_rows_set_back_are_consistent_and_not_noticed_here(coordinator: Coordinator) -> None:
    """What the coordinator alone cannot notice: the ledger's end deleted, and the row as it was then. Hospitals do."""
    hospitals = running(coordinator)

    def saved(tx: Transaction) -> tuple[dict[str, object], int]:
        kept = tx.session.query(BudgetRow).one()
        return {c.name: getattr(kept, c.name) for c in BudgetRow.__table__.columns}, kept.entries

    values, length = coordinator.database.read("save", saved)
    for hospital in hospitals:
        hospital.send(2, update())
    work(coordinator)
    assert views.read_budget(coordinator, "sepsis").ledger.entries > length

    def set_back(tx: Transaction) -> None:
        drop_triggers(tx)
        tx.session.query(LedgerRow).filter(LedgerRow.sequence > length).delete()
        tx.session.query(ModelRow).filter(ModelRow.version > 1).delete()
        kept = tx.session.query(BudgetRow).one()
        for name, value in values.items():
            setattr(kept, name, value)

    coordinator.database.write("set-back", set_back)

    def compare(tx: Transaction) -> None:
        from server.db.ledger_store import require_unchanged

        require_unchanged(tx, coordinator.signer, find_study(tx, "sepsis"), whole=True)

    coordinator.database.read("compare", compare)
