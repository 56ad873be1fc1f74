"""Cells become values under a declaration: the one function for training, questions, prediction and checks.

Every cell is judged by itself: by its text or its stored value, its stored type, and what the study declares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells.kinds import kind_of_no_date, kind_of_no_number
from study_protocol.cells.precision import widened
from study_protocol.cells.spelling import (
    MICROSECONDS,
    MISSING,
    POINTS,
    Spelling,
    cleaned,
    days_in,
    number_in,
    number_text,
    numbers_in,
    plain_decimal,
    truth_in,
)
from study_protocol.cells.stored import Array, StoredCells, day_text

Mask = NDArray[np.bool_]
_Value = Callable[[str, Spelling], float | None]
_Kind = Callable[[str, Spelling], str]
_WHOLE = re.compile(r"-?[1-9][0-9]*|0")
_DIGITS = re.compile(r"[+-]?[0-9]+")
# Of a whole number that a float64 holds at all: digits and a sign.
_LONGEST = 310
_MISSING, _VALUE, _WRONG = 0, 1, 2


@dataclass(frozen=True, repr=False)
class Numbers:
    """Numbers of a column.

    Attributes:
        values: (n,) float64, NaN for a cell without a number.
        missing: (n,) whether the cell is empty or a declared code.
        wrong: (n,) whether the cell is neither a value nor a declared code.
        kind: words for the first wrong text, which do not quote it. Empty without a wrong text.
        unmapped: (n,) which of the wrong cells have a code that the hospital's mapping does not know.
    """

    values: NDArray[np.float64]
    missing: Mask
    wrong: Mask
    kind: str = ""
    unmapped: Mask | None = None


@dataclass(frozen=True, repr=False)
class Categories:
    """Places of a column's cells among declared categories.

    Attributes:
        places: (n,) place among the declared categories, −1 for none.
        missing, wrong: as of `Numbers`.
        near: (n,) whether a wrong cell differs from a category only in capitals or leading zeros. None without such a
            cell. It is for a person's eyes: such a cell stays wrong, since 0744 and 744 may be two codes.
        unmapped: as of `Numbers`.
    """

    places: NDArray[np.int64]
    missing: Mask
    wrong: Mask
    near: Mask | None = None
    unmapped: Mask | None = None


def read_numbers(column: StoredCells, missing_values: Sequence[str] = ()) -> Numbers:
    """Return every cell as a number.

    A text is a number by the data set's declared decimal mark. It is a code if it is written like one or is the same
    number. A stored number is a code if the code, rounded to the column's own precision, is that number. Its value is
    the shortest decimal number that this precision tells apart. True and False are 1 and 0. Texts that are no number,
    infinities and dates are wrong.

    Args:
        missing_values: codes that say missing beside an empty cell, as a study writes them.
    """
    if column.words is not None:
        return _of_words(column, missing_values, number_in, kind_of_no_number, fast=numbers_in)
    if column.values.dtype.kind == "M":
        return _none_of(column, kind_of_no_number("2000-01-01", column.spelling))
    missing = column.empty | _is_one_of(
        column.values, [_number(cleaned(text)) for text in missing_values], rounded=True
    )
    values = widened(column.values)
    wrong = ~missing & ~np.isfinite(values)
    values[missing | wrong] = np.nan
    return Numbers(values, missing, wrong, "an infinity" if wrong.any() else "")


def read_days(column: StoredCells, missing_values: Sequence[str] = ()) -> Numbers:
    """Return every cell as days since 1 January 1970, by the data set's declared order of dates."""
    if column.words is not None:
        return _of_words(column, missing_values, days_in, kind_of_no_date)
    if column.values.dtype.kind != "M":
        return _none_of(column, kind_of_no_date("1", column.spelling))
    days = column.values.astype("datetime64[us]").astype(np.int64) / MICROSECONDS
    codes = [day for text in missing_values if (day := days_in(cleaned(text), POINTS)) is not None]
    missing = column.empty | np.isin(days, codes)
    return Numbers(np.where(missing, np.nan, days), missing, np.zeros(len(column), bool))


