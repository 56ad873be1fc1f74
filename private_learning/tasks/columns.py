"""Columns of a table, described by public numbers that travel in a study's parameters.

    column.age       = "18..90"                  a number: clipped to the range, scaled to [-1, 1], never missing
    column.chol      = "100..400; missing=240"   the same, but 240 and an indicator of 1 stand for a missing one
    column.admitted  = "2020-01-01..2023-12-31"  a date: counted in days, clipped and scaled like a number
    column.pain      = "1|2|3|4"                 a category: one indicator each
    column.thal      = "3|6|7; missing"          the same, but a missing one is all 0 and a further indicator of 1
    column.bmi       = "15..60; missing=30; missing-values=0|-1"   0 and -1 say that it is missing, too
    column.crp       = "0..400; typical=2..40; log"   a number: clipped to 0 … 400, its logarithm scaled so that 2 and
                                                      40 become -1 and 1
    column.smoker    = "no|yes; frequencies=80|20"    a category: indicators less 0.8 and 0.2
    column.lactate   = "0..20; missing=1; site-may-lack"   a hospital whose table has no such column takes part, too:
                                                      it is missing for all of its patients
    column.dose      = "0..80; increasing"        a number whose curve in an additive model must not fall
    column.ward      = "a|b; missing; unmapped-is-missing"   a code that the hospital's mapping does not know
                                                      is missing

Ranges, categories, frequencies and the constant for missing values are chosen from public knowledge before the study.
No value is fitted to the records, so preprocessing is the same for every data set and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_learning.records import DataError, Table, WrongRows, like
from private_learning.tasks.declared_columns import (
    CategoryColumn,
    Declared,
    DeclaredColumn,
    Fault,
    Floats,
    Mask,
    NumberColumn,
    Trend,
    unknown_names,
    unmapped_codes,
)
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.task import TaskError
from study_protocol.cells import (
    Spelling,
    are_several,
    cleaned,
    column_name,
    column_of,
    is_miswritten,
    read_categories,
    same_category,
)
from study_protocol.cells.spelling import POINTS, days_in, plain_decimal
from study_protocol.study.lacking import SITE_MAY_LACK

PREFIX = "column."
# What may stand behind a column's range or categories.
_UNMAPPED = "unmapped-is-missing"
TRENDS: tuple[Trend, ...] = ("increasing", "decreasing")
OPTIONS = ("missing", "missing-values", SITE_MAY_LACK, _UNMAPPED, "typical", "log", "frequencies", *TRENDS)
# Columns that lack and are named, at most.
_LISTED = 10

Columns = Mapping[str, Any]
"""Column name -> a `Column` of cells, or anything that `column_of` makes one of."""


def read_columns(parameters: Mapping[str, object], *, trends: bool = False) -> tuple[Declared, ...]:
    """The columns among `parameters`, in the order of their names.

    trends: whether the caller's model keeps `increasing` and `decreasing`

    Raises:
        TaskError: no column, or a description that is not one of the forms.
    """
    # By name: the order that a model's weights refer to must survive canonical JSON.
    described = sorted(item for item in parameters.items() if item[0].startswith(PREFIX))
    columns = [_read(column_name(key.removeprefix(PREFIX)), text) for key, text in described]
    if not columns:
        raise TaskError(f"at least one parameter {PREFIX}<name> is needed")
    if len({column.name for column in columns}) < len(columns):
        raise TaskError(f"two parameters {PREFIX}<name> mean the same column, whose letters are composed differently")
    if not trends:
        _require_no_trend(columns)
    return tuple(columns)


def _require_no_trend(columns: Iterable[Declared]) -> None:
    for column in columns:
        if isinstance(column, NumberColumn) and column.trend:
            raise TaskError(f"{PREFIX}{column.name}: {column.trend} is kept by task additive alone")


def require_no_label(columns: Collection[Declared], targets: Collection[str]) -> None:
    """Raises TaskError: what is predicted is an input, perhaps with other capitals or spaces."""
    labels = set(map(_as_seen, targets))
    leaks = [column.name for column in columns if _as_seen(column.name) in labels]
    if leaks:
        raise TaskError(
            f"{PREFIX}{leaks[0]}: this column is what the model learns to predict, and would be an input, too. Leave "
            f"{PREFIX}{leaks[0]} out"
        )


def _as_seen(name: str) -> str:
    return " ".join(cleaned(name).casefold().split())


def encode_columns(
    columns: Sequence[DeclaredColumn], data: Columns, first: Callable[[Any], str] | None = None, *, strict: bool = True
) -> Floats:
    """Return (n, Σ width) float64: in [-1, 1], but for values beyond a column's typical range.

    first   says where the first of marked rows is, for messages: `Table.first`
    strict  refuse cells that are neither values nor declared codes. Otherwise they count as missing.

    Raises:
        DataError: columns that are not in the table, or all faults of all columns.
    """
    require_columns([column.name for column in columns], data)
    encoded, faults = list[Floats](), list[str]()
    # One column after the other: what was read of all of them would be as large as the table.
    for column in columns:
        read = column.read(data[column.name])
        faults += [fault.error.located(first) for fault in column.faults(read)] if strict else []
        encoded.append(column.encoded(read))
    if faults:
        raise DataError("; ".join(faults))
    return np.concatenate(encoded, axis=1)


def require_readable(columns: Sequence[DeclaredColumn], parts: Iterable[Table]) -> None:
    """Read all cells of a table, part by part, without keeping them.

    Raises:
        DataError: as `encode_columns`, with counts over all parts.
    """
    cells, counts = 0, dict[tuple[str, str], int]()
    firsts = dict[tuple[str, str], tuple[Fault, str]]()
    for lacking_part in parts:
        part = with_lacking(columns, lacking_part)
        require_columns([column.name for column in columns], part.columns)
        cells += len(part)
        for fault in (fault for column in columns for fault in column.faults(column.read(part.columns[column.name]))):
            key = fault.subject, fault.problem
            counts[key] = counts.get(key, 0) + int(fault.rows.sum())
            if key not in firsts:
                firsts[key] = fault, part.first(fault.rows)
    if firsts:
        raise DataError(
            "; ".join(
                f"{fault.text(counts[key], cells)}, the first in {place}"
                + (f", which {fault.of_first}" if fault.of_first else "")
                for key, (fault, place) in firsts.items()
            )
        )


def numbers_in(name: str, values: Any) -> Floats:
    """(n,) float64 of the column that has this name.

    Raises:
        WrongRows: text, an infinity, or a missing value.
    """
    column = NumberColumn(name, -math.inf, math.inf, 0.0)
    read = column.read(values)
    for fault in column.faults(read):
        raise fault.error
    if read.missing.any():
        raise missing_rows(f"column {name}", read.missing)
    return read.values


def require_columns(names: Sequence[str], data: Collection[str], owner: str = "study", cure: str = "") -> None:
    """Raises DataError: names the first columns that lack, each with what is most like it, and then the cure."""
    lacking = [name for name in names if name not in data]
    if lacking:
        # To look for what is like each of thousands would take hours.
        near = [(name, like(name, data)) for name in lacking[:_LISTED]]
        listed = ", ".join(
            f"{name!r}" + (f" (did you mean {suggestion!r}?)" if suggestion else "") for name, suggestion in near
        )
        more = f", and {len(lacking) - _LISTED} more" if len(lacking) > _LISTED else ""
        raise DataError(f"the table lacks {len(lacking)} of the {owner}'s columns: {listed}{more}{cure}")


def categories_of(text: str) -> tuple[str, ...]:
    """Return the names between bars, numbers written in one way.

    None where one is empty, where one stands twice (3 and 3.0), or where commas stand between them.
    """
    texts = (cleaned(part) for part in text.split("|"))
    names = tuple(plain_decimal(name, POINTS) or name for name in texts)
    if any(are_several(name, is_only=len(names) == 1) for name in names):
        return ()
    return names if all(names) and len(set(map(same_category, names))) == len(names) else ()


def indices_of(values: Any, names: tuple[str, ...], subject: str, kind: str) -> tuple[NDArray[np.int64], Mask]:
    """Return (n,) places of the values among the names, -1 for missing ones, and (n,) booleans of missing values.

    subject, kind: the column and the kind of the names, for the text.

    Raises:
        WrongRows: a value is none of the names.
    """
    read = read_categories(column_of(values), names)
    if read.wrong.any():
        unmapped = unmapped_codes(subject, read)
        raise (unmapped if unmapped.rows.any() else unknown_names(subject, kind, names, read)).error
    return read.places, read.missing


def missing_rows(subject: str, missing: Mask) -> WrongRows:
    """Return the error of values that a target must have. subject: the column."""
    return WrongRows(f"{subject}: {int(missing.sum())} of {len(missing)} are missing: leave these rows out", missing)


def _read(name: str, text: object) -> Declared:
    if not name or not isinstance(text, str):
        raise TaskError(f"{PREFIX}{name}: a text such as '18..90' or 'no|yes' is expected")
    body, *behind = (part.strip() for part in text.split(";"))
    options = _options(name, behind)
    flags = {"may_lack": _flag(name, options, SITE_MAY_LACK), "unmapped_is_missing": _flag(name, options, _UNMAPPED)}
    if ".." in body:
        return replace(_range(name, body, options, _codes(name, options)), **flags)
    categories = categories_of(body)
    if len(categories) < 2:
        raise TaskError(f"{PREFIX}{name}: a range 'low..high' or two or more different categories 'a|b' are expected")
    return replace(_categories(name, categories, options, _codes(name, options)), **flags)


def _flag(name: str, options: Mapping[str, str], option: str) -> bool:
    if options.get(option):
        raise TaskError(f"{PREFIX}{name}: {option} stands alone, without a value")
    if option in options and "missing" not in options:
        raise TaskError(f"{PREFIX}{name}: {option} needs 'missing', which says what stands for a missing cell")
    return option in options


def _categories(
    name: str, categories: tuple[str, ...], options: Mapping[str, str], codes: tuple[str, ...]
) -> CategoryColumn:
    if options.get("missing"):
        raise TaskError(f"{PREFIX}{name}: no value stands in for a missing category: write 'missing' without a value")
    if not options.keys().isdisjoint(TRENDS):
        raise TaskError(f"{PREFIX}{name}: increasing and decreasing are for a range")
    if "typical" in options or "log" in options:
        raise TaskError(
            f"{PREFIX}{name}: typical and log are for a range. Categories may have frequencies, one each: "
            f"frequencies={'|'.join(['50'] * len(categories))}"
        )
    if set(map(same_category, codes)) & set(map(same_category, categories)):
        raise TaskError(f"{PREFIX}{name}: a category is also one of the missing-values")
    return CategoryColumn(name, categories, "missing" in options, codes, _shares(name, len(categories), options))


def _shares(name: str, count: int, options: Mapping[str, str]) -> tuple[float, ...]:
    if "frequencies" not in options:
        return ()
    weights = [_number(name, text, "frequencies: ") for text in options["frequencies"].split("|")]
    if len(weights) != count or min(weights) < 0 or not max(weights) > 0:
        raise TaskError(
            f"{PREFIX}{name}: frequencies are {count} numbers of at least 0 with bars between, one for each category "
            "in its order, and not all are 0"
        )
    # Halved where their sum would overflow.
    while not math.isfinite(sum(weights)):
        weights = [weight / 2 for weight in weights]
    return tuple(weight / sum(weights) for weight in weights)


def _range(name: str, body: str, options: Mapping[str, str], codes: tuple[str, ...]) -> NumberColumn:
    low, high = map(str.strip, body.split("..", 1))
    dates = days_in(low, Spelling()) is not None
    if not dates and any(map(is_miswritten, codes)):
        raise TaskError(
            f"{PREFIX}{name}: missing-values are single numbers or texts with bars between: 0|-1|unknown. Lists, "
            "ranges and numbers in quotation marks are none"
        )
    if dates and any(map(_has_an_order, codes)):
        raise TaskError(f"{PREFIX}{name}: a date among missing-values begins with its year: 1900-01-01")
    value = _day if dates else _number
    stand_in = value(name, options["missing"], "missing=") if "missing" in options else None
    column = NumberColumn(name, value(name, low), value(name, high), stand_in, codes, dates)
    if not column.low < column.high:
        raise TaskError(f"{PREFIX}{name}: the range is empty")
    if stand_in is not None and not column.low <= stand_in <= column.high:
        raise TaskError(f"{PREFIX}{name}: the constant for missing values lies outside the range")
    return _shaped(column, options, value)


def _shaped(column: NumberColumn, options: Mapping[str, str], value: Callable[[str, str, str], float]) -> NumberColumn:
    """Return the column with its typical range and its logarithm. Raises TaskError."""
    if "frequencies" in options:
        raise TaskError(f"{PREFIX}{column.name}: frequencies are for categories. A range may have a typical=low..high")
    if "log" in options and (options["log"] or column.dates):
        raise TaskError(f"{PREFIX}{column.name}: log stands alone, without a value, behind a range of numbers")
    column = replace(
        column, typical=_typical(column, options, value), log="log" in options, trend=_trend(column.name, options)
    )
    if not column.is_near and column.typical is None:
        raise TaskError(f"{PREFIX}{column.name}: the range is too narrow or too wide for its numbers to be told apart")
    if not column.is_near:
        logarithm = "" if column.log or column.dates else ", or add '; log'"
        raise TaskError(
            f"{PREFIX}{column.name}: the typical range is narrower than a thousandth of the range. Write a wider "
            f"one, or a narrower range{logarithm}"
        )
    return column


def _trend(name: str, options: Mapping[str, str]) -> Trend | None:
    trends: list[Trend] = [trend for trend in TRENDS if trend in options]
    if len(trends) > 1 or any(options[trend] for trend in trends):
        raise TaskError(f"{PREFIX}{name}: one of increasing and decreasing, without a value")
    return trends[0] if trends else None


def _typical(
    column: NumberColumn, options: Mapping[str, str], value: Callable[[str, str, str], float]
) -> tuple[float, float] | None:
    if "typical" not in options:
        return None
    ends = options["typical"].split("..", 1)
    numbers = [value(column.name, end.strip(), "typical=") for end in ends] if len(ends) == 2 else []
    if len(numbers) < 2 or not column.low <= numbers[0] < numbers[1] <= column.high:
        raise TaskError(f"{PREFIX}{column.name}: typical=low..high is a part of the range, its first value the smaller")
    return numbers[0], numbers[1]


def _has_an_order(code: str) -> bool:
    """Return whether the code is a date with its year last.

    A stored date would not be this code, and a text only if it is written so.
    """
    spellings = (Spelling(dates="dmy"), Spelling(dates="mdy"))
    return days_in(code, POINTS) is None and any(days_in(code, spelling) is not None for spelling in spellings)


def _options(name: str, parts: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in OPTIONS or key in options:
            raise TaskError(f"{PREFIX}{name}: {part.strip()!r}: behind ';' may stand, once each: {', '.join(OPTIONS)}")
        options[key] = value
    return options


def _codes(name: str, options: Mapping[str, str]) -> tuple[str, ...]:
    if "missing-values" not in options:
        return ()
    if "missing" not in options:
        raise TaskError(f"{PREFIX}{name}: missing-values needs 'missing', which says that the column may lack")
    codes = categories_of(options["missing-values"])
    if not codes:
        raise TaskError(
            f"{PREFIX}{name}: missing-values are different values with bars between, and no commas: 0|-1|unknown"
        )
    return codes


def _number(name: str, text: str, prefix: str = "") -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise TaskError(f"{PREFIX}{name}: {prefix}{text.strip()!r} is not a number") from error
    if not math.isfinite(value):
        raise TaskError(f"{PREFIX}{name}: bounds and constants are finite")
    return value


def _day(name: str, text: str, prefix: str = "") -> float:
    if (day := days_in(text, Spelling())) is None:
        raise TaskError(f"{PREFIX}{name}: {prefix}{text!r} is no date of the form 2020-12-31")
    return day
