"""Typical ranges, logarithms and frequencies out of the figures of a column, and their text in settings."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from private_learning.tasks.columns import read_columns
from private_learning.tasks.declared_columns import CategoryColumn, NumberColumn
from private_learning.tasks.typical import column_text, rounded_outward, with_frequencies, with_moments, with_typical

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ENDS = st.floats(-1e9, 1e9).map(lambda value: float(f"{value:.6g}"))


def number(text: str) -> NumberColumn:
    (column,) = read_columns({"column.x": text})
    assert isinstance(column, NumberColumn)
    return column


@pytest.mark.parametrize(
    "text",
    [
        "18..90",
        "0..400; missing=12.5; typical=2..40; log; missing-values=-1|unknown",
        "2015-01-01..2030-12-31; missing=2020-05-01; typical=2020-01-01..2022-12-31",
        "a=1|b|3; missing; frequencies=70|25|5; missing-values=9",
        "no|yes",
    ],
)
def test_the_text_of_a_column_is_read_as_this_column(text: str) -> None:
    (column,) = read_columns({"column.x": text})
    assert column_text(column) == text


@given(FLOATS, FLOATS)
@example(1.0, math.nextafter(1, 2))
@example(0.0, sys.float_info.max)
@example(1e16, 1e16 + 2)
def test_every_number_of_a_column_is_written_so_that_it_is_read_again(one: float, other: float) -> None:
    column = NumberColumn("x", min(one, other), max(one, other), one, ("-1",))
    if column.low < column.high and column.is_near:
        assert number(column_text(column)) == column


@given(FLOATS, FLOATS)
@example(-sys.float_info.max, sys.float_info.max)
@example(0.0, sys.float_info.max)
@example(0.0, 5e-324)
def test_rounded_ends_of_any_numbers_are_finite_and_hold_them(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    first, last = rounded_outward(low, high)
    slack = 1e-6 * max(abs(low), abs(high))
    assert math.isfinite(first)
    assert math.isfinite(last)
    assert first <= low + slack
    assert high - slack <= last


@given(ENDS, ENDS)
def test_ends_are_moved_outward_by_at_most_half_the_difference(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if high - low < 1e-6 * max(abs(low), abs(high), 1e-9):
        return
    first, last = rounded_outward(low, high)
    slack = 1e-6 * (high - low)
    assert low - (high - low) / 2 - slack <= first <= low + slack
    assert high - slack <= last <= high + (high - low) / 2 + slack
    # Few digits: a settings line that a person reads.
    assert max(len(f"{end:.12g}".strip("-0.").replace(".", "")) for end in (first, last)) <= 9


@pytest.mark.parametrize(
    ("text", "quantiles", "expected"),
    [
        # A logarithm brings the median of a skewed column to the middle, and not that of others.
        ("0..400", (2.3, 9, 38), "0..400; typical=2..40; log"),
        ("0..400; missing=20", (22, 30, 38), "0..400; missing=20; typical=22..38"),
        ("0..400; log", (22, 30, 38), "0..400; typical=22..38"),
        # Skewed to the left, and counts whose median is their least value.
        ("0..400", (2, 30, 40), "0..400; typical=2..40"),
        ("0..50", (0, 0, 3), "0..50; typical=0..3"),
        # Inside the range, whatever the figures are.
        ("10..30", (-5, 20, 99), "10..30"),
        ("1990-01-01..2030-01-01", (14610, 16000, 18300), "1990-01-01..2030-01-01; typical=2010-01-01..2021-01-01"),
        ("1990-01-01..2030-01-01", (18300, 18500, 18900), "1990-01-01..2030-01-01; typical=2020-02-01..2021-10-01"),
        ("2015-01-01..2030-01-01", (18300, 18310, 18320), "2015-01-01..2030-01-01; typical=2020-02-08..2020-02-28"),
        # Too narrow without a logarithm.
        ("0..1000000", (1, 2, 3), "0..1000000; typical=1..3; log"),
        ("-1000000..1000000", (1, 2, 3), None),
        ("0..400", (5, 5, 5), None),
        ("10..30", (50, 60, 70), None),
    ],
)
def test_the_typical_range_and_the_logarithm_that_quantiles_suggest(
    text: str, quantiles: tuple[float, float, float], expected: str | None
) -> None:
    found = with_typical(number(text), *quantiles)
    assert (None if found is None else column_text(found)) == expected


def test_without_a_median_the_choice_about_the_logarithm_stays() -> None:
    found = [with_typical(number(f"0..400{log}"), 2.3, None, 38) for log in ("", "; log")]
    assert [column and column.log for column in found] == [False, True]


@given(st.floats(0.1, 3), st.floats(0.4, 1.5))
def test_log_normal_values_are_centred_by_their_own_quantiles(scale: float, deviation: float) -> None:
    """Quantiles of a log-normal variable in closed form."""
    first, median, last = (math.exp(scale + deviation * z) for z in (-1.6449, 0.0, 1.6449))
    column = with_typical(number("0..1e4"), first, median, last)
    assert column is not None
    assert column.log
    assert abs(column.encode(np.array([median]))[0, 0]) < 0.6


@given(st.floats(0.1, 3), st.floats(0.4, 1.5))
def test_the_moments_of_log_normal_values_suggest_what_their_quantiles_do(scale: float, deviation: float) -> None:
    """Mean and deviation of a log-normal variable in closed form."""
    mean = math.exp(scale + deviation**2 / 2)
    spread = mean * math.sqrt(math.expm1(deviation**2))
    if mean - 1.6449 * spread > -1e-6 * mean:
        # It may as well be normal.
        return
    first, median, last = (math.exp(scale + deviation * z) for z in (-1.6449, 0.0, 1.6449))
    found, expected = with_moments(number("0..1e6"), mean, spread), with_typical(number("0..1e6"), first, median, last)
    assert found is not None
    assert expected is not None
    assert found.log == expected.log
    assert found.spread == pytest.approx(expected.spread, rel=0.3)


@pytest.mark.parametrize(
    ("mean", "deviation", "expected"),
    [
        (28, 4, "10..60; typical=21..35"),
        (9, 4, None),
        (28, 0, None),
        (28, math.nan, None),
        (59, 9, "10..60; typical=44..60"),
    ],
)
def test_moments_of_a_normal_variable_and_those_of_none(mean: float, deviation: float, expected: str | None) -> None:
    found = with_moments(number("10..60"), mean, deviation)
    assert (None if found is None else column_text(found)) == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((97, 3), "a|b; frequencies=95|5"), ((995, 5), "a|b; frequencies=99|1"), ((0, 7), "a|b; frequencies=1|99")],
)
def test_frequencies_are_rounded_to_five_per_cent(counts: tuple[int, int], expected: str) -> None:
    assert column_text(with_frequencies(CategoryColumn("x", ("a", "b"), missing=False), counts)) == expected


@given(st.lists(st.integers(0, 50), min_size=2, max_size=150).filter(any))
def test_frequencies_of_many_categories_are_readable(counts: list[int]) -> None:
    names = tuple(f"c{place}" for place in range(len(counts)))
    column = with_frequencies(CategoryColumn("x", names, missing=False), counts)
    assert sum(column.shares) == pytest.approx(1)
    assert min(column.shares) > 0
    (read,) = read_columns({"column.x": column_text(column)})
    assert isinstance(read, CategoryColumn)
    assert read.shares == (column.shares if len(counts) <= 100 else pytest.approx(column.shares))
    # In their order.
    pairs = list(zip(counts, column.shares, strict=True))
    assert all(one[1] <= other[1] + 0.0101 for one in pairs for other in pairs if one[0] < other[0])