def read_categories(column: StoredCells, categories: Sequence[str], missing_values: Sequence[str] = ()) -> Categories:
    """Return every cell as a place among the categories, which are texts as a study writes them.

    A cell is a category if both are one text. It is one, too, if both are plain decimals below 2⁵³ without leading
    zeros that say one number (3, 3.0). True and False are the category with this word in any capitals, or else 1 or 0.
    A declared category is never a word for missing, such as NA.
    """
    names, codes = [cleaned(text) for text in categories], [cleaned(text) for text in missing_values]
    place_of = _lookup(names)
    if column.values.dtype.kind == "M":
        column = _dates_as_texts(column)
    if column.words is not None:
        return _places_of_words(column, place_of, _lookup(codes), names)
    missing = column.empty
    if column.values.dtype.kind == "b":
        sides = [place_of(word, column.spelling) for word in ("False", "True")]
        places = np.where(column.values, sides[1], sides[0]).astype(np.int64)
    else:
        places = _places_of_numbers(column.values, [_code(name) for name in names])
        missing = missing | (places < 0) & _is_one_of(column.values, [_code(text) for text in codes])
    places = np.where(missing, -1, places)
    wrong = (places < 0) & ~missing
    return Categories(places, missing, wrong, _near(column, names, wrong))


def read_presence(column: StoredCells, missing_values: Sequence[str] = ()) -> Mask:
    """Return whether each cell is empty, a word for missing or a declared code, shape (n,).

    Any other cell is a value.
    """
    missing = read_categories(column, (), missing_values).missing
    if column.words is None and column.values.dtype.kind == "f":
        # As of numbers: a code that the stored type rounds is what it becomes.
        codes = [_code(cleaned(text)) for text in missing_values]
        missing = missing | _is_one_of(column.values, codes, rounded=True)
    return missing


def _near(column: StoredCells, names: Sequence[str], wrong: Mask) -> Mask | None:
    """Return `near` of `Categories`."""
    if not names or not wrong.any():
        return None
    near, places, marks = set(map(_resembled, names)), np.flatnonzero(wrong), np.zeros(len(column), bool)
    if column.words is not None:
        words, inverse = cast("list[str | None]", column.words.tolist()), column.values[places]
    elif column.values.dtype.kind in "iuf":
        numbers, inverse = np.unique(column.values[places], return_inverse=True)
        words = list(map(_plain, numbers.tolist()))
    else:
        return None
    marks[places] = np.array([word is not None and _resembled(word) in near for word in words], bool)[inverse]
    return marks if marks.any() else None


def _plain(number: float) -> str:
    text = number_text(number, POINTS)
    return plain_decimal(text, POINTS) or text


def _resembled(text: str) -> str:
    return text.casefold().lstrip("0") or "0"


def _places_of_words(
    column: StoredCells,
    place_of: Callable[[str, Spelling], int],
    code_of: Callable[[str, Spelling], int],
    names: Sequence[str],
) -> Categories:
    def place(word: str | None) -> int:
        """Return the place of a word, −1 for another word and −2 for missing."""
        if word is None:
            return -2
        index = place_of(word, column.spelling)
        if index >= 0:
            return index
        return -2 if word in MISSING or code_of(word, column.spelling) >= 0 else -1

    each = np.fromiter(map(place, cast(Array, column.words).tolist()), np.int64)
    places = each[column.values] if len(column) else np.zeros(0, np.int64)
    missing = places == -2
    wrong = places == -1
    return Categories(np.where(missing, -1, places), missing, wrong, _near(column, names, wrong), column.unmapped)


def _of_words(
    column: StoredCells,
    missing_values: Sequence[str],
    value: _Value,
    kind_of: _Kind,
    fast: Callable[[Sequence[str], Spelling], Array | None] | None = None,
) -> Numbers:
    """Return the numbers of texts.

    Args:
        kind_of: kind of a text without a value.
        fast: values of many texts at once, or None if one of them is no number.
    """
    words = cast("list[str | None]", cast(Array, column.words).tolist())
    codes = set(map(cleaned, missing_values))
    absent = {None, *MISSING, *codes}
    present = [place for place, word in enumerate(words) if word not in absent]
    texts = [cast(str, words[place]) for place in present]
    numbers = None if fast is None else fast(texts, column.spelling)
    if numbers is None:
        # None becomes NaN.
        numbers = np.array([value(text, column.spelling) for text in texts], float)
    is_code = np.isin(numbers, [number for text in codes if (number := value(text, POINTS)) is not None])
    each, state = np.full(len(words), np.nan), np.full(len(words), _MISSING, np.int8)
    state[present] = np.where(is_code, _MISSING, np.where(np.isfinite(numbers), _VALUE, _WRONG))
    each[present] = np.where(state[present] == _VALUE, numbers, np.nan)
    states, kind = state[column.values], ""
    wrong = states == _WRONG
    if wrong.any():
        first = cast(str, words[int(column.values[int(np.argmax(wrong))])])
        kind = kind_of(first, column.spelling)
    return Numbers(each[column.values], states == _MISSING, wrong, kind, column.unmapped)


