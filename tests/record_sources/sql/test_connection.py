"""A connection reads alone, keeps its time, and is given up where a server is lost or silent."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from record_sources.errors import SourceError
from record_sources.snapshot.preparation import prepare
from record_sources.source_file.description import DatabaseAddress, read_description
from record_sources.sql.connection import read_only
from tests.conftest import Postgres
from tests.record_sources.sql.conftest import Open
from tests.record_sources.sql.databases import KINDS, described
from tests.record_sources.sql.snapshots import PATIENTS, refusal


@pytest.mark.quick("sqlite")
@pytest.mark.parametrize("kind", KINDS)
def test_a_statement_that_takes_too_long_is_ended(tmp_path: Path, opened: Open, kind: str) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i % 1000 + 1 FROM n) SELECT i AS patient FROM n"
    if kind == "duckdb":
        endless = (
            "SELECT count(*) AS patient FROM range(100000000) a, range(100000000) b WHERE hash(a.range + b.range) = 1"
        )
    assert "within the timeout" in refusal(tmp_path, opened(kind, *PATIENTS), endless, timeout=0.5)


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_nothing_is_written_to_the_database(tmp_path: Path, opened: Open, kind: str) -> None:
    url = opened(kind, "CREATE SEQUENCE counter")
    assert "only reads" in refusal(tmp_path, url, "SELECT nextval('counter') AS patient")


def test_a_connection_to_sqlite_cannot_write(tmp_path: Path, opened: Open) -> None:
    with (
        read_only(DatabaseAddress(url=opened("sqlite", *PATIENTS))) as database,
        pytest.raises(OperationalError, match="readonly"),
    ):
        database.connection.exec_driver_sql("DELETE FROM people")


def test_a_connection_that_is_ended_while_rows_come_leaves_nothing(
    tmp_path: Path, opened: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("record_sources.working.workspace._LARGEST_CHUNK", 1000)
    url = opened("postgresql")
    path = described(tmp_path, url, "SELECT i AS patient, repeat('x', 900) AS note FROM generate_series(1, 30000) i")
    name = url.rpartition("/")[2].partition("?")[0]
    ended = threading.Event()

    def progress(rows: int, expected: int | None, table: str) -> None:
        if not ended.is_set():
            ended.set()
            postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    with pytest.raises(SourceError, match="connection to the database was lost"):
        prepare(read_description(path), None, tmp_path / "icu", progress)
    assert not list(tmp_path.glob(".icu*"))
    prepare(read_description(path), None, tmp_path / "icu").discard()


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_given_up(
    tmp_path: Path, opened: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("record_sources.working.workspace._LARGEST_CHUNK", 1000)
    monkeypatch.setattr("record_sources.sql.connection._GRACE_SECONDS", 0)
    url = opened("postgresql")
    path = described(
        tmp_path, url, "SELECT i AS patient, repeat('x', 900) AS note FROM generate_series(1, 30000) i", timeout=1
    )
    with ExitStack() as stack:
        frozen = threading.Event()

        def progress(rows: int, expected: int | None, table: str) -> None:
            if not frozen.is_set():
                frozen.set()
                stack.enter_context(postgres.frozen(url.rpartition("/")[2].partition("?")[0]))

        with pytest.raises(SourceError, match="within the timeout"):
            prepare(read_description(path), None, tmp_path / "icu", progress)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql+psycopg://a@host.invalid/clinic", "host of the database is unknown"),
        ("postgresql+psycopg://a@127.0.0.1:1/clinic", "cannot be reached"),
        ("mysql+pymysql://a@127.0.0.1:1/clinic", "pip install 'pymysql'"),
    ],
)
def test_a_database_that_is_not_reached_says_why(tmp_path: Path, address: str, words: str) -> None:
    assert words in refusal(tmp_path, address, "SELECT 1 AS patient")
