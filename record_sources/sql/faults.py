"""The refusal of a database or its driver, in one sentence. Their own words may quote cells or a password."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Fault -> codes of PostgreSQL, MySQL, Oracle and SQL Server, names of SQLite's codes, and words of drivers that give no
# code. The first match counts.
_PATTERNS = {
    "timeout": r"\b57014\b|\b3024\b|\b1969\b|ORA-01013|DPY-4024|\bHYT00\b|interrupt",
    "busy": r"database is locked|could not set lock|\b55P03\b|\b1205\b",
    "encoding": r"could not decode to utf-8",
    "file": r"SQLITE_(?:NOTADB|CORRUPT|CANTOPEN|PERM|IOERR|READONLY_)|not a valid duckdb|version number|"
    r"cannot open file|connection to same database file",
    "lost": r"\b08(?!001)\w{3}\b|\b57P0[1-5]\b|\b2006\b|\b2013\b|ORA-0311[34]|DPY-4011|closed the connection|"
    r"terminating connection|connection (?:is|was|has been)? ?(?:lost|closed)|EOF detected",
    "login": r"\b28\w{3}\b|authentication failed|no password supplied|\b1045\b|ORA-01017|\b18456\b",
    "host": r"translate host|resolve host|name or service not known|nodename nor servname|getaddrinfo|\b2005\b|"
    r"ORA-12545|DPY-4027",
    "database": r"\b3D000\b|database .* does not exist|\b1049\b|ORA-12514|\b4060\b|DPY-6001",
    "unreachable": r"refused|timeout expired|timed out|no such file or directory|no route|unreachable|\b200[23]\b|"
    r"ORA-12541|ORA-12170|DPY-6005|\b08001\b",
    "table": r"\b42P01\b|no such table|\b1146\b|ORA-00942|\b42S02\b|table with name",
    "column": r"\b42703\b|no such column|\b1054\b|ORA-00904|\b42S22\b|column .* not found",
    "permission": r"\b42501\b|\b1044\b|\b114[23]\b|ORA-01031|permission denied|\(229\)",
    "writes": r"\b25006\b|\b1792\b|ORA-01456|readonly|read-only",
    "disk": r"\b53\w{3}\b|disk (?:is )?full|no space|\b1021\b|ORA-01652",
    "grammar": r"\b42601\b|\b1064\b|ORA-009\d\d|syntax error|\b42000\b",
    "cell": r"\b22\w{3}\b|conversion error|out of range|decode|too large|DataError|ValueError|OverflowError|"
    r"\b1292\b|ORA-01722|\b8114\b",
}
_FAULTS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _PATTERNS.items()}
_TAKE_AGAIN = "Nothing was left of the snapshot: take it again"
_SENTENCES = {
    "timeout": f"the database did not answer within the timeout. Set a larger `timeout`, or make the query faster. "
    f"{_TAKE_AGAIN}",
    "busy": f"another program holds the database. Stop it, or read a copy. {_TAKE_AGAIN}",
    "encoding": "the query's column{name} has a text that is not in UTF-8. Correct it, or read the column with hex()",
    "file": "the file in `url` cannot be read as this database. It may be of another kind or damaged, or this user may "
    "not read it or write the files that belong to it. Check it, or read a copy",
    "lost": f"the connection to the database was lost. {_TAKE_AGAIN}",
    "login": "the database refuses the user or the password. Check the user in `url`, and password_file, "
    "password_environment or password_keyring",
    "host": "the host of the database is unknown. Check `url` and the network",
    "database": "the server has no such database. Check the name in `url`",
    "unreachable": "the database cannot be reached. Check host and port in `url`, and whether it runs",
    "table": "the query names a table{name} that is not there. Check its name and schema",
    "column": "the query names a column{name} that is not there",
    "permission": "the user may not read a table{name} of the query. Ask for the right to SELECT",
    "writes": "the query would change the database, and a source only reads",
    "disk": f"the database server has no space or memory left for the query. {_TAKE_AGAIN}",
    "grammar": "the query is not correct SQL of this database{line}",
    "cell": "a cell of the query cannot be converted as the query or the driver asks. CAST the column as text to see "
    "which one",
}
# What a message names, perhaps in a quotation mark.
_NAME = re.compile(r"(?:relation|table|column|view)(?: with name)?[: ]+\W?([\w.]+)", re.IGNORECASE)


def fault_of(error: BaseException, query: str = "", position_offset: int = 0) -> str:
    """Return a sentence about an error of SQLAlchemy or a driver.

    Args:
        query: what was asked. Only names that stand in it are repeated.
        position_offset: signs of the statement before the query.
    """
    original: Any = getattr(error, "orig", None) or error
    codes = _codes(original)
    message = str(original)
    # A code is exact. A message may quote a cell.
    named = f"{getattr(original, 'sqlite_errorname', '')} {type(original).__name__} {message}"
    searched = " ".join(codes) if codes else named
    fault = next((name for name, pattern in _FAULTS.items() if pattern.search(searched)), None)
    if fault is None:
        code = f" (code {codes[0]})" if codes else f" ({type(original).__name__})"
        return f"the database refuses the query{code}. Try it in the database's own program"
    return _SENTENCES[fault].format(name=_name_in(message, query), line=_line(original, query, position_offset))


def _codes(error: Any) -> Sequence[str]:
    """Return the codes of an error: an SQLSTATE, a number of MySQL, or one of Oracle's."""
    if state := getattr(error, "sqlstate", None):
        return [str(state)]
    first: Any = error.args[0] if error.args else None
    if code := getattr(first, "full_code", None):
        return [str(code)]
    if isinstance(first, int):
        return [str(first)]
    # pyodbc: the SQLSTATE, and the server's number in brackets of the message.
    if isinstance(first, str) and re.fullmatch(r"[0-9A-Z]{5}", first):
        return [*re.findall(r"\(\d+\)", str(error)), first]
    return []


def _name_in(message: str, query: str) -> str:
    match = _NAME.search(message)
    return f" {match[1]}" if match and match[1] in query else ""


def _line(error: Any, query: str, offset: int) -> str:
    position = getattr(getattr(error, "diag", None), "statement_position", None)
    if position is None or not 0 < int(position) - offset <= len(query) + 1:
        return ""
    return f", in line {query.count(chr(10), 0, int(position) - offset - 1) + 1} or before"
