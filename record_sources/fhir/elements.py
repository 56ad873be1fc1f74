"""Elements of FHIR resources by plain paths: references, codes, dates and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, cast

from record_sources.fhir.systems import vocabulary_code
from record_sources.working.staging import YEARS

Codes = tuple[tuple[str, str], ...]
"""Vocabularies and codes of one coded element, as written."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d)?)(\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_PART_OF_A_DATE = re.compile(r"(\d{4})(?:-(\d\d))?", re.ASCII)


class PartialDateError(ValueError):
    """A date has no month or no day."""


class UnreadableDateError(ValueError):
    """A text is no date of FHIR."""


def element(resource: Any, path: str) -> Any:
    """Return the element at a path of names with dots between them, or None where it or a step is missing."""
    for name in path.split("."):
        if not isinstance(resource, dict):
            return None
        resource = cast("dict[str, Any]", resource).get(name)
    return resource


def items(resource: Any, path: str) -> list[Any]:
    """Return the items of a repeated element, and an empty list where it is missing or does not repeat."""
    repeated = element(resource, path)
    return cast("list[Any]", repeated) if isinstance(repeated, list) else []


def text(resource: Any, path: str) -> str | None:
    """Return a text element that is not empty, or None."""
    content = element(resource, path)
    return content if isinstance(content, str) and content else None


def referred_id(resource: Any, path: str, kind: str) -> str | None:
    """Return the id of a resource of one kind to which the reference at a path leads, or None.

    References may be relative, absolute, of one version, or a `urn:uuid:`.
    """
    reference = text(resource, f"{path}.reference")
    if reference is None:
        return None
    if reference.startswith("urn:uuid:"):
        return reference.removeprefix("urn:uuid:") or None
    steps = reference.split("/_history/")[0].split("/")
    return steps[-1] or None if len(steps) > 1 and steps[-2] == kind else None


def codes(codings: list[Any]) -> Codes:
    """Return the codes of codings in known code systems. The empty tuple stands for a code that is not known."""
    return tuple(code for coding in codings if (code := _code(coding)) is not None)


def _code(coding: Any) -> tuple[str, str] | None:
    system, code = text(coding, "system"), text(coding, "code")
    return vocabulary_code(system, code) if system and code else None


def moment(resource: Any, paths: tuple[str, ...]) -> tuple[date, datetime | None] | None:
    """Return the local day and time of the first of several elements that is there. Time zones are dropped.

    Raises:
        PartialDateError: its month or day is missing.
        UnreadableDateError: it is no date, or of a year in which no patient lives.
    """
    written = _first_element(resource, paths)
    if written is None:
        return None
    if not isinstance(written, str) or not (match := _MOMENT.fullmatch(written)):
        partial = isinstance(written, str) and _PART_OF_A_DATE.fullmatch(written)
        raise PartialDateError if partial else UnreadableDateError
    day, time, fraction = match.groups()
    if not YEARS[0] <= int(day[:4]) <= YEARS[1]:
        raise UnreadableDateError
    try:
        if time is None:
            return date.fromisoformat(day), None
        instant = datetime.fromisoformat(f"{day}T{time}")
    except ValueError:
        raise UnreadableDateError from None
    return instant.date(), instant.replace(microsecond=int((fraction or ".")[1:7].ljust(6, "0")))


def _first_element(resource: Any, paths: tuple[str, ...]) -> Any:
    return next((present for path in paths if (present := element(resource, path)) is not None), None)


def birth(resource: Any) -> tuple[int | None, int | None, int | None]:
    """Return year, month and day of a patient's birth, as far as they are known.

    Raises:
        UnreadableDateError: the element is no date.
    """
    try:
        born = moment(resource, ("birthDate",))
    except PartialDateError:
        year, month = cast("re.Match[str]", _PART_OF_A_DATE.fullmatch(resource["birthDate"])).groups()
        if month is not None and not 1 <= int(month) <= 12:
            raise UnreadableDateError from None
        return int(year), None if month is None else int(month), None
    return (None, None, None) if born is None else (born[0].year, born[0].month, born[0].day)


def number(content: Any) -> float | None:
    """Return a number of JSON as float, and None for anything else and for numbers beyond the range of floats."""
    if isinstance(content, bool) or not isinstance(content, int | float):
        return None
    try:
        converted = float(content)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def components(observation: Any) -> Iterator[Any]:
    """Yield an observation and its components. Each may have a code and a value."""
    yield observation
    yield from items(observation, "component")
