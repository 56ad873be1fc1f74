"""Errors of drivers in one sentence, by their codes, without what they quote."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import pytest
from psycopg import DataError

from record_sources.sql.faults import fault_of


class Coded(Exception):
    """As PostgreSQL's driver raises it."""

    def __init__(self, message: str, state: str, position: int | None = None) -> None:
        super().__init__(message)
        self.sqlstate, self.diag = state, SimpleNamespace(statement_position=position)


def of_sqlite(message: str, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Coded("secret refused", "22P02"), "cannot be converted"),
        (Coded("terminating", "57P01"), "connection to the database was lost"),
        (Coded("secret", "55000"), "refuses the query (code 55000)"),
        (Exception(1045, "Access denied for 'secret'"), "refuses the user or the password"),
        (Exception(1146, "Table 'clinic.people' doesn't exist"), "names a table clinic.people that is not there"),
        (Exception(2013, "Lost connection"), "was lost"),
        (Exception(3024, "maximum statement execution time exceeded"), "within the timeout"),
        (Exception(SimpleNamespace(full_code="ORA-00942", message="secret")), "names a table that is not there"),
        (Exception(SimpleNamespace(full_code="DPY-4024", message="call timeout")), "within the timeout"),
        (Exception("28000", "[28000] Login failed for user 'secret'. (18456)"), "refuses the user or the password"),
        (Exception("42000", "[42000] permission denied on 'secret' (229)"), "may not read a table"),
        (Exception("42S02", "[42S02] Invalid object name 'secret'. (208)"), "names a table that is not there"),
        (sqlite3.OperationalError("no such column: height"), "names a column height that is not there"),
        (sqlite3.OperationalError("database is locked"), "another program holds the database"),
        (sqlite3.OperationalError("Could not decode to UTF-8 column 'a' with text 'secret'"), "column has a text"),
        (sqlite3.OperationalError("Could not decode to UTF-8 column 'height' with text 'secret'"), "column height has"),
        (of_sqlite("attempt to write a readonly database", "SQLITE_READONLY"), "would change the database"),
        # A file in the mode WAL, in a folder that only others may write.
        (of_sqlite("attempt to write a readonly database", "SQLITE_READONLY_CANTINIT"), "write the files that belong"),
        (of_sqlite("unable to open database file", "SQLITE_CANTOPEN"), "this user may not read it"),
        (ValueError("year 20000 secret"), "cannot be converted"),
        (DataError("timestamp too small (before year 1): 'secret'"), "cannot be converted"),
    ],
)
def test_a_code_decides_and_nothing_is_quoted_that_the_query_does_not_say(error: Exception, words: str) -> None:
    sentence = fault_of(error, "SELECT height FROM clinic.people")
    assert words in sentence
    assert "secret" not in sentence


def test_a_place_in_the_query_is_a_line() -> None:
    query = "SELECT a\nFRM t"
    prefix = "EXPLAIN "
    error = Coded("syntax error", "42601", len(prefix) + query.index("FRM") + 1)
    assert "in line 2" in fault_of(error, query, len(prefix))
