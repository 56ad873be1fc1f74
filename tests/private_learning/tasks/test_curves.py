"""Bins of public edges, what stands for them, and curves that are declared monotone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from private_learning.tasks.columns import read_columns
from private_learning.tasks.curves import WIGGLE, CurveColumn, basis, curve_column, longest_row, monotone, scores
from private_learning.tasks.task import TaskError


def column(text: str, bins: int = 16) -> Any:
    return curve_column(read_columns({"column.x": text}, trends=True)[0], bins)


TEXTS = {
    "18..90": "18..90",
    "missing": "100..400; missing=240",
    "typical": "0..400; typical=2..40",
    "log": "0..400; typical=2..40; log; missing=5",
    "one side": "0..400; typical=0..40",
    "other side": "30..140; typical=40..140; missing=80",
    "last bit": "0.1..140.3; typical=0.7..140.3; log",
    "dates": "2020-01-01..2023-12-31",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_edges_rise_within_the_range_and_have_equal_distances_in_each_part(text: str) -> None:
    declared = column(text)
    ends = np.array([declared.low, *declared.edges, declared.high])
    assert len(declared.edges) == 15
    assert (np.diff(ends) > 0).all()
    places = declared.scaled(ends)
    inside = places[(places >= -1 - 1e-9) & (places <= 1 + 1e-9)]
    np.testing.assert_allclose(np.diff(inside), np.diff(inside)[0], rtol=1e-6)


def test_a_typical_range_has_four_in_five_of_the_bins() -> None:
    edges = column("0..400; typical=2..40", 100).edges
    assert np.sum((edges > 2 + 1e-9) & (edges < 40 - 1e-9)) == 79


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_cell_becomes_the_row_of_its_bin(text: str) -> None:
    declared = column(text)
    low, high = declared.low, declared.high
    values = np.array(
        [low - 5, low, *declared.edges, high, high + 5, *np.random.default_rng(1).uniform(low, high, 200)]
    )
    expected = [basis(16)[sum(edge <= min(max(value, low), high) for edge in declared.edges)] for value in values]
    cells = values if not declared.dates else np.floor(values).astype("datetime64[D]")
    if declared.dates:
        expected = [basis(16)[sum(edge <= min(max(np.floor(v), low), high) for edge in declared.edges)] for v in values]
    np.testing.assert_array_equal(declared.encode(cells)[:, :16], expected)


def test_a_missing_number_has_zeros_and_a_one() -> None:
    np.testing.assert_array_equal(column("0..9; missing=3").encode(np.array([np.nan])), [[0.0] * 16 + [1.0]])


def test_the_cosines_have_rows_of_one_length_and_fall_in_size() -> None:
    rows = basis(32)
    np.testing.assert_allclose(np.linalg.norm(rows[:, 1:], axis=1), WIGGLE)
    np.testing.assert_allclose(rows[:, 0], 1.25 * (2 * (np.arange(32) + 0.5) / 32 - 1))
    lengths = np.linalg.norm(rows[:, 1:], axis=0)
    # But for the last ones, whose rows were lengthened.
    assert (np.diff(lengths[:28]) < 0).all()
    # With a constant, every curve is one of them.
    assert np.linalg.matrix_rank(np.column_stack([rows, np.ones(32)])) == 32


@pytest.mark.parametrize(
    "text",
    [*TEXTS.values(), "a|b|c", "a|b; missing", "a|b|c; frequencies=10|20|70"],
    ids=[*TEXTS, "abc", "ab", "shares"],
)
def test_no_row_is_longer_than_said_and_one_is_as_long(text: str) -> None:
    declared = column(text)
    cells = declared.random(4000, np.random.default_rng(2))
    lengths = np.linalg.norm(declared.encode(cells), axis=1)
    assert lengths.max() <= longest_row(declared) + 1e-12
    ends = (
        declared.encode(np.array([declared.low, declared.high]))
        if isinstance(declared, CurveColumn) and not declared.dates
        else None
    )
    longest = max(lengths.max(), 0.0 if ends is None else np.linalg.norm(ends, axis=1).max())
    assert longest == pytest.approx(longest_row(declared), rel=0.05)


@pytest.mark.parametrize("text", ["0..10; missing=1", "a|b|c; missing; frequencies=10|20|70", "a|b"])
def test_scores_are_the_inputs_times_the_weights(text: str) -> None:
    declared = column(text)
    weights = np.random.default_rng(3).normal(size=declared.width)
    values, missing = scores(declared, weights)
    if isinstance(declared, CurveColumn):
        cells: Any = [*(declared.edges - 1e-9), 10.0]
    else:
        cells = list(declared.categories)
    np.testing.assert_allclose(declared.encode(cells) @ weights, values)
    if declared.missing not in (None, False):
        np.testing.assert_allclose(declared.encode([None]) @ weights, [missing])


@pytest.mark.parametrize("trend", ["increasing", "decreasing"])
@pytest.mark.parametrize("bins", [4, 32, 256])
def test_a_monotone_curve_is_the_isotonic_regression(trend: str, bins: int) -> None:
    declared = column(f"0..10; {trend}", bins)
    weights = np.random.default_rng(bins).normal(size=bins)
    changed_weights, constant = monotone(declared, weights)
    expected = IsotonicRegression(increasing=trend == "increasing").fit_transform(
        np.arange(bins), declared.basis @ weights
    )
    np.testing.assert_allclose(declared.basis @ changed_weights + constant, expected, atol=1e-9)


def test_a_curve_that_rises_already_stays() -> None:
    declared = column("0..10; increasing")
    weights = np.zeros(16)
    weights[0] = 2.0
    changed_weights, constant = monotone(declared, weights)
    np.testing.assert_allclose(declared.basis @ changed_weights + constant, declared.basis @ weights, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0..9; increasing; decreasing", "one of increasing and decreasing"),
        ("0..9; increasing=yes", "without a value"),
        ("a|b; increasing", "are for a range"),
        ("1..1.0000000000000004", "too narrow for 16 bins"),
    ],
)
def test_a_column_that_cannot_be_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        column(text)


def test_other_models_keep_no_trend() -> None:
    with pytest.raises(TaskError, match="increasing is kept by task additive alone"):
        read_columns({"column.x": "0..9; increasing"})
