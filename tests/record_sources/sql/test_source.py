"""Snapshots of databases: the same bytes from each, read-only, and one sentence for whatever goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from record_sources.errors import SourceError
from record_sources.snapshot.preparation import PreparedSnapshot, prepare
from record_sources.source_file.description import DatabaseAddress, read_description
from record_sources.sql.connection import read_only
from tests.conftest import Postgres
from tests.record_sources.sql.databases import KINDS, database, described

PATIENTS = (
    "CREATE TABLE people (id VARCHAR(9), age INTEGER, weight DOUBLE PRECISION, town VARCHAR(9))",
    "INSERT INTO people VALUES ('b', 61, 70.5, 'Bern'), ('a', 40, NULL, NULL), ('c', 7, 20.25, '50%:x::y')",
)
Open = Callable[..., str]


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Makes a database of a kind with some statements."""
    with ExitStack() as stack:

        def make(kind: str, *statements: str) -> str:
            postgres = request.getfixturevalue("postgres") if kind == "postgresql" else None
            return stack.enter_context(database(kind, tmp_path, postgres, *statements))

        yield make


def taken(folder: Path, url: str, query: str, **entries: object) -> PreparedSnapshot:
    return prepare(read_description(described(folder, url, query, **entries)), None, folder / "icu")


def refusal(folder: Path, url: str, query: str, **entries: object) -> str:
    """The sentence with which a snapshot is refused, of which nothing is left."""
    description = read_description(described(folder, url, query, **entries))
    before = sorted(folder.iterdir())
    with pytest.raises(SourceError) as error:
        prepare(description, None, folder / "icu")
    assert sorted(folder.iterdir()) == before
    # Chained errors would be shown in a traceback.
    assert error.value.__cause__ is None
    return str(error.value)


def test_three_databases_with_the_same_rows_give_the_same_bytes(tmp_path: Path, opened: Open) -> None:
    digests = set[str]()
    for kind in KINDS:
        prepared = taken(
            tmp_path, opened(kind, *PATIENTS), "SELECT id AS patient, age, weight, town FROM people -- all of them\n;"
        )
        digests.add(prepared.record.sha256)
        prepared.discard()
    assert len(digests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_signs_that_drivers_know_are_literal(tmp_path: Path, opened: Open, kind: str) -> None:
    query = "SELECT id AS patient, '%s :name %(x)s' AS note FROM people WHERE town LIKE '50%:x::y'"
    prepared = taken(tmp_path, opened(kind, *PATIENTS), query)
    assert prepared.record.tables["records"].rows == 1
    prepared.discard()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT id AS patient FROM nowhere", "names a table nowhere that is not there"),
        ("SELECT id AS patient, height FROM people", "names a column height that is not there"),
        ("SELECT id AS patient FROM people WHERE", "not correct SQL"),
        ("SELECT id AS patient FROM people WHERE age > 200", "gives no rows"),
        ("SELECT id AS patient, age, weight AS age FROM people", "the names age stand for several columns"),
        ("SELECT id FROM people", "there is no column patient with the patient. There are id"),
        ("SELECT NULL AS patient, age FROM people", "3 of 3 rows have no patient in column patient"),
        ("SELECT 'x' AS patient, age FROM people", "2 of 3 rows are of a patient who has another row"),
    ],
)
def test_a_refused_query_says_why(tmp_path: Path, opened: Open, kind: str, query: str, words: str) -> None:
    assert words in refusal(tmp_path, opened(kind, *PATIENTS), query)


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


def test_a_refused_login_shows_no_password(
    tmp_path: Path, opened: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = opened("postgresql", *PATIENTS)
    monkeypatch.setenv("CLINIC_PASSWORD", "open sesame")
    words = refusal(
        tmp_path,
        url.replace("postgres@", "nurse@"),
        "SELECT id AS patient FROM people",
        password_environment='"CLINIC_PASSWORD"',
    )
    assert "sesame" not in words
    postgres.execute("CREATE ROLE visitor LOGIN")
    try:
        words = refusal(tmp_path, url.replace("postgres@", "visitor@"), "SELECT id AS patient FROM people")
        assert "may not read a table people" in words
    finally:
        postgres.execute("DROP ROLE visitor")


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


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_is_no_database_says_so(tmp_path: Path, kind: str) -> None:
    (tmp_path / "clinic.db").write_bytes(b"no database")
    words = refusal(tmp_path, f"{kind}:///clinic.db", "SELECT 1 AS patient FROM t")
    assert "may be of another kind or damaged" in words


def test_types_of_sqlite_that_do_not_go_together_are_counted(tmp_path: Path, opened: Open) -> None:
    url = opened(
        "sqlite",
        "CREATE TABLE t (patient, glucose)",
        "INSERT INTO t VALUES (1, 5), (2, 'secret'), (3, 6.5), (4, ''), (5, NULL)",
    )
    words = refusal(tmp_path, url, "SELECT * FROM t")
    assert "column glucose: 2 cells are numbers and 1 cells are texts" in words
    assert "secret" not in words


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("now()", "times with a time zone. Choose one in the query: x AT TIME ZONE"),
        ("ARRAY[1]", "of a type that no table holds (list)"),
        ("'a'::bytea", "of a type that no table holds (bytes)"),
        ("'{}'::jsonb", "of a type that no table holds (dict)"),
        ("interval '1 day'", "of a type that no table holds (timedelta)"),
        ("9007199254740993::numeric + i / 2.0", "too large to be exact"),
        ("12345678901234567890::numeric", "too large to be exact"),
        ("'infinity'::date", "cannot be converted"),
        ("'-infinity'::timestamp", "cannot be converted"),
        ("'0044-03-15 BC'::date", "cannot be converted"),
        ("('a' || i)::int", "cannot be converted"),
    ],
)
def test_cells_of_postgresql_that_no_table_holds_are_named(
    tmp_path: Path, opened: Open, column: str, words: str
) -> None:
    url = opened("postgresql")
    assert words in refusal(tmp_path, url, f"SELECT i AS patient, {column} AS x FROM generate_series(1, 4) i")
