from __future__ import annotations

import copy

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from accounting.budget.budget import Budget, replay
from accounting.budget.ledger import LedgerError
from server.db.ledger_store import entries, lock_account
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow
from server.services.coordinator import Coordinator
from study_protocol.study.messages import LedgerHead
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import LEDGER_HEAD, decode_public_key, verify_document
from tests.factories.ledgers import kinds_in
from tests.factories.settings import settings
from tests.factories.studies import open_study

EVENT = {"settled": {"report": None}, "cancelled": {"reason": "too-few-clients"}}


@pytest.fixture
def opened(coordinator: Coordinator) -> Coordinator:
    open_study(coordinator, max_steps=3)
    return coordinator


def record(coordinator: Coordinator, *events: tuple[str, int | None]) -> None:
    def work(tx: Transaction) -> None:
        account = lock_account(tx, coordinator.signer, find_study(tx, "sepsis"))
        for kind, round in events:
            account.record(kind, round, EVENT.get(kind, {}))  # type: ignore[arg-type]

    coordinator.database.write("record", work)


def ledger(coordinator: Coordinator) -> list[str]:
    return coordinator.database.read("ledger", lambda tx: kinds_in(entries(tx, 1, 0, 100)))


def row(coordinator: Coordinator) -> BudgetRow:
    return coordinator.database.read("row", lambda tx: tx.session.query(BudgetRow).one())


def test_the_row_stands_for_the_whole_ledger(opened: Coordinator) -> None:
    record(opened, ("reserved", 1), ("settled", 1), ("reserved", 2), ("cancelled", 2))
    kept = row(opened)
    written = opened.database.read("all", lambda tx: entries(tx, kept.study_id, 0, 100))
    replayed = replay(written)
    assert kept.state == replayed.state()
    assert kept.limits == replayed.statements(whole=False)
    assert kept.percentiles == replayed.percentiles()
    assert (kept.entries, kept.head_sha256) == (9, written[-1].sha256)
    assert kept.round == 2
    head = LedgerHead(study="sepsis", entries=9, sha256=kept.head_sha256).model_dump(mode="json")
    verify_document(decode_public_key(opened.signer.public_key), LEDGER_HEAD, head, kept.signature)


def test_a_round_under_way_may_go_on(opened: Coordinator) -> None:
    record(opened, ("reserved", 1), ("settled", 1), ("reserved", 2), ("settled", 2), ("reserved", 3))
    assert row(opened).can_continue
    record(opened, ("settled", 3))
    assert not row(opened).can_continue


@pytest.mark.quick("sqlite-event1", "sqlite-event2")
@pytest.mark.parametrize("event", [("settled", 1), ("reserved", 0), ("opened", None)])
def test_an_event_that_cannot_have_happened_is_not_written(opened: Coordinator, event: tuple[str, int | None]) -> None:
    before = copy.deepcopy(row(opened).state)
    with pytest.raises(LedgerError):
        record(opened, event)
    assert ledger(opened) == ["opened"]
    assert row(opened).state == before


def test_one_bad_event_undoes_the_others_of_its_transaction(opened: Coordinator) -> None:
    with pytest.raises(LedgerError):
        record(opened, ("reserved", 1), ("reserved", 2))
    assert ledger(opened) == ["opened"]


@pytest.mark.parametrize("statement", ["UPDATE ledger SET body = '{}'", "DELETE FROM ledger"])
def test_the_past_cannot_be_rewritten(opened: Coordinator, statement: str) -> None:
    with pytest.raises(DBAPIError, match="append-only"):
        opened.database.write("forge", lambda tx: tx.session.execute(text(statement)))


def test_nor_can_it_be_emptied(opened: Coordinator) -> None:
    if opened.database.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no TRUNCATE; its DELETE is refused above")
    with pytest.raises(DBAPIError, match="append-only"):
        opened.database.write("forge", lambda tx: tx.session.execute(text("TRUNCATE ledger")))


@pytest.mark.parametrize(("kinds", "second"), [(("settled", "charged-in-full"), 2), (("reserved", "reserved"), 2)])
def test_a_round_is_reserved_once_and_ends_once(opened: Coordinator, kinds: tuple[str, str], second: int) -> None:
    def work(tx: Transaction) -> None:
        for sequence, kind in enumerate(kinds, start=6):
            entry = LedgerRow(study_id=1, sequence=sequence, kind=kind, round=1, body="{}", written_at=0.0)
            entry.previous = entry.sha256 = "0" * 64
            tx.session.add(entry)

    with pytest.raises(IntegrityError):
        opened.database.write("twice", work)


def test_a_new_account_is_that_of_its_plan(opened: Coordinator) -> None:
    plan = plan_of(settings(max_steps=3))
    kept = row(opened)
    assert kept.limits == Budget(plan).statements(whole=False)
    assert kept.max_steps == 3
