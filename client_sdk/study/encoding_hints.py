"""Hints of how a study's columns could be encoded better, from a hospital's own records and for its own eyes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from client_sdk.study.cell_counts import parts_of
from private_learning.records import Records, Table
from private_learning.tasks import Task
from private_learning.tasks.declared_columns import CategoryColumn, Declared, Floats, NumberColumn
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.tables import TableTask
from private_learning.tasks.typical import column_text, fitted_column, known_values, number_text, with_frequencies

# Cells that are looked at, at most, and rows of one column. Quantiles need no more, and all columns are held at once.
_MAX_CELLS, _MAX_ROWS = 5_000_000, 20_000
# Fewer values say little.
_MIN_VALUES = 20
# Of the encoded values: 90 % of them in so little of -1 … 1, or on one side so far out, or in so much, fit badly.
_NARROW, _SKEWED, _OFF, _WIDE = 0.5, 1.0, 0.5, 8.0
# A category of so many values is subtracted from little else. Declared frequencies may be wrong by so much.
_DOMINANT, _OTHER_FREQUENCY = 0.8, 0.3
# A number that stands for a missing one: so many of the values, and far from all others. Scores have few values.
_MIN_CODES, _CODE_SHARE, _MIN_DISTINCT = 3, 0.01, 10
# Whole numbers in so short a range may as well be categories.
_MAX_STEPS = 3


@dataclass(frozen=True)
class EncodingHint:
    """One column that a study could encode better. Both texts tell of this hospital's patients alone.

    words  what was seen
    line   the column's entry in the settings as it could be. Empty: the words say what to do
    """

    column: str
    words: str = field(repr=False)
    line: str = field(default="", repr=False)


def hints_of(task: Task, records: Records) -> tuple[EncodingHint, ...]:
    """Return hints for the columns of a study's task, from the first rows of a table. Other records have none.

    Raises:
        DataError: a column lacks, or cannot be read.
    """
    if not isinstance(task, TableTask) or not isinstance(records, Table) or not task.columns:
        return ()
    columns = task.columns
    values: list[list[Floats]] = [[] for _ in columns]
    remaining = min(_MAX_ROWS, _MAX_CELLS // len(columns))
    for part in parts_of(with_lacking(columns, records)):
        rows = np.arange(min(remaining, len(part)))
        for column, read in zip(columns, values, strict=True):
            read.append(known_values(column, part.columns[column.name].take(rows)))
        remaining -= len(part)
        if remaining <= 0:
            break
    return tuple(
        hint for column, read in zip(columns, values, strict=True) for hint in _hints(column, np.concatenate(read))
    )


def _hints(column: Declared, values: Floats) -> list[EncodingHint]:
    if isinstance(column, CategoryColumn):
        return _of_categories(column, values)
    codes, values = without_codes(values)
    hints = [_of_code(column, *code) for code in codes]
    if len(values) < _MIN_VALUES:
        return hints
    return [*hints, *(_of_steps(column, values) or _of_quantiles(column, values))]


def _of_categories(column: CategoryColumn, places: Floats) -> list[EncodingHint]:
    if len(places) < _MIN_VALUES:
        return []
    shares = np.bincount(places.astype(np.int64), minlength=len(column.categories)) / len(places)
    if column.shares and np.abs(shares - column.shares).max() >= _OTHER_FREQUENCY:
        words = "the frequencies of your values differ much from the declared ones"
    elif not column.shares and shares.max() >= _DOMINANT:
        words = f"{100 * shares.max():.0f} % of your values are one category. Frequencies would help"
    else:
        return []
    better = fitted_column(column, places)
    return [] if better is None else [EncodingHint(column.name, words, column_text(better))]


def _of_steps(column: NumberColumn, values: Floats) -> list[EncodingHint]:
    """Hint at categories for a few whole numbers of which most values are one."""
    if (
        column.dates
        or column.high - column.low > _MAX_STEPS
        or not (column.low.is_integer() and (values % 1 == 0).all())
    ):
        return []
    steps = np.arange(column.low, column.high + 1)
    categories = tuple(f"{step:g}" for step in steps)
    counts = (np.clip(values, column.low, column.high)[:, None] == steps).sum(axis=0)
    if len(steps) < 2 or not _DOMINANT <= counts.max() / len(values) < 1:
        return []
    changed = CategoryColumn(column.name, categories, column.missing is not None, column.missing_values)
    share = 100 * counts.max() / len(values)
    words = f"{share:.0f} % of your values are one number. Categories with frequencies would help"
    return [EncodingHint(column.name, words, column_text(with_frequencies(changed, counts.tolist())))]


def _of_quantiles(column: NumberColumn, values: Floats) -> list[EncodingHint]:
    """Hint at a typical range, or a logarithm, where 90 % of the values fill a wrong part of -1 … 1."""
    first, median, last = np.quantile(np.clip(values, column.low, column.high), (0.05, 0.5, 0.95)).tolist()
    better = fitted_column(column, values)
    if not isinstance(better, NumberColumn) or better == column:
        return []
    low, high = column.scaled(np.array([first, last])).tolist()
    adds_logarithm = better.log and not column.log
    # A typical range does not centre numbers of which half are one end of it.
    misfit = _misfit(low, high, _SKEWED if adds_logarithm else _NARROW, first < median < last)
    if not misfit:
        return []
    cure = "Another typical range" if column.typical else "A typical range"
    cure += " and a logarithm" if adds_logarithm else ""
    target = "the typical range" if column.typical else "the range"
    return [EncodingHint(column.name, f"{misfit} {target}. {cure} would help", column_text(better))]


def _misfit(low: float, high: float, narrow: float, centres: bool) -> str:
    """Return in words how 90 % of the values, encoded from low to high, fill -1 … 1. Empty: well."""
    width, middle = high - low, abs(high + low) / 2
    if width > _WIDE:
        return "your values are spread over much more than"
    if middle > max(1, width / 2):
        return "most of your values lie outside"
    if width < narrow or (centres and middle > max(_OFF, width / 2)):
        return f"90 % of your values lie in {max(50 * width, 1):.0f} % of"
    return ""


def without_codes(values: Floats) -> tuple[list[tuple[float, int]], Floats]:
    """Return extreme numbers that several values share and that lie far from all others, with counts. And others."""
    codes: list[tuple[float, int]] = []
    ends = [np.min, np.max]
    while ends and len(values) >= _MIN_VALUES:
        code = float(ends[0](values))
        rest = values[values != code]
        count = len(values) - len(rest)
        if count >= max(_MIN_CODES, _CODE_SHARE * len(values)) and _is_far(code, rest):
            codes.append((code, count))
            values = rest
        else:
            ends.pop(0)
    return codes, values


@np.errstate(over="ignore", invalid="ignore")
def _is_far(code: float, rest: Floats) -> bool:
    """Return whether a gap beside the others is too large for a value: a quarter of where 90 % of them lie, and five
    times the usual gap between the nearest of them.

    Beside a few numbers, such as a score, it is twice the distance between their ends.
    """
    distinct = np.unique(rest)
    if len(rest) < _MIN_VALUES or len(distinct) < _MAX_STEPS:
        return False
    gaps = np.sort(np.abs(distinct - code))
    if len(distinct) < _MIN_DISTINCT:
        return bool(gaps[0] >= 2 * (distinct[-1] - distinct[0]))
    low, high = np.quantile(rest, (0.05, 0.95))
    usual = float(np.median(np.diff(gaps[:_MIN_DISTINCT])))
    return bool(gaps[0] >= max((high - low) / 4, 5 * usual))


def _of_code(column: NumberColumn, code: float, count: int) -> EncodingHint:
    written = str(np.datetime64(int(code), "D")) if column.dates else number_text(code)
    written = "|".join([*column.missing_values, written])
    words = f"{count} of your values are one number far from all others. If it means missing, missing-values={written}"
    return EncodingHint(column.name, words)
