"""A question as a person has it: a file, a dictionary, a question or a whole document."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from client_sdk.errors import ConfigurationError
from study_protocol.queries.question import BaseQuestion
from study_protocol.study.queries import QueryDocument
from study_protocol.wire.written import Unreadable, read_json, read_toml
from study_protocol.wire.wrong_entries import wrong_entries

AnyQuestion = QueryDocument | BaseQuestion | Mapping[str, Any] | str | os.PathLike[str]
"""A dictionary has the same entries as a file; a text is the path of one, TOML or (`.json`) JSON."""


def read_question(source: AnyQuestion) -> QueryDocument:
    """Return the question as a query document.

    Raises:
        ConfigurationError: no TOML or JSON, or no question. Every wrong entry is named.
        OSError: the file cannot be read.
    """
    if isinstance(source, QueryDocument):
        return source
    if isinstance(source, BaseQuestion):
        return _document(source.model_dump(mode="json"), "this")
    if isinstance(source, Mapping):
        return _document(source, "this")
    path = Path(source)
    return _document(_read(path), str(path))


def _read(path: Path) -> Mapping[str, Any]:
    kind, read = ("JSON", read_json) if path.suffix == ".json" else ("TOML", read_toml)
    try:
        values: Any = read(path.read_bytes())
    except Unreadable as error:
        raise ConfigurationError(f"{path} is no {kind}: {error}") from error
    if not values:
        raise ConfigurationError(f"{path} is empty: `wardround query template KIND -o FILE` writes one to begin with")
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path} is not a question: it is no TOML or JSON of one")
    return cast("Mapping[str, Any]", values)


def _document(values: Mapping[str, Any], name: str) -> QueryDocument:
    """values: the entries of a question, and perhaps `data_version` beside them, or those of a whole document."""
    entries = dict(values)
    whole = "question" in entries
    if not whole:
        version = {"data_version": entries.pop("data_version")} if "data_version" in entries else {}
        entries = {"question": entries, **version}
    try:
        # As JSON, where a list is what a tuple is in Python.
        return QueryDocument.model_validate_json(json.dumps(entries))
    except ValidationError as error:
        lines = wrong_entries(error, QueryDocument)
        if not whole:  # The file names neither the document around the question, nor its kind before every entry.
            kind = f"{entries['question'].get('kind')}."
            lines = [line.removeprefix("question.").removeprefix(kind) for line in lines]
        wrong = "\n".join(f"  {line}" for line in lines)
        raise ConfigurationError(f"{name} is not a question:\n{wrong}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name} is not a question: it is no TOML or JSON of one") from error
