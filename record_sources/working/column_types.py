"""One type for each column over all chunks of rows, without a loss that a text of the same cells would not have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from record_sources.working.arrow import pa, pc

Kind = Literal["none", "truth", "whole", "number", "date", "moment", "text"]
DUCKDB_TYPES: Mapping[Kind, str] = {
    "none": "VARCHAR",
    "truth": "BOOLEAN",
    "whole": "BIGINT",
    "number": "DOUBLE",
    "date": "DATE",
    "moment": "TIMESTAMP",
    "text": "VARCHAR",
}
_ARROW: Mapping[Kind, Any] = {
    "none": pa.string(),
    "truth": pa.bool_(),
    "whole": pa.int64(),
    "number": pa.float64(),
    "date": pa.date32(),
    "moment": pa.timestamp("us"),
    "text": pa.string(),
}
_PLURALS: Mapping[Kind, str] = {
    "truth": "Booleans",
    "whole": "numbers",
    "number": "numbers",
    "date": "dates",
    "moment": "dates",
    "text": "texts",
}
# Kinds that are one: the second one holds both.
_WIDER: Mapping[frozenset[Kind], Kind] = {
    frozenset({"whole", "number"}): "number",
    frozenset({"date", "moment"}): "moment",
}
# Above this, float64 no longer separates consecutive whole numbers.
_EXACT = 2**53
_INT64 = 2**63
# Kinds of most cells, by their type alone.
_KINDS: Mapping[type, Kind] = {
    bool: "truth",
    int: "whole",
    float: "number",
    date: "date",
    str: "text",
}


class TypedColumn:
    """Kinds of the cells of a column so far.

    Attributes:
        kind: the narrowest kind that holds all cells.
        inexact: whole numbers that the column's type would change.
    """

    kind: Kind = "none"

    def __init__(self) -> None:
        self.inexact = 0
        self._counts, self._zoned, self._types = Counter[str](), 0, Counter[str]()

    def take(self, cells: Sequence[Any]) -> Any:
        """Return the cells as an array of the column's type, and remember their kinds. Empty texts become nulls.

        After a fault the array is of nulls.
        """
        # First by the types of a whole column, because a look at each cell would take most of the time.
        cells, types = _plain_cells(cells)
        texts = _texts(cells) if types == {str} else None
        if texts is None:
            self._count(types, cells)
        else:
            self._note("text", len(cells) - texts.null_count)
        if self._broken:
            # Reading goes on, so that one message counts the cells of all rows.
            return pa.nulls(len(cells), pa.string())
        return self._array(cells) if texts is None else texts

    def fault(self, name: str) -> str:
        """Return a sentence about cells that do not go together, or "" if the column is usable."""
        total = sum(self._counts.values()) + self._zoned + sum(self._types.values())
        # The gravest fault first: a type that no table holds makes the others pointless.
        if self._types:
            kinds = ", ".join(sorted(self._types))
            return (
                f"column {name}: {sum(self._types.values())} of {total} cells are of a type that no table holds "
                f"({kinds}). Leave the column out, or make it text or numbers in the query with CAST"
            )
        if self._zoned:
            return (
                f"column {name}: {self._zoned} of {total} cells are times with a time zone. Choose one in the query: "
                f"{name} AT TIME ZONE 'Europe/Berlin' AS {name}"
            )
        if len(self._counts) > 1:
            parts = [f"{count} cells are {plural}" for plural, count in sorted(self._counts.items())]
            return f"column {name}: {' and '.join(parts)}. Make them of one type in the query: CAST({name} AS ...)"
        if self.inexact:
            return (
                f"column {name}: {self.inexact} of {total} whole numbers are too large to be exact. Cast them as text "
                f"in the query: CAST({name} AS VARCHAR(40)) AS {name}"
            )
        return ""

    @property
    def _broken(self) -> bool:
        return bool(self._types or self._zoned or len(self._counts) > 1 or self.inexact)

    def _count(self, types: set[type], cells: Sequence[Any]) -> None:
        if len(types) == 1 and (kind := _KINDS.get(next(iter(types)))) is not None:
            present = len(cells) - sum(cell is None for cell in cells)
            self._note(kind, present)
            if kind == "whole":
                self._require_exact(cells)
            return
        for cell in cells:
            if cell is not None:
                self._note_cell(cell)
        self._require_exact([cell for cell in cells if type(cell) is int])

    def _note_cell(self, cell: object) -> None:
        if isinstance(cell, datetime) and cell.tzinfo is not None:
            self._zoned += 1
        elif (kind := "moment" if isinstance(cell, datetime) else _KINDS.get(type(cell))) is not None:
            self._note(kind, 1)
        else:
            self._types[type(cell).__name__] += 1

    def _note(self, kind: Kind, count: int) -> None:
        if count:
            self._counts[_PLURALS[kind]] += count
            if kind != self.kind:
                self.kind = kind if self.kind == "none" else _WIDER.get(frozenset({kind, self.kind}), self.kind)

    def _require_exact(self, cells: Sequence[int | None]) -> None:
        # A column of whole numbers alone keeps all 64 bits, and one with fractions those of float64.
        limit = _EXACT if self.kind == "number" else _INT64 - 1
        self.inexact += sum(cell is not None and abs(cell) > limit for cell in cells)

    def _array(self, cells: Sequence[Any]) -> Any:
        # NaN is an empty cell, as in a file.
        return pa.array(_CONVERTED.get(self.kind, list)(cells), _ARROW[self.kind], from_pandas=True)


def _midnights(cells: Sequence[Any]) -> list[datetime | None]:
    return [
        cell if cell is None or isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)  # noqa: DTZ001
        for cell in cells
    ]


def _floats(cells: Sequence[Any]) -> list[float | None]:
    return [None if cell is None else float(cell) for cell in cells]


_CONVERTED: Mapping[str, Callable[[Sequence[Any]], list[Any]]] = {"moment": _midnights, "number": _floats}


def _texts(cells: Sequence[Any]) -> Any:
    try:
        array = pa.array(cells, pa.string())
    # Half a pair of surrogates.
    except UnicodeEncodeError:
        array = pa.array([None if cell is None else cell.encode("utf-8", "replace").decode() for cell in cells])
    # A reader does not tell an empty text from no cell.
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)


def _plain_cells(cells: Sequence[Any]) -> tuple[Sequence[Any], set[type]]:
    """Return the cells as types that have a kind, as far as possible, and their types."""
    types = set(map(type, cells)) - {type(None)}
    # Most columns have cells of one such type, and need no look at each cell.
    if len(types) > 1 or not types <= _KINDS.keys() or (float in types and any(cell != cell for cell in cells)):
        cells = [_plain(cell) for cell in cells]
        types = set(map(type, cells)) - {type(None)}
    return cells, types


def _plain(cell: Any) -> Any:
    """Return the cell as one of the types that have a kind, if it is one with another name."""
    if isinstance(cell, Decimal):
        return _of_decimal(cell)
    if isinstance(cell, str):
        return str(cell) or None
    # NumPy has subclasses of float, and pandas writes a missing cell as NaN.
    if isinstance(cell, float):
        return None if math.isnan(cell) else float(cell)
    if isinstance(cell, UUID | time):
        return str(cell)
    return cell


def _of_decimal(number: Decimal) -> int | float | None:
    if number.is_nan():
        return None
    if not number.is_finite() or number != number.to_integral_value():
        # Rounded once, as the number's text would be.
        return float(number)
    # A huge exponent has as many digits.
    return int(number) if number.adjusted() < 40 else 10**40
