"""Cells become values under a declaration: the one function for training, questions, prediction and checks.

Every cell is judged by itself: by its text or its stored value, its stored type, and what the study declares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.cells.column import Array, Column
from client_sdk.protocol.cells.spelling import (
    MISSING,
    Spelling,
    cleaned,
    days_in,
    kind_of,
    number_in,
    plain_decimal,
    truth_in,
)

Mask = NDArray[np.bool_]
_MICROSECONDS = 86_400e6
# Studies write decimal points.
_POINTS = Spelling(decimal="point")
_WHOLE = re.compile(r"-?[1-9][0-9]*|0")


@dataclass(frozen=True)
class Numbers:
    """values: (n,) float64, NaN where there is none. missing: (n,) empty, or a declared code. wrong: (n,) neither a
    value nor a declared code. kind: what the first wrong text may be, in words that quote nothing; empty: none is.
    """

    values: NDArray[np.float64]
    missing: Mask
    wrong: Mask
    kind: str = ""


@dataclass(frozen=True)
class Categories:
    """places: (n,) among the declared categories, −1 for none. missing, wrong: as of `Numbers`."""

    places: NDArray[np.int64]
    missing: Mask
    wrong: Mask


def read_numbers(column: Column, missing_values: Sequence[str] = ()) -> Numbers:
    """Every cell as a number. missing_values: codes that say missing beside an empty cell, as a study writes them.

    A text is a number by the data set's declared decimal mark, and a code if it is written like one or is the same
    number. A stored number is a code if the code, rounded to the column's own precision, is that number. Texts that are
    no number, infinities and dates are wrong.
    """
    if column.words is not None:
        return _of_words(column, missing_values, lambda word: number_in(word, column.spelling))
    values = column.values
    if values.dtype.kind == "M":
        nothing = np.full(len(column), np.nan)
        absent = _absent(column)
        return Numbers(nothing, absent, ~absent, "" if absent.all() else kind_of("2000-01-01"))
    missing = _absent(column) | _is_one_of(values, [_code(cleaned(text)) for text in missing_values])
    found = values.astype(np.float64)
    wrong = ~missing & ~np.isfinite(found)
    found[missing | wrong] = np.nan
    return Numbers(found, missing, wrong, "an infinity" if wrong.any() else "")


def read_days(column: Column, missing_values: Sequence[str] = ()) -> Numbers:
    """Every cell as days since 1 January 1970, by the data set's declared order of dates."""
    if column.words is not None:
        return _of_words(column, missing_values, lambda word: days_in(word, column.spelling))
    absent = _absent(column)
    if column.values.dtype.kind != "M":
        return Numbers(np.full(len(column), np.nan), absent, ~absent, "" if absent.all() else "a number and no date")
    days = column.values.astype("datetime64[us]").astype(np.int64) / _MICROSECONDS
    return Numbers(np.where(absent, np.nan, days), absent, np.zeros(len(column), bool))


def read_categories(column: Column, categories: Sequence[str], missing_values: Sequence[str] = ()) -> Categories:
    """Every cell as a place among the categories, which are texts as a study writes them.

    A cell is a category if both are one text. It is one, too, if both are plain decimals below 2⁵³ without leading
    zeros that say one number (3, 3.0), or if it is True or False and the category is this word in any capitals, or else
    1 or 0. A declared category is never a word for missing, such as NA.
    """
    names, codes = [cleaned(one) for one in categories], [cleaned(one) for one in missing_values]
    place_of = _lookup(names)
    if column.words is not None:
        is_code = _lookup(codes)

        def place(word: str | None) -> int:
            """−1: other, −2: missing."""
            if word is None:
                return -2
            found = place_of(word, column)
            if found >= 0:
                return found
            return -2 if word in MISSING or is_code(word, column) >= 0 else -1

        each = np.array([place(word) for word in column.words.tolist()] or [0], np.int64)
        found = each[column.values] if len(column) else np.zeros(0, np.int64)
        missing = found == -2
        return Categories(np.where(missing, -1, found), missing, found == -1)
    if column.values.dtype.kind == "M":
        return read_categories(Column.of_texts(_date_words(column)), categories, missing_values)
    missing = _absent(column)
    if column.values.dtype.kind == "b":
        sides = [place_of(word, column) for word in ("False", "True")]
        found = np.where(column.values, sides[1], sides[0]).astype(np.int64)
    else:
        found = _places_of_numbers(column.values, [_code(name) for name in names])
        missing = missing | (found < 0) & _is_one_of(column.values, [_code(text) for text in codes])
    found = np.where(missing, -1, found)
    return Categories(found, missing, (found < 0) & ~missing)


