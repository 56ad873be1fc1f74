"""Wrong entries of a settings file that a person wrote, entry by entry, in words and without any value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_WORDS = {
    "missing": "is missing",
    "frozen_set_type": 'must be a list, such as ["one", "two"]',
    "tuple_type": 'must be a list, such as ["one", "two"]',
    "list_type": 'must be a list, such as ["one", "two"]',
}

_KINDS = ("union_tag_invalid", "union_tag_not_found")
"""Types of pydantic's errors for a table whose entry `kind` is unknown or missing."""


def wrong_entries(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line for each entry that `model` refused. An unknown name comes with the nearest one that exists."""
    refusals = list[tuple[tuple[str | int, ...], str, str]]()
    named_lines = dict[tuple[str | int, ...], list[str]]()
    for detail in error.errors(include_url=False):
        place = tuple(detail["loc"])
        depth = _free_name(place, model)
        if depth is None:
            refusals.append(
                (place, detail["type"], _description(detail["type"], detail.get("ctx", {})) or detail["msg"])
            )
        else:
            # Every form that a value may have says why it is none.
            named_lines[place[:depth]] = _free_value(place[:depth], detail["input"])
    # A list is too short where its wrong entries are not counted: those are named, and that is enough.
    within = {place[:length] for place, _, _ in refusals for length in range(len(place))}
    lines = [_line(*detail, model) for detail in refusals if detail[1] != "too_short" or detail[0] not in within]
    return [*lines, *chain.from_iterable(named_lines.values())]


def as_words(message: str) -> str:
    """Return a message of pydantic as the rest of a sentence that begins with the entry's name."""
    return message.removeprefix("Value error, ").replace("Input should", "must", 1)


def _free_name(place: tuple[str | int, ...], model: type[BaseModel]) -> int | None:
    """Return how many parts of a place lead to an entry whose name is free, as of `column.age`.

    None for any other entry.
    """
    sections: list[type[BaseModel]] = [model]
    for depth, part in enumerate(place, start=1):
        fields = _fields(part, sections)
        # Where a name stands for a section, as in `cohort.columns`, the section's entries say what is wrong.
        if any(get_origin(field.annotation) is dict and not any(models_in(field)) for field in fields):
            # Of a name itself pydantic says so, behind it.
            return depth + 1 if len(place) > depth and place[-1] != "[key]" else None
        if fields:
            sections = list(chain.from_iterable(map(models_in, fields)))
    return None


def _fields(name: str | int, sections: Sequence[type[BaseModel]]) -> list[FieldInfo]:
    return [
        section.model_fields[name] for section in sections if isinstance(name, str) and name in section.model_fields
    ]


def _free_value(place: tuple[str | int, ...], value: object) -> list[str]:
    *section, name = map(str, place)
    path = ".".join(section)
    if isinstance(value, Mapping):
        dotted = list(_dotted(cast("Mapping[str, object]", value), name))
        return [f'{path}: a name with a dot stands in quotation marks: "{entry}" = ...' for entry in dotted]
    return [f"{path}.{name}: must be a text without control characters, a number, true or false"]


def _dotted(values: Mapping[str, object], before: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(cast("Mapping[str, object]", value), f"{before}.{name}")
        else:
            yield f"{before}.{name}"


def _line(place: tuple[str | int, ...], kind: str, message: str, model: type[BaseModel]) -> str:
    path = ".".join(map(str, (*place, "kind") if kind in _KINDS else place))
    if kind == "extra_forbidden":
        return f"{path}: there is no such entry{_nearest(place, model)}"
    words = _WORDS.get(kind) or as_words(message)
    # A rule that a whole section breaks names its entries itself, also from the beginning of the file on.
    if not path or words.startswith(f"{path}."):
        return words
    first = re.match("[a-z_]+(?=[.:])", words)
    is_entry = first is not None and any(first[0] in section.model_fields for section in _sections(place, model))
    return f"{path}.{words}" if is_entry else f"{path}: {words}"


def _description(kind: str, context: Mapping[str, Any]) -> str:
    """Return words for a kind that does not exist or a list that is too long or too short.

    Others keep pydantic's words.
    """
    if kind == "union_tag_invalid":
        return f"must be one of {context['expected_tags']}".replace("'", "")
    if kind == "union_tag_not_found":
        return "is missing"
    if "actual_length" not in context:
        return ""
    if context["field_type"] == "Value" and context.get("min_length") == 1:
        return "must not be empty"
    word, number = ("most", context["max_length"]) if "max_length" in context else ("least", context["min_length"])
    return f"must have at {word} {number} entr{'y' if number == 1 else 'ies'}"


def _sections(place: Sequence[str | int], model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models that the section at this place may be."""
    sections: list[type[BaseModel]] = [model]
    for part in place:
        # A part that is no field is a number in a list, or the kind that was chosen among several.
        if fields := _fields(part, sections):
            sections = list(chain.from_iterable(map(models_in, fields)))
        elif isinstance(part, str):
            sections = [section for section in sections if _kind(section) in (None, part)]
    return sections


def _nearest(place: Sequence[str | int], model: type[BaseModel]) -> str:
    sections = _sections(place[:-1], model)
    homes = [
        name for name, field in model.model_fields.items() for s in models_in(field) if place[-1] in s.model_fields
    ]
    if homes and len(place) == 1:
        return f". It belongs to section [{homes[0]}]"
    names = sorted({field.alias or name for section in sections for name, field in section.model_fields.items()})
    near = difflib.get_close_matches(str(place[-1]), names, n=1)
    return f". Did you mean {near[0]}?" if near else ""


def models_in(annotated: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field, or a type, may hold."""
    inner = getattr(annotated, "annotation", annotated)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        yield inner
    for argument in get_args(inner):
        yield from models_in(argument)


def _kind(model: type[BaseModel]) -> str | None:
    """Return the one value that the entry `kind` of a model may have."""
    values = get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
    return str(values[0]) if len(values) == 1 else None
