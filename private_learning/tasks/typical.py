"""Typical ranges, logarithms and frequencies that fit the figures of a column, rounded, and as text for settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from private_learning.tasks.declared_columns import CategoryColumn, Declared, Floats, NumberColumn
from study_protocol.cells import Categories
from study_protocol.study.lacking import SITE_MAY_LACK

# Of the typical range, -1 … 1: a median farther from its middle makes a column skewed, and a logarithm must bring it
# nearer by so much.
_SKEWED, _NEARER = 0.3, 0.1
_TINY, _HUGE = 1e-300, 1e300
# The 95 % point of a normal variable.
_NORMAL_95 = 1.6449
# Frequencies are multiples of so many hundredths.
_PERCENT_STEP = 5


def column_text(column: Declared) -> str:
    """Return the description of a column that `read_columns` reads as this column."""
    if isinstance(column, CategoryColumn):
        parts = ["|".join(column.categories), *(["missing"] if column.missing else [])]
        parts += [f"frequencies={'|'.join(f'{100 * share:.15g}' for share in column.shares)}"] if column.shares else []
    else:
        write = _day if column.dates else number_text
        parts = [f"{write(column.low)}..{write(column.high)}"]
        parts += [f"missing={write(column.missing)}"] if column.missing is not None else []
        parts += [f"typical={'..'.join(map(write, column.typical))}"] if column.typical else []
        parts += ["log"] if column.log else []
        parts += [column.trend] if column.trend else []
    return "; ".join([*parts, *_missing_texts(column)])


def _missing_texts(column: Declared) -> Iterator[str]:
    if column.missing_values:
        yield f"missing-values={'|'.join(column.missing_values)}"
    if column.may_lack:
        yield SITE_MAY_LACK
    if column.unmapped_is_missing:
        yield "unmapped-is-missing"


def with_typical(column: NumberColumn, first: float, median: float | None, last: float) -> NumberColumn | None:
    """Return the column with a typical range from first to last, rounded outward, inside its own range.

    The logarithm is taken where the median then lies nearer to the middle of the typical range, and never of dates.

    Args:
        median: the column's median. None: the choice about the logarithm stays.

    Returns:
        None where first and last are no range, such as two equal numbers, or one too narrow for the column's range.
    """
    first, last = (min(max(end, column.low), column.high) for end in (first, last))
    if not first < last:
        return None
    rounded = _days_outward(first, last) if column.dates else rounded_outward(first, last)
    typical = max(rounded[0], column.low), min(rounded[1], column.high)
    # The whole range is typical without saying so, but for the logarithm's offset.
    fitted = replace(column, typical=None if typical == (column.low, column.high) and not column.log else typical)
    candidates = [fitted] if median is None or column.dates else _with_logarithm(fitted, first, median, last)
    return next((candidate for candidate in candidates if candidate.is_near), None)


def _with_logarithm(column: NumberColumn, first: float, median: float, last: float) -> list[NumberColumn]:
    """Return the column with the better choice about the logarithm first, and without the one that costs accuracy."""
    plain, logarithm = replace(column, log=False), replace(column, log=True)
    off, off_in_logarithm = (_off_centre(scaled, first, median, last) for scaled in (plain, logarithm))
    is_skewed = off < -_SKEWED and abs(off_in_logarithm) < abs(off) - _NEARER
    return [logarithm] if is_skewed else [plain, logarithm]


def with_moments(column: NumberColumn, mean: float, deviation: float) -> NumberColumn | None:
    """Return the column with the typical range of a variable that has this mean and standard deviation.

    The variable is normal. It is log-normal above the range's low end if 5 % of that would lie below the range.

    Returns:
        None as `with_typical`, and where the mean is the low end.
    """
    if not deviation > 0 or not mean > column.low:
        return None
    if mean - _NORMAL_95 * deviation >= column.low:
        return with_typical(column, mean - _NORMAL_95 * deviation, mean, mean + _NORMAL_95 * deviation)
    distance = mean - column.low
    variance = math.log1p((deviation / distance) ** 2)
    first, median, last = (
        column.low + distance * math.exp(z * math.sqrt(variance) - variance / 2) for z in (-_NORMAL_95, 0, _NORMAL_95)
    )
    return with_typical(column, first, median, last)


def rounded_outward(low: float, high: float) -> tuple[float, float]:
    """Return low < high, each moved outward to a multiple of 1 or 5 times a power of ten.

    An end moves by at most half of the difference, and the low end at most to its first digit. None moves where
    `is_roundable` is False.

    >>> rounded_outward(2.31, 38.4)
    (2.0, 40.0)
    >>> rounded_outward(0.62, 1.31)
    (0.6, 1.35)
    """
    if not is_roundable(low, high):
        return low, high
    power = math.floor(math.log10(high - low))
    step, digits = 10.0 ** (power - 1), 1 - power
    step *= 5 if (high - low) / 10.0**power >= 2.5 else 1
    low_power = math.floor(math.log10(abs(low))) if abs(low) >= _TINY else power
    low_step, low_digits = (10.0**low_power, -low_power) if 10.0**low_power < step else (step, digits)
    return (
        round(math.floor(low / low_step + 1e-9) * low_step, low_digits),
        round(math.ceil(high / step - 1e-9) * step, digits),
    )


def is_roundable(low: float, high: float) -> bool:
    """Return whether the powers of ten around both and their difference are numbers, neither 0 nor infinite."""
    return _TINY <= high - low <= _HUGE and max(-low, high) <= _HUGE


def with_frequencies(column: CategoryColumn, counts: Sequence[int]) -> CategoryColumn:
    """Return the column with the frequencies of its categories, rounded to 5 %, at least 1 %. counts: not all 0."""
    total, largest = sum(counts), max(range(len(counts)), key=counts.__getitem__)
    weights = [max(1, _PERCENT_STEP * round(100 * count / total / _PERCENT_STEP)) for count in counts]
    weights[largest] += max(100 - sum(weights), 0)
    # A sum of 100 makes the text exact.
    while 100 < sum(weights) > len(weights):
        weights[max(range(len(weights)), key=weights.__getitem__)] -= 1
    return replace(column, shares=tuple(weight / sum(weights) for weight in weights))


def known_values(column: Declared, cells: Any) -> Floats:
    """Return (m,) numbers of a column's (n,) cells, or places of its categories, without those that are missing."""
    read = column.read(cells)
    values = read.places.astype(np.float64) if isinstance(read, Categories) else read.values
    return values[read.places >= 0] if isinstance(read, Categories) else values[~np.isnan(values)]


