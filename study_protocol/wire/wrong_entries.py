"""What is wrong in a file of settings that a person wrote, entry by entry, in words and without any value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

_WORDS = {
    "missing": "is missing",
    "frozen_set_type": 'must be a list, such as ["one", "two"]',
    "tuple_type": 'must be a list, such as ["one", "two"]',
    "list_type": 'must be a list, such as ["one", "two"]',
}

_KINDS = ("union_tag_invalid", "union_tag_not_found")
"""What pydantic says of a table whose entry `kind` is none that exists, or is missing."""


def wrong_entries(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each entry that `model` refused; a name that does not exist comes with the nearest one that does."""
    found = list[tuple[tuple[str | int, ...], str, str]]()
    named = dict[tuple[str | int, ...], list[str]]()
    for one in error.errors(include_url=False):
        place = tuple(one["loc"])
        depth = _free_name(place, model)
        if depth is None:
            found.append((place, one["type"], _told(one["type"], one.get("ctx", {})) or one["msg"]))
        else:
            # Every form that a value may have says why it is none.
            named[place[:depth]] = _free_value(place[:depth], one["input"])
    # A list is too short where its wrong entries are not counted: those are named, and that is enough.
    within = {place[:length] for place, _, _ in found for length in range(len(place))}
    lines = [_line(*one, model) for one in found if one[1] != "too_short" or one[0] not in within]
    return [*lines, *(line for several in named.values() for line in several)]


def _free_name(place: tuple[str | int, ...], model: type[BaseModel]) -> int | None:
    """How many parts of a place lead to an entry whose name is free, as of `column.age`; None: it is no such entry."""
    sections: list[type[BaseModel]] = [model]
    for depth, part in enumerate(place, start=1):
        fields = [one.model_fields[part] for one in sections if isinstance(part, str) and part in one.model_fields]
        if any(get_origin(field.annotation) is dict for field in fields):
            # Of a name itself pydantic says so, behind it.
            return depth + 1 if len(place) > depth and place[-1] != "[key]" else None
        if fields:
            sections = [inner for field in fields for inner in _models(field)]
    return None


def _free_value(place: tuple[str | int, ...], value: object) -> list[str]:
    *section, name = map(str, place)
    where = ".".join(section)
    if isinstance(value, Mapping):
        dotted = list(_dotted(cast("Mapping[str, object]", value), name))
        return [f'{where}: a name with a dot stands in quotation marks: "{one}" = ...' for one in dotted]
    return [f"{where}.{name}: must be a text without control characters, a number, true or false"]


def _dotted(values: Mapping[str, object], before: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(cast("Mapping[str, object]", value), f"{before}.{name}")
        else:
            yield f"{before}.{name}"


def _line(place: tuple[str | int, ...], kind: str, message: str, model: type[BaseModel]) -> str:
    # A rule that a whole section breaks names its entries itself.
    where = ".".join(map(str, (*place, "kind") if kind in _KINDS else place))
    if kind == "extra_forbidden":
        return f"{where}: there is no such entry{_nearest(place, model)}"
    words = _WORDS.get(kind) or message.removeprefix("Value error, ").replace("Input should", "must", 1)
    return f"{where}: {words}" if where else words


def _told(kind: str, told: Mapping[str, Any]) -> str:
    """Where pydantic's own words are no user's: a kind that does not exist, a list that is too long or too short."""
    if kind == "union_tag_invalid":
        return f"must be one of {told['expected_tags']}".replace("'", "")
    if kind == "union_tag_not_found":
        return "is missing"
    if "actual_length" not in told:
        return ""
    word, number = ("most", told["max_length"]) if "max_length" in told else ("least", told["min_length"])
    return f"must have at {word} {number} entr{'y' if number == 1 else 'ies'}"


def _nearest(place: Sequence[str | int], model: type[BaseModel]) -> str:
    sections: list[type[BaseModel]] = [model]
    for part in place[:-1]:
        # What is no field is a number in a list, or the kind that was chosen among several.
        if any(part in one.model_fields for one in sections):
            sections = [
                inner for one in sections if part in one.model_fields for inner in _models(one.model_fields[str(part)])
            ]
        else:
            sections = [one for one in sections if _kind(one) in (None, part)] if isinstance(part, str) else sections
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


def _kind(model: type[BaseModel]) -> str | None:
    """The one value that the entry `kind` of a model may have."""
    values = get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
    return str(values[0]) if len(values) == 1 else None
