"""A query file holds one statement, which reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.sql.query_file import read_query


def written(folder: Path, text: str) -> Path:
    path = folder / "cohort.sql"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("postgresql", "SELECT 1"),
        ("postgresql", "-- of 2026; all\nselect ';' AS a, \"b;\" /* c; */ FROM t -- d;"),
        ("postgresql", "SELECT $$a;b$$ AS x, t.update, count(delete) FROM t"),
        ("postgresql", "(SELECT 1) UNION (SELECT 2)"),
        ("postgresql", "VALUES (1, 'a')"),
        ("postgresql", "WITH a AS MATERIALIZED (SELECT max(update) FROM t), b(x) AS (SELECT 1) SELECT * FROM a, b"),
        ("mysql", 'SELECT `a;b`, "c;d" FROM t # e;'),
        ("mssql", "SELECT [a;b] FROM t"),
        ("duckdb", "FROM t"),
        ("sqlite", "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n"),
    ],
)
def test_a_query_is_returned_as_written(tmp_path: Path, kind: str, text: str) -> None:
    assert read_query(written(tmp_path, text), kind) == text
    assert read_query(written(tmp_path, f"\ufeff{text}\n;\n"), kind).startswith(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no query"),
        ("-- nothing yet\n;", "holds no query"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT 1; DROP TABLE t;", "several statements"),
        ("UPDATE t SET a = 1", "begins with UPDATE"),
        ("EXPLAIN SELECT 1", "begins with EXPLAIN"),
        ("FROM t", "begins with FROM"),
        ("'SELECT'", "begins with another word"),
        ("WITH a AS (SELECT 1) DELETE FROM t", r"WITH \.\.\. DELETE"),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", r"WITH \.\.\. DELETE"),
        ("WITH a AS (SELECT 1), b AS NOT MATERIALIZED (INSERT INTO t VALUES (1) RETURNING *) SELECT 1", "INSERT"),
        ("SELECT 1\0 WHERE 1 = 2", "NUL"),
        ("SELECT 'a", "not closed"),
        ("SELECT 1 /* a", "not closed|holds"),
    ],
)
def test_what_is_no_query_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        read_query(written(tmp_path, text), "postgresql")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cohort.sql"
    path.write_bytes(b"SELECT '\xe4'")
    with pytest.raises(SourceError, match="no text in UTF-8"):
        read_query(path, "sqlite")
