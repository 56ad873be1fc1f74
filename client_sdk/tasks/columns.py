"""Columns of a table, described by public numbers that travel in a study's parameters.

    column.age       = "18..90"                  a number: clipped to the range, scaled to [-1, 1]; must be present
    column.chol      = "100..400; missing=240"   the same; where it is missing, 240 stands in and an indicator is 1
    column.pain      = "1|2|3|4"                 a category: one indicator each
    column.thal      = "3|6|7; missing"          the same; where it is missing all are 0 and a further indicator is 1
    column.bmi       = "15..60; missing=30; missing-values=0|-1"   0 and -1 say that it is missing, too

Range, categories and the constant for missing values are chosen from public knowledge before the study. Nothing is
fitted to the records, so preprocessing is the same whoever is in the data: it costs no privacy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from client_sdk.data import DataError, WrongRows, like
from client_sdk.protocol.statistics.cells import as_category, as_number
from client_sdk.tasks.task import InputUse, TaskError

PREFIX = "column."
# What may stand behind a column's range or categories.
OPTIONS = ("missing", "missing-values")

Array = np.ndarray[Any, np.dtype[Any]]

_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(\D.*)?")
_KINDS = (
    (_DATE, "a date; turn dates into numbers first, such as days since admission"),
    (re.compile(r"[+-]?[\d.,]+"), "a number with a comma that may mean thousands; write decimal points alone"),
    (re.compile(r"[<>~+-]?\s*\d.*"), "a number with a sign or a unit; write the number alone"),
)
_TEXT = "text; if it says that nothing was measured, missing-values of the study can name it"


@dataclass(frozen=True)
class NumberColumn:
    """A number in the public range low … high. missing: what stands in for it where it may lack; None: it may not.

    missing_values: what a file writes for a missing number, beside an empty cell.
    """

    name: str
    low: float
    high: float
    missing: float | None
    missing_values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return 1 if self.missing is None else 2

    def encode(self, values: Array) -> Array:
        """(n,) numbers or texts of numbers, missing ones included, to (n, width) in [-1, 1] and perhaps an indicator.

        Raises:
            WrongRows: text, an infinity, or a missing value where none is allowed.
        """
        numbers = self.numbers(values)
        absent = np.isnan(numbers)
        if self.missing is None:
            _require_present(self.name, absent)
        filled = numbers if self.missing is None else np.where(absent, self.missing, numbers)
        # Halved before the difference, so that public bounds near the largest float do not overflow.
        middle, half = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        scaled = (np.clip(filled, self.low, self.high) - middle) / half
        return scaled[:, None] if self.missing is None else np.stack([scaled, absent.astype(np.float64)], axis=1)

    def use(self, values: Array) -> InputUse:
        """How many of the values are missing, and how many lie outside the range. Raises as `encode`."""
        numbers = self.numbers(values)
        outside = int(np.sum((numbers < self.low) | (numbers > self.high)))
        return InputUse(self.name, len(numbers), missing=int(np.isnan(numbers).sum()), clipped=outside)

    def random(self, count: int, generator: np.random.Generator) -> Array:
        """(count,) values of the range; where they may lack, one in four does."""
        values = generator.uniform(0.0, 1.0, count)
        values = self.low * (1 - values) + self.high * values
        absent = generator.uniform(size=count) < 0.25
        return values if self.missing is None else np.where(absent, math.nan, values)

    def numbers(self, values: Array) -> Array:
        """(n,) floats, NaN where the value is missing. Raises as `encode`, of missing ones nothing."""
        if values.dtype.kind == "f":
            codes = [_float(code) for code in self.missing_values]
            return self._finite(np.where(np.isin(values, codes), math.nan, values))
        cells = [as_category(value) for value in values.tolist()]
        absent = np.array([cell is None or cell in self.missing_values for cell in cells])
        found = np.array([math.nan if gone else _float(cell) for cell, gone in zip(cells, absent, strict=True)])
        wrong = np.isnan(found) & ~absent
        if wrong.any():
            kind = _kind(str(cells[int(np.argmax(wrong))]))
            raise WrongRows(f"column {self.name}: {int(wrong.sum())} values are no numbers", wrong, f"is {kind}")
        return self._finite(found)

    def _finite(self, numbers: Array) -> Array:
        infinite = np.isinf(numbers)
        if infinite.any():
            raise WrongRows(f"column {self.name}: {int(infinite.sum())} infinite values", infinite)
        return numbers


@dataclass(frozen=True)
class CategoryColumn:
    """One of the public categories. missing: whether it may lack. missing_values: as of `NumberColumn`."""

    name: str
    categories: tuple[str, ...]
    missing: bool
    missing_values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return len(self.categories) + self.missing

    def encode(self, values: Array) -> Array:
        """(n,) numbers or text to (n, width) indicators.

        Raises:
            WrongRows: a value outside the categories, or a missing one where none is allowed.
        """
        keys, absent = self._keys(values)
        # Text against text: `as_category` has written both sides the same way.
        hits = np.stack([keys == category for category in self.categories], axis=1)
        unknown = ~absent & ~hits.any(axis=1)
        if unknown.any():
            raise WrongRows(f"column {self.name}: {int(unknown.sum())} values outside the study's categories", unknown)
        if not self.missing:
            _require_present(self.name, absent)
        return (np.column_stack([hits, absent]) if self.missing else hits).astype(np.float64)

    def use(self, values: Array) -> InputUse:
        """How many of the values are missing."""
        _, absent = self._keys(values)
        return InputUse(self.name, len(absent), missing=int(absent.sum()), clipped=0)

    def random(self, count: int, generator: np.random.Generator) -> Array:
        """(count,) categories, and None among them where they may lack."""
        choices = np.array([*self.categories, *([None] if self.missing else [])], dtype=object)
        return choices[generator.integers(len(choices), size=count)]

    def _keys(self, values: Array) -> tuple[Array, Array]:
        keys = np.array([as_category(value) for value in values.tolist()], dtype=object)
        absent = np.array([key is None or key in self.missing_values for key in keys])
        keys[absent] = None
        return keys, absent


Column = NumberColumn | CategoryColumn


def read_columns(parameters: Mapping[str, object]) -> tuple[Column, ...]:
    """The columns among `parameters`, in the order of their names.

    Raises:
        TaskError: no column, or a description that is not one of the forms.
    """
    # By name: the order that a model's weights refer to must survive canonical JSON.
    described = sorted(item for item in parameters.items() if item[0].startswith(PREFIX))
    found = [_read(key.removeprefix(PREFIX), text) for key, text in described]
    if not found:
        raise TaskError(f"at least one parameter {PREFIX}<name> is needed")
    return tuple(found)


def encode_columns(
    columns: tuple[Column, ...], data: Mapping[str, Array], first: Callable[[Array], str] | None = None
) -> Array:
    """(n, Σ width) float64 in [-1, 1].

    first  says where the first of marked rows is, for messages: `Table.first`

    Raises:
        DataError: columns that are not in the table, or every fault that the columns' own `encode` found.
    """
    require_columns([column.name for column in columns], data)
    encoded: list[Array] = []
    faults: list[str] = []
    for column in columns:
        try:
            encoded.append(column.encode(data[column.name]))
        except WrongRows as error:
            faults.append(error.located(first))
    if faults:
        raise DataError("; ".join(faults))
    return np.concatenate(encoded, axis=1)


def numbers_in(name: str, values: Array) -> Array:
    """(n,) float64 of the column that has this name.

    Raises:
        WrongRows: text, an infinity, or a missing value.
    """
    found = NumberColumn(name, -math.inf, math.inf, None).numbers(values)
    absent = np.isnan(found)
    if absent.any():
        text = f"column {name}: {int(absent.sum())} of {len(found)} are missing; leave these rows out"
        raise WrongRows(text, absent)
    return found


def require_columns(names: list[str], data: Collection[str]) -> None:
    """Raises DataError: names all columns that lack, each with the one that is most like it."""
    lacking = [name for name in names if name not in data]
    if lacking:
        near = [(name, like(name, data)) for name in lacking]
        listed = ", ".join(f"{name!r}" + (f" (did you mean {other!r}?)" if other else "") for name, other in near)
        raise DataError(f"the table lacks {len(lacking)} of the study's columns: {listed}")


def categories_of(text: str) -> tuple[str, ...]:
    """The names between bars, whole numbers written in one way. Empty where one is empty or stands twice."""
    found = tuple(as_category(part) for part in text.split("|"))
    return tuple(str(one) for one in found) if None not in found and len(set(found)) == len(found) else ()


def indices_of(values: Array, names: tuple[str, ...]) -> tuple[Array, Array]:
    """(n,) places of the values among the names, -1 for none; (n,) booleans: the value is missing."""
    places = {name: place for place, name in enumerate(names)}
    keys = [as_category(value) for value in values.tolist()]
    found = np.array([places.get(str(key), -1) for key in keys], dtype=np.int64)
    return found, np.array([key is None for key in keys], dtype=bool)


def _require_present(name: str, absent: Array) -> None:
    if absent.any():
        raise WrongRows(f"column {name}: {int(absent.sum())} missing values, and the study allows none", absent)


def _read(name: str, text: object) -> Column:
    if not name or not isinstance(text, str):
        raise TaskError(f"{PREFIX}{name}: a text such as '18..90' or 'no|yes' is expected")
    body, *behind = (part.strip() for part in text.split(";"))
    options = _options(name, behind)
    missing, codes = options.get("missing"), _codes(name, options)
    if ".." in body:
        low, _, high = body.partition("..")
        stand_in = None if missing is None else _number(name, missing, "missing=")
        column = NumberColumn(name, _number(name, low), _number(name, high), stand_in, codes)
        if not column.low < column.high:
            raise TaskError(f"{PREFIX}{name}: the range is empty")
        if stand_in is not None and not column.low <= stand_in <= column.high:
            raise TaskError(f"{PREFIX}{name}: the constant for missing values lies outside the range")
        return column
    categories = categories_of(body)
    if len(categories) < 2:
        raise TaskError(f"{PREFIX}{name}: a range 'low..high' or two or more different categories 'a|b' are expected")
    if missing:
        raise TaskError(f"{PREFIX}{name}: nothing stands in for a missing category; write 'missing' without a value")
    if set(codes) & set(categories):
        raise TaskError(f"{PREFIX}{name}: a category is also one of the missing-values")
    return CategoryColumn(name, categories, missing is not None, codes)


def _options(name: str, parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in OPTIONS or key in found:
            raise TaskError(f"{PREFIX}{name}: behind the ';' may stand, once each: {', '.join(OPTIONS)}")
        found[key] = value
    return found


def _codes(name: str, options: Mapping[str, str]) -> tuple[str, ...]:
    if "missing-values" not in options:
        return ()
    if "missing" not in options:
        raise TaskError(f"{PREFIX}{name}: missing-values needs 'missing', which says that the column may lack")
    codes = categories_of(options["missing-values"])
    if not codes:
        raise TaskError(f"{PREFIX}{name}: missing-values are different values between bars, such as 0|-1|unknown")
    return codes


def _number(name: str, text: str, what: str = "") -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise TaskError(f"{PREFIX}{name}: {what}{text.strip()!r} is not a number") from error
    if not math.isfinite(value):
        raise TaskError(f"{PREFIX}{name}: bounds and constants are finite")
    return value


def _float(cell: str | None) -> float:
    """NaN for what is no number."""
    try:
        return as_number(str(cell))
    except ValueError:
        return math.nan


def _kind(cell: str) -> str:
    return next((words for form, words in _KINDS if form.fullmatch(cell)), _TEXT)