def read_presence(column: Column, missing_values: Sequence[str] = ()) -> Mask:
    """(n,) whether the cell is empty, a word for missing or a declared code; any other cell is a value."""
    return read_categories(column, (), missing_values).missing


def _of_words(column: Column, missing_values: Sequence[str], value: Callable[[str], float | None]) -> Numbers:
    codes = {cleaned(text) for text in missing_values}
    code_numbers = {number_in(text, _POINTS) for text in codes} - {None}
    values, states, kind_at = list[float](), list[int](), dict[int, str]()
    for place, word in enumerate(cast("list[str | None]", cast(Array, column.words).tolist())):
        found = None if word is None or word in codes or word in MISSING else value(word)
        gone = word is None or word in codes or word in MISSING or (found is not None and found in code_numbers)
        finite = found is not None and not gone and np.isfinite(found)
        values.append(cast(float, found) if finite else np.nan)
        states.append(0 if gone else 1 if finite else 2)
        if not gone and not finite:
            kind_at[place] = "an infinity" if found is not None else kind_of(cast(str, word))
    at = column.values
    each, state = np.array(values or [np.nan], np.float64), np.array(states or [0], np.int8)
    if not len(at):
        return Numbers(np.zeros(0), np.zeros(0, bool), np.zeros(0, bool))
    wrong = state[at] == 2
    kind = kind_at[int(at[int(np.argmax(wrong))])] if wrong.any() else ""
    return Numbers(each[at], state[at] == 0, wrong, kind)


def _lookup(names: Sequence[str]) -> Callable[[str, Column], int]:
    """The place of a word among the names, −1 for none."""
    exact = {name: place for place, name in enumerate(names)}
    plain: dict[str, int] = {}
    truths: dict[str, int] = {}
    for place, name in enumerate(names):
        # As studies write them, with decimal points. Two names of one number are told apart by their text alone.
        if (key := plain_decimal(name, _POINTS)) is not None:
            plain[key] = -1 if key in plain else place
        if (truth := truth_in(name)) is not None:
            truths[truth] = -1 if truth in truths else place

    def place_of(word: str, column: Column) -> int:
        if word in exact:
            return exact[word]
        if (key := plain_decimal(word, column.spelling)) is not None:
            return plain.get(key, -1)
        truth = truth_in(word)
        if truth is None or truths:
            return -1 if truth is None else truths.get(truth, -1)
        return plain.get("1" if truth == "true" else "0", -1)

    return place_of


def _absent(column: Column) -> Mask:
    gone = np.zeros(len(column), bool) if column.absent is None else column.absent
    return gone | np.isnan(column.values) if column.values.dtype.kind == "f" else gone


def _places_of_numbers(values: Array, names: Sequence[Any]) -> NDArray[np.int64]:
    """(n,) the place of each stored number among the names, −1 for none. names: int, float, or None for a text."""
    own = [(place, _stored(name, values.dtype)) for place, name in enumerate(names) if name is not None]
    fitting = [(place, one) for place, one in own if one is not None]
    if not fitting:
        return np.full(len(values), -1, np.int64)
    keys = np.array([one for _, one in fitting], values.dtype)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], values), len(keys) - 1)
    hit = keys[order][at] == values
    places = np.array([place for place, _ in fitting], np.int64)[order]
    return np.where(hit, places[at], -1)


def _is_one_of(values: Array, codes: Sequence[Any]) -> Mask:
    if values.dtype.kind == "b":
        return np.zeros(len(values), bool)
    stored = [one for code in codes if code is not None and (one := _stored(code, values.dtype)) is not None]
    return np.isin(values, np.array(stored, values.dtype)) if stored else np.zeros(len(values), bool)


def _stored(number: int | float, dtype: np.dtype[Any]) -> Any:
    """The number in the column's own type; None: this type does not hold it."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = int(number)
        return dtype.type(whole) if whole == number and limits.min <= whole <= limits.max else None
    # Beyond these a stored float may stand for several whole numbers.
    if abs(number) > 2 ** (np.finfo(dtype).nmant + 1) or not np.isfinite(number):
        return None
    with np.errstate(over="ignore"):
        rounded = dtype.type(number)
    return rounded if np.isfinite(rounded) else None


def _code(text: str) -> int | float | None:
    """The number that a name or a code of a study says: whole ones exactly; None: it is a text, such as 0744."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return None if plain_decimal(text, _POINTS) is None else float(text)


def _date_words(column: Column) -> list[str | None]:
    """Stored dates as ISO 8601 writes them, without a time of day at midnight."""
    written = np.datetime_as_string(column.values, unit="s").tolist()
    gone = _absent(column).tolist()
    return [None if absent else one.removesuffix("T00:00:00") for one, absent in zip(written, gone, strict=True)]
