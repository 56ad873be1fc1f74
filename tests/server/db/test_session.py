from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from server.db.people_tables import ApiKeyRow
from server.db.rows import find_study
from server.db.session import Database, Transaction, connect
from server.domain.errors import Rejected
from tests.factories.studies import FakeClock


def key(id: str) -> ApiKeyRow:
    return ApiKeyRow(id=id, role="viewer", name="", secret_sha256="0" * 64, created_at=0.0)


def labels(database: Database) -> set[str]:
    return set(database.read("labels", lambda tx: [row.name for row in tx.session.query(ApiKeyRow)]))


def test_what_a_transaction_raises_undoes_it(database: Database) -> None:
    def work(tx: Transaction) -> None:
        tx.session.add(key("a"))
        tx.session.flush()
        find_study(tx, "nowhere")

    with pytest.raises(Rejected, match="unknown-study"):
        database.write("half", work)
    assert labels(database) == set()


def test_rows_remember_the_transaction_that_wrote_them(database: Database) -> None:
    database.write("make-a-key", lambda tx: tx.session.add(key("a")))
    database.write("look", lambda tx: tx.session.get_one(ApiKeyRow, "a"))
    assert database.read("who", lambda tx: tx.session.get_one(ApiKeyRow, "a").written_by) == "make-a-key"

    def relabel(tx: Transaction) -> None:
        tx.session.get_one(ApiKeyRow, "a").name = "new"

    database.write("relabel", relabel)
    assert database.read("who", lambda tx: tx.session.get_one(ApiKeyRow, "a").written_by) == "relabel"


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match=r"read-?only"):
        database.read("sneaky", lambda tx: tx.session.execute(text("DELETE FROM api_keys")))
    database.write("make", lambda tx: tx.session.add(key("a")))


def test_writers_of_one_row_follow_each_other(database: Database) -> None:
    """Read, wait, write: without a lock the increments of the threads would overwrite each other."""
    database.write("make", lambda tx: tx.session.add(key("a")))

    def increment(tx: Transaction) -> None:
        row = tx.session.get_one(ApiKeyRow, "a", with_for_update=True)
        value = row.created_at
        time.sleep(0.002)
        row.created_at = value + 1

    def run() -> None:
        for _ in range(5):
            database.write("increment", increment)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.read("sum", lambda tx: tx.session.get_one(ApiKeyRow, "a").created_at) == 20


def test_a_transaction_is_run_again_when_the_database_asks_for_it(database: Database) -> None:
    runs: list[int] = []

    def work(tx: Transaction) -> None:
        runs.append(1)
        tx.session.add(key("a"))
        tx.session.flush()
        if len(runs) < 3:
            locked = Exception("database is locked")
            raise OperationalError("", {}, locked)

    database.write("unlucky", work)
    assert len(runs) == 3
    assert labels(database) == {""}


def test_no_group_leaves_out_what_a_request_begins_with(database: Database) -> None:
    begun: list[str] = []
    request = database.beginning_with(lambda tx: begun.append(tx.name))
    request.write("alone", lambda tx: None)
    with pytest.raises(RuntimeError, match="together"):
        request.write_with_others("sepsis", "together", lambda tx: None)
    assert begun == ["alone"]
    database.write_with_others("sepsis", "together", lambda tx: None).result()


def test_other_errors_are_not_tried_again(database: Database) -> None:
    runs: list[int] = []

    def work(tx: Transaction) -> None:
        runs.append(1)
        tx.session.add(ApiKeyRow(id="a", role="king", name="", secret_sha256="0" * 64, created_at=0.0))

    with pytest.raises(IntegrityError):
        database.write("wrong", work)
    assert len(runs) == 1


def test_deadlocked_transactions_both_succeed(database: Database) -> None:
    database.write("make", lambda tx: tx.session.add_all([key("a"), key("b")]))
    meet = threading.Barrier(2, timeout=5)

    def crossing(first: str, second: str) -> None:
        met: list[int] = []

        def work(tx: Transaction) -> None:
            tx.session.get_one(ApiKeyRow, first, with_for_update=True)
            if not met and database.engine.dialect.name == "postgresql":
                met.append(1)
                meet.wait()
            tx.session.get_one(ApiKeyRow, second, with_for_update=True).created_at += 1

        database.write("crossing", work)

    threads = [threading.Thread(target=crossing, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = database.read("both", lambda tx: [row.created_at for row in tx.session.query(ApiKeyRow)])
    assert times == [1.0, 1.0]


def test_time_is_the_databases_own(database: Database) -> None:
    before = time.time()
    reported = database.read("clock", lambda tx: tx.now())
    # One machine, two clocks with a millisecond's resolution; a minute allows for a loaded one.
    assert before - 1 <= reported <= before + 60


def test_a_simulation_brings_its_own_clock(database_url: str) -> None:
    clock = FakeClock(1234.5)
    database = Database(database_url, clock=clock)
    assert database.read("clock", lambda tx: tx.now()) == 1234.5
    clock.sleep(1)
    assert database.read("clock", lambda tx: tx.now()) == 1235.5
    database.dispose()


def test_sqlite_is_durable_and_checks_references(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.db")

    def pragmas(tx: Transaction) -> tuple[object, ...]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return tuple(tx.session.scalar(text(f"PRAGMA {name}")) for name in names)

    assert database.read("pragmas", pragmas) == ("wal", 2, 1)
    database.dispose()


def test_another_process_that_comes_and_goes_takes_no_commit_with_it(tmp_path: Path) -> None:
    """Closing a descriptor of the file would take this process's locks off it: the other would delete the log."""
    path = tmp_path / "wardround.db"
    engine = connect(f"sqlite:///{path}")
    with engine.begin() as first:
        first.execute(text("CREATE TABLE kept (a INTEGER)"))
    # Two at once, so that one is opened while the other holds its locks.
    with engine.connect(), engine.connect():
        pass
    name = str(path)
    look = f"import sqlite3; c = sqlite3.connect({name!r}); print(*c.execute('SELECT count(*) FROM kept')); c.close()"
    assert _outside(look) == "(0,)"
    with engine.begin() as writing:
        writing.execute(text("INSERT INTO kept VALUES (1)"))
    assert _outside(look) == "(1,)"
    engine.dispose()


def _outside(code: str) -> str:
    """What a program prints in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
