"""The entries of a hospital's `columns.toml`, checked. Every refusal names the entry and never quotes a code."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, cast

from private_learning.records.mapped_column import ColumnMapping
from private_learning.records.records import DataError, like
from study_protocol.cells import cleaned, column_name, same_category
from study_protocol.cells.spelling import POINTS, number_text

# Of a name or a code, in characters. Longer ones would take hours to compare.
_LONGEST = 1_000
_ENTRIES = ("from", "map", "missing", "multiply", "add", "days_from")
# A code is exact. G63.2* is a code of ICD-10, and no pattern.
_PATTERN = re.compile(
    r"\^.*|.*\$|.*\.[*+].*|.*\[[^\[\]]*\].*|.*\|.*|(?![A-Z][0-9]{2}(?:\.[0-9]+)?\*$).*[*%].*", re.DOTALL
)

Entries = tuple[ColumnMapping, ...]


def parsed_mapping(document: Mapping[str, Any]) -> tuple[Entries, dict[str, Entries]]:
    """Return the entries of the section [columns], and those of each section [events.TABLE].

    Raises:
        DataError: an entry is unknown, has a wrong type, or contradicts another one.
    """
    _require_short("the file", document)
    _require_known("the file", document, ("columns", "events"), "section")
    events = _table("[events]", document.get("events", {}))
    _require_short("[events]", events)
    sections = {name: _entries(f"[events.{name}]", entries) for name, entries in events.items()}
    columns = _entries("[columns]", document.get("columns", {}))
    if not columns and not any(sections.values()):
        raise DataError('it maps no column. Write entries below [columns], such as: sex = "gender"')
    return columns, sections


def _entries(section: str, content: Any) -> Entries:
    content = _table(section, content)
    _require_short(section, content)
    entries = [_entry(f"{section} {name}", name, entry) for name, entry in content.items()]
    names = [entry.column for entry in entries]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{section} {twice[0]}: two entries have this name, whose letters are composed differently")
    # By name: the order in the file changes nothing.
    return tuple(sorted(entries, key=lambda entry: entry.column))


def _entry(place: str, name: str, content: Any) -> ColumnMapping:
    column = cleaned(_name(place, name))
    if isinstance(content, str):
        return ColumnMapping(column, _name(place, content))
    if not isinstance(content, dict):
        raise DataError(f'{place}: the name of a local column, or a table such as {{ from = "gender" }}, is expected')
    entry = cast("dict[str, Any]", content)
    _require_short(place, entry)
    _require_known(place, entry, _ENTRIES, "entry")
    if not entry:
        raise DataError(f"{place}: it is empty. Known are: {', '.join(_ENTRIES)}")
    local = _name(f"{place}.from", entry.get("from", column))
    mapping = ColumnMapping(
        column,
        local,
        _codes(f"{place}.map", entry["map"]) if "map" in entry else None,
        _missing(f"{place}.missing", entry.get("missing", [])),
        _number(f"{place}.multiply", entry["multiply"]) if "multiply" in entry else None,
        _number(f"{place}.add", entry["add"]) if "add" in entry else None,
        _name(f"{place}.days_from", entry["days_from"]) if "days_from" in entry else "",
    )
    _require_consistent(place, mapping)
    return mapping


def _require_consistent(place: str, mapping: ColumnMapping) -> None:
    scaled = mapping.multiply is not None or mapping.add is not None
    if (mapping.codes is not None) + scaled + bool(mapping.days_from) > 1:
        raise DataError(f"{place}: map, days_from, and multiply or add exclude one another. Keep one of them")
    if mapping.multiply == 0:
        raise DataError(f"{place}.multiply: 0 would make all values equal")
    if mapping.days_from == mapping.local:
        raise DataError(f"{place}.days_from: a date cannot be counted from itself. Name the column of the index event")
    known = set(map(same_category, mapping.codes or ()))
    if known & set(map(same_category, mapping.missing)):
        raise DataError(f"{place}.missing: one of its codes is also a code of map. Keep one of them")


def _codes(place: str, content: Any) -> dict[str, str]:
    content = _table(place, content)
    _require_short(place, content)
    codes = {cleaned(local): _code(place, study) for local, study in content.items()}
    if not codes:
        raise DataError(f'{place}: it maps no code. Write entries such as M = "male"')
    if "" in codes:
        raise DataError(f"{place}: an empty cell is missing, and cannot be mapped to a code")
    if len(set(map(same_category, codes))) < len(content):
        raise DataError(f"{place}: two of its {len(content)} codes are one code, as 1 and 1.0 are. Keep one of them")
    patterns = sum(_PATTERN.fullmatch(code) is not None for code in codes)
    if patterns:
        raise DataError(f"{place}: {patterns} of its {len(codes)} codes are patterns. Write every code by itself")
    return codes


def _code(place: str, value: Any) -> str:
    """Return the study's code as a text."""
    if isinstance(value, bool) or (isinstance(value, int | float) and _is_finite(value)):
        return number_text(value, POINTS)
    text = cleaned(value) if isinstance(value, str) else ""
    _require_short(place, [text])
    if not text:
        raise DataError(
            f"{place}: behind each code stands the study's code as a text. Codes that mean missing stand in `missing`"
        )
    return text


def _missing(place: str, content: Any) -> tuple[str, ...]:
    codes = [cleaned(code) for code in cast("list[Any]", content) if isinstance(code, str)] if _is_list(content) else []
    if not _is_list(content) or len(codes) < len(content) or not all(codes):
        raise DataError(f'{place}: a list of codes as texts is expected, such as ["-9", "unknown"]')
    _require_short(place, codes)
    if len(set(map(same_category, codes))) < len(codes):
        raise DataError(f"{place}: two of its {len(codes)} codes are one code. Keep one of them")
    return tuple(codes)


def _is_list(content: Any) -> bool:
    return isinstance(content, list)


def _number(place: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise DataError(f"{place}: a finite number is expected")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    # A whole number that no float holds.
    except OverflowError:
        return False


def _name(place: str, name: Any) -> str:
    """Return the name as the table has it: a Parquet file may have spaces around it."""
    text = column_name(name) if isinstance(name, str) else ""
    _require_short(place, [text])
    if not cleaned(text):
        raise DataError(f"{place}: the name of a column is expected, as a text")
    return text


def _require_short(place: str, texts: Collection[str]) -> None:
    long = sum(len(text) > _LONGEST for text in texts)
    if long:
        raise DataError(f"{place}: {long} of its names or codes have more than {_LONGEST:,} characters. Shorten them")


def _table(place: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise DataError(f"{place}: a table of entries is expected")
    return cast("dict[str, Any]", content)


def _require_known(place: str, content: Mapping[str, Any], names: tuple[str, ...], kind: str) -> None:
    unknown = [name for name in content if name not in names]
    if unknown:
        near = like(unknown[0], names)
        hint = f". Did you mean {near}?" if near else f". Known are: {', '.join(names)}"
        raise DataError(f"{place}: there is no {kind} {unknown[0]!r}{hint}")
