"""A file with one query of the hospital: exactly one statement, and one that reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from record_sources.errors import SourceError

# SQLAlchemy's name of a database -> sqlglot's, where they differ.
_DIALECTS = {"postgresql": "postgres", "mariadb": "mysql", "mssql": "tsql"}
_READS = ("SELECT", "WITH", "VALUES", "FROM")
_WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE")


def read_query(path: Path, kind: str) -> str:
    """Return the query in a file, without a semicolon at its end.

    Args:
        kind: of the database, by SQLAlchemy's name.

    Raises:
        SourceError: the file is empty, is no plain text, holds two statements, or a statement that is no query.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{path.name} is no text in UTF-8: save it as one") from None
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}") from None
    if "\0" in text:
        # A driver that ends the text there would leave out what follows.
        raise SourceError(f"{path.name} holds a character without a meaning (NUL): save it as plain text")
    tokens = _tokens(path.name, text, _DIALECTS.get(kind, kind))
    while tokens and _is_semicolon(tokens[-1]):
        text = text[: tokens.pop().start]
    if not tokens:
        raise SourceError(f"{path.name} holds no query. Write one SELECT into it")
    if any(map(_is_semicolon, tokens)):
        raise SourceError(f"{path.name} holds several statements. Keep one SELECT, and make a file for each other one")
    _require_reading(path.name, [_word(token) for token in tokens], kind)
    return text.strip()


def _tokens(name: str, text: str, dialect: str) -> list[Any]:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        # A text between quotation marks is one token, also where a semicolon stands in it.
        return [token for token in cast("list[Any]", sqlglot.tokenize(text, read=dialect)) if token.text]
    # Its message quotes the query.
    except SqlglotError:
        raise SourceError(f"{name}: a quotation mark or a comment in the query is not closed") from None


def _word(token: Any) -> str:
    """Return a keyword or a bracket of a token, in capitals. A quoted name or a text is none."""
    kind = str(token.token_type.name)
    return "" if kind in ("STRING", "IDENTIFIER", "HEREDOC_STRING", "NATIONAL_STRING") else str(token.text).upper()


def _require_reading(name: str, words: Sequence[str], kind: str) -> None:
    first = next((word for word in words if word != "("), "")
    # DuckDB has queries that begin with FROM.
    if first not in _READS or (first == "FROM" and kind != "duckdb"):
        beginning = first if first.isalpha() else "another word"
        raise SourceError(f"{name} must hold a query that begins with SELECT or WITH, and it begins with {beginning}")
    if first == "WITH" and (writing := _writing_word(words)):
        raise SourceError(f"{name} holds WITH ... {writing}, and a source only reads. Write a SELECT")


def _writing_word(words: Sequence[str]) -> str:
    """Return the word that makes a statement of WITH write: its main statement's, or one of a named query."""
    depth = 0
    for place, word in enumerate(words):
        before = words[max(place - 2, 0) : place]
        # A column may have such a name, as in count(delete).
        begins = before[-1:] == [")"] if depth == 0 else before in (["AS", "("], ["MATERIALIZED", "("])
        if word in _WRITES and begins:
            return word
        depth += {"(": 1, ")": -1}.get(word, 0)
    return ""


def _is_semicolon(token: Any) -> bool:
    return token.token_type.name == "SEMICOLON"
