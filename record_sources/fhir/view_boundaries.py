"""The least and the greatest value that a FHIR value of limited precision may stand for."""

from __future__ import annotations

import calendar
import re
from decimal import Decimal
from typing import Any, cast

_DAY = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?")
_TIME = re.compile(r"(\d\d)(?::(\d\d))?(?::(\d\d))?(?:\.(\d+))?")
# FHIR demands a zone with each time, but files without one exist.
_ZONE = re.compile(r"Z|[+-]\d\d:\d\d")


def boundary(content: Any, kind: str, high: bool) -> Any:
    """Return the low or the high boundary of a value of a FHIR type. None: the type has none.

    A date is bounded to the day, a time to the millisecond. A moment without a zone may be anywhere on Earth, so that
    its low boundary has the zone +14:00 and its high boundary -12:00.
    """
    # Python counts a Boolean as a whole number.
    if isinstance(content, bool):
        return None
    if isinstance(content, int | Decimal):
        exponent = cast("int", Decimal(content).as_tuple().exponent)
        # The digits that are written say how precise a number is: 1.50 is bounded closer than 1.5.
        half = Decimal(5).scaleb(exponent - 1)
        return content + half if high else content - half
    if isinstance(content, dict):
        ends = cast("dict[str, Any]", content)
        end = ends.get("end" if high else "start")
        return boundary(end, "dateTime", high) if kind == "Period" and end is not None else None
    if not isinstance(content, str):
        return None
    return {"date": _bound_day, "dateTime": _bound_moment, "instant": _bound_moment, "time": _bound_time}.get(
        kind, _no_bound
    )(content, high)


def _no_bound(_text: str, _high: bool) -> None:
    return None


def _bound_day(text: str, high: bool) -> str | None:
    match = _DAY.fullmatch(text)
    if match is None:
        return None
    year = int(match[1])
    month = int(match[2] or (12 if high else 1))
    last = calendar.monthrange(year, month)[1] if year and 1 <= month <= 12 else 31
    return f"{year:04}-{month:02}-{int(match[3] or (last if high else 1)):02}"


def _bound_time(text: str, high: bool) -> str | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    lowest, highest = ("00", "00", "00"), ("23", "59", "59")
    hour, minute, second = (
        part or limit for part, limit in zip(match.groups()[:3], highest if high else lowest, strict=True)
    )
    return f"{hour}:{minute}:{second}.{(match[4] or '').ljust(3, '9' if high else '0')}"


def _bound_moment(text: str, high: bool) -> str | None:
    day, _, rest = text.partition("T")
    zone = _ZONE.search(rest)
    time = (
        _bound_time(rest[: zone.start()] if zone else rest, high) if rest else _bound_time("23" if high else "00", high)
    )
    bound = _bound_day(day, high)
    if bound is None or time is None:
        return None
    return f"{bound}T{time}{zone[0] if zone else ('-12:00' if high else '+14:00')}"
