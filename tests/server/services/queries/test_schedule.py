"""Evaluations by schedule: each released model that is due once, and the last one."""

from __future__ import annotations

from typing import Any

import pytest

from server.db.query_tables import QueryRow
from server.db.rows import find_study, lock_study
from server.db.session import Transaction
from server.db.tables import ModelRow
from server.services.coordinator import Coordinator
from server.services.queries.schedule import evaluate_last, evaluate_released, find_same, queue, requeue
from tests.factories.asked_studies import document
from tests.factories.settings import settings
from tests.factories.studies import FakeClock, open_study

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
QUESTION = {"noise_multiplier": 4.0, "prediction": "binary"}


def opened(coordinator: Coordinator, every: int | None = 2) -> None:
    schedule: dict[str, Any] = {} if every is None else {"every": every, "question": QUESTION}
    chosen = settings(statistics={"max_queries": 9, "max_cells": 100}, evaluation={"share": 0.3, **schedule})
    open_study(coordinator, clients=2, settings=chosen)


def released(coordinator: Coordinator, version: int) -> None:
    """As a release does it, of a file that nobody reads here."""

    def work(tx: Transaction) -> None:
        study = lock_study(tx, "sepsis")
        tx.session.add(ModelRow(study_id=study.id, version=version, sha256="a" * 64, bytes=1, created_at=tx.now()))
        tx.session.flush()
        evaluate_released(tx, study, version)

    coordinator.database.write("release", work)


def last(coordinator: Coordinator) -> None:
    coordinator.database.write("last", lambda tx: evaluate_last(tx, lock_study(tx, "sepsis")))


def asked(coordinator: Coordinator) -> list[tuple[int, int | None, str]]:
    """Number, model and state of every query."""

    def work(tx: Transaction) -> list[tuple[int, int | None, str]]:
        rows = tx.session.query(QueryRow).order_by(QueryRow.number)
        return [(row.number, row.document["question"].get("model"), row.state) for row in rows]

    return coordinator.database.read("asked", work)


def test_every_second_release_is_asked_about_whatever_its_number(coordinator: Coordinator) -> None:
    """Rounds of queries take numbers, too: what counts is how many models were released."""
    opened(coordinator)
    for version in (1, 3, 4, 7):
        released(coordinator, version)
    assert asked(coordinator) == [(1, 3, "waiting"), (2, 7, "waiting")]


def test_the_last_model_is_asked_about_once(coordinator: Coordinator) -> None:
    opened(coordinator)
    last(coordinator)
    # The initial model is no released one.
    assert asked(coordinator) == []
    released(coordinator, 1)
    for _ in range(2):
        last(coordinator)
    assert asked(coordinator) == [(1, 1, "waiting")]


def test_without_a_schedule_nothing_is_asked_by_itself(coordinator: Coordinator) -> None:
    opened(coordinator, every=None)
    released(coordinator, 1)
    last(coordinator)
    assert asked(coordinator) == []


def test_a_query_is_found_by_its_document_and_waits_anew(coordinator: Coordinator, clock: FakeClock) -> None:
    opened(coordinator)
    one, two = document(noise_multiplier=5.0), document(noise_multiplier=6.0)

    def ask(tx: Transaction) -> None:
        study = lock_study(tx, "sepsis")
        assert [queue(tx, study, asked).number for asked in (one, two)] == [1, 2]
        query = find_same(tx, study, one)
        assert query is not None
        query.state, query.reason, query.due_at = "failed", "stopped", 7.0

    coordinator.database.write("ask", ask)
    clock.sleep(50.0)

    def again(tx: Transaction) -> tuple[str, str | None, float, float | None]:
        query = find_same(tx, lock_study(tx, "sepsis"), one)
        assert query is not None
        requeue(tx, find_study(tx, "sepsis"), query)
        return query.state, query.reason, query.created_at, query.due_at

    assert coordinator.database.write("again", again) == ("waiting", None, clock.seconds, None)
    assert [state for _, _, state in asked(coordinator)] == ["waiting", "waiting"]
    unknown = document(noise_multiplier=7.0)
    assert coordinator.database.read("find", lambda tx: find_same(tx, find_study(tx, "sepsis"), unknown)) is None
