"""JSON from another party: every name once in an object, and no number that JSON does not have.

Parsers disagree about a name that stands twice. Two readers of one signed or checked text would read two documents.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


class UnclearDocument(ValueError):
    """A name stands twice in an object, a number is none, or the text is nested too deeply."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        # Not repeated: the author of the name may have meant it for a log.
        raise UnclearDocument("a name stands twice in one object")
    return entries


def _no_number(_: str) -> NoReturn:
    raise UnclearDocument("NaN and infinities are no numbers of JSON")


def load_json(raw: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is none (json.JSONDecodeError, UnicodeDecodeError), or UnclearDocument.
    """
    try:
        return json.loads(raw, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError as error:
        raise UnclearDocument("the document is nested too deeply") from error


def read_document(model: type[M], raw: bytes | str) -> M:
    """Return the message in a JSON text.

    Raises:
        ValueError: as `load_json`, and pydantic's ValidationError where it is no `model`.
    """
    load_json(raw)
    # Again, by pydantic: bytes, tuples and times are read from JSON in its way only.
    return model.model_validate_json(raw)