def fitted_column(column: Declared, values: Floats, *, logarithm: bool = True) -> Declared | None:
    """Return the column as these values suggest it: a typical range where 90 % of them lie, or their frequencies.

    It tells of the records, and belongs in no settings before a person has replaced its numbers by public ones.

    Args:
        values: (m,) as `known_values` returns them.
        logarithm: whether a logarithm may be chosen. False: none is taken.

    Returns:
        None where they suggest nothing: there are none, or 90 % of them are one number.
    """
    if not len(values):
        return None
    if isinstance(column, CategoryColumn):
        return with_frequencies(column, np.bincount(values.astype(np.int64), minlength=len(column.categories)).tolist())
    first, median, last = np.quantile(np.clip(values, column.low, column.high), (0.05, 0.5, 0.95)).tolist()
    return with_typical(column if logarithm else replace(column, log=False), first, median if logarithm else None, last)


def _off_centre(column: NumberColumn, first: float, median: float, last: float) -> float:
    """Return the place of the median between first and last after encoding: -1 … 1."""
    with np.errstate(all="ignore"):
        low, middle, high = column.scaled(np.array([first, median, last]))
        return float((2 * middle - low - high) / (high - low))


def _days_outward(low: float, high: float) -> tuple[float, float]:
    """Return the first days of years, months or the days themselves, whichever are several, around low < high."""
    unit = "Y" if high - low > 4 * 365 else "M" if high - low > 4 * 31 else "D"
    days = np.array([low, high]).astype("datetime64[D]")
    begun = days.astype(f"datetime64[{unit}]")
    begun[1] += begun[1].astype("datetime64[D]") < days[1]
    first, last = begun.astype("datetime64[D]").astype(np.int64)
    return float(first), float(last)


def number_text(value: float) -> str:
    """Return a finite number in 15 digits, or in all of its digits where these are another number."""
    text = f"{value:.15g}"
    return text if float(text) == value else repr(value)


def _day(value: float) -> str:
    return str(np.datetime64(int(value), "D"))
