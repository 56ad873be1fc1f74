"""Pieces of work that are committed together: what each may count on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from server.db.groups import Groups
from server.db.people_tables import ApiKeyRow
from server.db.session import Database, Transaction
from server.domain.errors import Rejected
from tests.factories.dying import Killed


def add(tx: Transaction, label: str) -> int:
    """How many rows this piece sees once it has added its own."""
    tx.session.add(ApiKeyRow(id=label, role="viewer", name=label, secret_sha256="0" * 64, created_at=tx.now()))
    tx.session.flush()
    return tx.session.query(ApiKeyRow).count()


def labels(database: Database) -> set[str]:
    return database.read("labels", lambda tx: {row.name for row in tx.session.query(ApiKeyRow)})


class Commits:
    """Counts the transactions that were committed for writing."""

    def __init__(self, database: Database) -> None:
        self.count = 0
        event.listen(database.engine, "commit", self._committed)

    def _committed(self, connection: object) -> None:
        self.count += not connection.get_execution_options().get("read_only", False)  # type: ignore[attr-defined]


def together(groups: Groups, pieces: dict[str, object]) -> dict[str, object]:
    """Run all pieces so that they meet: the first holds its transaction until the others wait."""
    begun, go = threading.Event(), threading.Event()

    def first(tx: Transaction) -> None:
        tx.now()
        begun.set()
        assert go.wait(10)

    found: dict[str, object] = {}

    def run(label: str, work: object) -> None:
        try:
            found[label] = groups.write("sepsis", label, work).result()  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - looked at by the test
            found[label] = error

    with ThreadPoolExecutor(len(pieces) + 1) as pool:
        pool.submit(groups.write, "sepsis", "first", first)
        assert begun.wait(10)
        for label, work in pieces.items():
            pool.submit(run, label, work)
        while len(groups.waiting("sepsis")) < len(pieces):
            pass
        go.set()
    return found


def test_pieces_that_wait_are_committed_in_one_transaction(database: Database) -> None:
    groups, commits = Groups(database.write), Commits(database)
    found = together(groups, {f"k{i}": lambda tx, i=i: add(tx, f"k{i}") for i in range(5)})
    assert labels(database) == {f"k{i}" for i in range(5)}
    assert sorted(found.values()) == [1, 2, 3, 4, 5]  # type: ignore[type-var]
    # That of whoever was first, and one for all who came meanwhile.
    assert commits.count == 2


def test_a_piece_that_raises_takes_nobody_with_it(database: Database) -> None:
    def refused(tx: Transaction) -> None:
        add(tx, "half")
        raise Rejected("not-sampled", "no")

    found = together(Groups(database.write), {"good": lambda tx: add(tx, "good"), "bad": refused})
    assert labels(database) == {"good"}
    assert isinstance(found["bad"], Rejected)
    assert isinstance(found["good"], int)


def test_a_thread_that_ends_while_it_commits_for_others_leaves_nobody_waiting(database: Database) -> None:
    def dies(tx: Transaction) -> None:
        raise Killed

    groups = Groups(database.write)
    found = together(groups, {"dies": dies, "good": lambda tx: add(tx, "good"), "other": lambda tx: add(tx, "other")})
    assert labels(database) == {"good", "other"}
    assert set(found) == {"good", "other"}
    assert groups.write("sepsis", "after", lambda tx: 1).result() == 1


def test_pieces_that_were_rolled_back_together_do_not_wait_for_each_other(database: Database) -> None:
    """Where the database is away, each would wait as long for it as all before it together."""
    tried: list[str] = []
    # Broken where they come one after the other.
    alone = threading.Barrier(4)

    def write(name: str, work: object) -> None:
        if name == "first":
            database.write(name, work)  # type: ignore[arg-type]
            return
        tried.append(name)
        if len(tried) > 1:
            alone.wait(10)
        raise ConnectionError

    found = together(Groups(write), {f"k{i}": lambda tx: None for i in range(4)})  # type: ignore[arg-type]
    assert len(tried) == 5, "all together, and each alone"
    assert all(isinstance(error, ConnectionError) for error in found.values())


def test_studies_do_not_wait_for_each_other(database_url: str) -> None:
    database = Database(database_url)
    groups, begun, go = Groups(database.write), threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        begun.set()
        assert go.wait(10)

    if database.engine.dialect.name == "sqlite":
        database.dispose()
        pytest.skip("SQLite has one writer at a time, whatever is written")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(groups.write, "a", "slow", slow)
        assert begun.wait(10)
        assert groups.write("b", "quick", lambda tx: tx.name).result() == "quick"
        go.set()
    database.dispose()


def test_what_happens_after_the_commit_happens_once_for_each_piece(database: Database) -> None:
    acted: list[str] = []

    def noting(label: str) -> object:
        return lambda tx: (tx.after_commit(lambda: acted.append(label)), add(tx, label))

    def refused(tx: Transaction) -> None:
        tx.after_commit(lambda: acted.append("never"))
        raise Rejected("not-sampled", "no")

    together(Groups(database.write), {"a": noting("a"), "bad": refused, "b": noting("b")})
    assert sorted(acted) == ["a", "b"]


def test_a_thousand_pieces_all_get_their_own_answer(database: Database) -> None:
    groups = Groups(database.write)
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda i: groups.write("sepsis", "count", lambda tx: i).result(), range(1000)))
    assert found == list(range(1000))
    assert groups.waiting("sepsis") == []


def test_a_piece_that_ends_early_is_an_error_to_whoever_waits_for_it(database: Database) -> None:
    async def asked() -> None:
        await asyncio.wrap_future(Groups(database.write).write("sepsis", "early", lambda tx: next(iter([]))))

    with pytest.raises(RuntimeError, match="early"):
        asyncio.run(asyncio.wait_for(asked(), 10))


def test_whoever_goes_away_does_not_take_back_what_it_wrote(database: Database) -> None:
    groups, begun, go = Groups(database.write), threading.Event(), threading.Event()

    def slow(tx: Transaction) -> int:
        begun.set()
        assert go.wait(10)
        return add(tx, "kept")

    async def asked() -> None:
        writing = asyncio.ensure_future(asyncio.wrap_future(groups.write("sepsis", "slow", slow)))
        await asyncio.to_thread(begun.wait, 10)
        writing.cancel()
        go.set()

    asyncio.run(asked())
    assert groups.write("sepsis", "after", lambda tx: 1).result(10) == 1
    assert labels(database) == {"kept"}
