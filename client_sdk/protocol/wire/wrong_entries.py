"""What is wrong in a file of settings that a person wrote, entry by entry, in words and without any value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_WORDS = {
    "missing": "is missing",
    "frozen_set_type": 'must be a list, such as ["one", "two"]',
    "tuple_type": 'must be a list, such as ["one", "two"]',
    "list_type": 'must be a list, such as ["one", "two"]',
}


def wrong_entries(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each entry that `model` refused; a name that does not exist comes with the nearest one that does."""
    return [
        _line(tuple(one["loc"]), one["type"], _counted(one.get("ctx", {})) or one["msg"], model)
        for one in error.errors(include_input=False, include_url=False)
    ]


def _line(place: tuple[str | int, ...], kind: str, message: str, model: type[BaseModel]) -> str:
    # A rule that a whole section breaks names its entries itself.
    where = ".".join(map(str, place))
    if kind == "extra_forbidden":
        return f"{where}: there is no such entry{_nearest(place, model)}"
    words = _WORDS.get(kind) or message.removeprefix("Value error, ").replace("Input should", "must", 1)
    return f"{where}: {words}" if where else words


def _counted(told: Mapping[str, Any]) -> str:
    """Of a list or a table that is too long or too short: Python's own words for it are no user's."""
    if "actual_length" not in told:
        return ""
    word, number = ("most", told["max_length"]) if "max_length" in told else ("least", told["min_length"])
    return f"must have at {word} {number} entr{'y' if number == 1 else 'ies'}"


def _nearest(place: Sequence[str | int], model: type[BaseModel]) -> str:
    sections: list[type[BaseModel]] = [model]
    for part in place[:-1]:
        if isinstance(part, str):
            sections = [
                inner for one in sections if part in one.model_fields for inner in _models(one.model_fields[part])
            ]
    names = sorted({field.alias or name for one in sections for name, field in one.model_fields.items()})
    near = difflib.get_close_matches(str(place[-1]), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _models(annotated: Any) -> Iterator[type[BaseModel]]:
    """The models that a field, or a type, may hold."""
    inner = getattr(annotated, "annotation", annotated)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        yield inner
    for argument in get_args(inner):
        yield from _models(argument)