def _none_of(column: StoredCells, kind: str) -> Numbers:
    """Return numbers of which every cell that is not empty is wrong. `kind` says what they are."""
    empty = column.empty
    return Numbers(np.full(len(column), np.nan), empty, ~empty, "" if empty.all() else kind)


def _lookup(names: Sequence[str]) -> Callable[[str, Spelling], int]:
    """Return the place of a word among the names, −1 for none."""
    exact = dict(zip(names, range(len(names)), strict=True))
    # As studies write them, with decimal points.
    plain = {key: place for place, name in enumerate(names) if (key := plain_decimal(name, POINTS)) is not None}
    truths = {truth: place for place, name in enumerate(names) if (truth := truth_in(name)) is not None}

    def place_of(word: str, spelling: Spelling) -> int:
        if word in exact:
            return exact[word]
        if (key := plain_decimal(word, spelling)) is not None:
            return plain.get(key, -1)
        if (truth := truth_in(word)) is None:
            return -1
        return truths[truth] if truth in truths else plain.get("1" if truth == "true" else "0", -1)

    return place_of


def _places_of_numbers(values: Array, names: Sequence[int | float | None]) -> NDArray[np.int64]:
    """Return the place of each stored number among the names, shape (n,), −1 for none.

    A None among them is no number.
    """
    stored = [(place, _stored(name, values.dtype)) for place, name in enumerate(names) if name is not None]
    fitting = [(place, number) for place, number in stored if number is not None]
    if not fitting:
        return np.full(len(values), -1, np.int64)
    keys = np.array([number for _, number in fitting], values.dtype)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], values), len(keys) - 1)
    places = np.array([place for place, _ in fitting], np.int64)[order]
    return np.where(keys[order][at] == values, places[at], -1)


def _is_one_of(values: Array, codes: Iterable[int | float | None], *, rounded: bool = False) -> Mask:
    """Return whether each number is one of the codes.

    Args:
        rounded: whether a code that stands for several whole numbers of the column's type is each of them.
    """
    if values.dtype.kind == "b":
        return np.zeros(len(values), bool)
    each = [_stored(code, values.dtype, rounded=rounded) for code in codes if code is not None]
    stored = [number for number in each if number is not None]
    return np.isin(values, np.array(stored, values.dtype)) if stored else np.zeros(len(values), bool)


def _stored(number: int | float, dtype: np.dtype[Any], *, rounded: bool = False) -> Any:
    """Return the number in the column's own type.

    Return None if the type does not hold it, or not it alone unless `rounded`.
    """
    if not abs(number) <= sys.float_info.max:
        return None
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = int(number)
        return dtype.type(whole) if whole == number and limits.min <= whole <= limits.max else None
    # Beyond these a stored float may stand for several whole numbers.
    if not rounded and abs(number) > 2 ** (np.finfo(dtype).nmant + 1):
        return None
    with np.errstate(over="ignore"):
        rounded = dtype.type(number)
    return rounded if np.isfinite(rounded) else None


def _code(text: str) -> int | float | None:
    """Return the number of a study's name or code, whole ones exactly. Return None for a text such as 0744."""
    if _WHOLE.fullmatch(text) and len(text) < _LONGEST:
        return int(text)
    return None if plain_decimal(text, POINTS) is None else float(text)


def _number(text: str) -> int | float | None:
    """Return the number that a code says beside numbers, however it is written: 0744, +1 and 1e3 are numbers there."""
    return int(text) if _DIGITS.fullmatch(text) and len(text) < _LONGEST else number_in(text, POINTS)


def _dates_as_texts(column: StoredCells) -> StoredCells:
    """Return dates as texts. Few days stand in many cells, so that each is written once."""
    days, places = np.unique(column.values, return_inverse=True)
    words = [None if text == "NaT" else day_text(text) for text in np.datetime_as_string(days).tolist()]
    places = np.where(column.empty, len(words), places)
    return StoredCells.of_words(places, [*words, None], column.spelling, column.name)
