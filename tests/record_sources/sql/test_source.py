"""Snapshots of databases: the same bytes from each, read-only, and one sentence for whatever goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Postgres
from tests.record_sources.sql.conftest import Open
from tests.record_sources.sql.databases import KINDS
from tests.record_sources.sql.snapshots import PATIENTS, refusal, taken


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


@pytest.mark.quick(
    "SELECT 'x' AS patient, age FROM people-2 of 3 rows are of a patient who has another row-sqlite",
    "SELECT NULL AS patient, age FROM people-3 of 3 rows have no patient in column patient-sqlite",
    "SELECT id AS patient FROM nowhere-names a table nowhere that is not there-sqlite",
    "SELECT id AS patient FROM people WHERE age > 200-gives no rows-duckdb",
    "SELECT id AS patient FROM people WHERE age > 200-gives no rows-sqlite",
    "SELECT id AS patient FROM people WHERE-not correct SQL-sqlite",
    "SELECT id AS patient, age, weight AS age FROM people-the names age stand for several columns-sqlite",
    "SELECT id AS patient, height FROM people-names a column height that is not there-sqlite",
    "SELECT id FROM people-there is no column patient with the patient. There are id-duckdb",
    "SELECT id FROM people-there is no column patient with the patient. There are id-sqlite",
)
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


@pytest.mark.quick(
    "'0044-03-15 BC'::date-cannot be converted",
    "('a' || i)::int-cannot be converted",
    "9007199254740993::numeric + i / 2.0-too large to be exact",
    "interval '1 day'-of a type that no table holds (timedelta)",
)
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
