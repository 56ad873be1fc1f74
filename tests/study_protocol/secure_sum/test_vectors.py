"""Vectors: layout, ranges, canary, and the whole law through `encode` and `decode`."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study_protocol.secure_sum import vectors as vectors
from study_protocol.secure_sum.vectors import (
    EncodingError,
    ThresholdGrid,
    VectorSpec,
    cost_vector,
    count_vector,
    largest_cap,
    maximum_vector,
)
from tests.factories.masked_memory import canary_holds

H1 = b"\x07" * 32
GRID = ThresholdGrid(low=1e-3, high=1e3, count=64)
UPDATE = VectorSpec(name="update", encoding="signed", length=4, ring_bits=32, scale_bits=20, cap=largest_cap(10, 32))
COSTS = cost_vector("terms", 3, 10)
COUNTS = count_vector("histogram", 5, 10)
MAXIMUM = maximum_vector("maximum", 2, GRID)


def test_the_layout_in_words_and_octets() -> None:
    assert [(s.data_words, s.words, s.octets) for s in (UPDATE, COSTS, COUNTS, MAXIMUM)] == [
        (4, 7, 28),
        (6, 8, 64),
        (5, 8, 32),
        (128, 130, 1040),
    ]


@settings(deadline=None)
@given(st.integers(1, 10), st.data())
def test_the_law_of_each_encoding(n, data) -> None:
    def draw(strategy, length):
        return [data.draw(st.lists(strategy, min_size=length, max_size=length)) for _ in range(n)]

    cases = (
        (UPDATE, draw(st.floats(-2, 2), 4), np.float64),
        (COSTS, draw(st.floats(0, 1e5).map(abs), 3), np.float64),
        (COUNTS, draw(st.integers(0, 10**6), 5), np.int64),
        (MAXIMUM, draw(st.floats(0, 2e3).map(abs), 2), np.float64),
    )
    for spec, values, dtype in cases:
        total = np.zeros(spec.words, spec.dtype)
        for index, row in enumerate(values):
            words = vectors.encode(spec, np.array(row, dtype=dtype), os.urandom)
            vectors.require_in_range(spec, words)
            buffer = vectors.canary_buffer(spec, H1, f"h{index}")
            buffer[: spec.data_words] = words
            total += buffer
        assert canary_holds(spec, total, H1, [f"h{i}" for i in range(n)])
        assert not canary_holds(spec, total, H1, [f"h{i}" for i in range(1, n + 1)])
        for got, column in zip(vectors.decode(spec, total), zip(*values, strict=True), strict=True):
            _check_law(spec, got, column)


def _check_law(spec: VectorSpec, got: float, column: tuple[float, ...]) -> None:
    exact = sum(Fraction(x) for x in column)
    match spec.encoding:
        case "signed":
            assert abs(Fraction(float(got)) - exact) <= Fraction(len(column), 2 ** (spec.scale_bits + 1))
        case "costs":
            assert exact <= Fraction(float(got)) <= exact + Fraction(len(column) + 1, 2**32)
        case "counts":
            assert got == exact
        case "thresholds":
            assert got >= max(column)


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        (UPDATE, np.zeros(5)),
        (UPDATE, np.zeros(4, dtype=np.int64)),
        (COSTS, np.zeros((3, 1))),
        (COUNTS, np.zeros(5)),
        (MAXIMUM, np.array([1.0, math.nan])),
        (UPDATE, np.array([0, 0, 0, 1e9])),
    ],
)
def test_values_that_do_not_fit_are_refused(spec, values) -> None:
    with pytest.raises(EncodingError, match=r"values|counts"):
        vectors.encode(spec, values, os.urandom)


def test_words_beyond_the_cap_are_refused() -> None:
    def words(spec: VectorSpec, position: int, value: int) -> np.ndarray:
        made = np.zeros(spec.data_words, spec.dtype)
        made[position] = value % 2**spec.ring_bits
        return made

    for spec, position, value in (
        (UPDATE, 0, UPDATE.cap + 1),
        (UPDATE, 3, -UPDATE.cap - 1),
        (UPDATE, 0, 2**31),
        (COSTS, 0, COSTS.cap + 1),
        (COSTS, 5, 2),
        (COUNTS, 1, COUNTS.cap + 1),
    ):
        with pytest.raises(EncodingError, match="beyond its cap"):
            vectors.require_in_range(spec, words(spec, position, value))
    vectors.require_in_range(UPDATE, words(UPDATE, 0, -UPDATE.cap))
    for bad in (np.zeros(4, "<u8"), np.zeros(5, "<u4")):
        with pytest.raises(EncodingError, match="must hold"):
            vectors.require_in_range(UPDATE, bad)


def spec(**changes: object) -> VectorSpec:
    return VectorSpec.model_validate({**COUNTS.model_dump(), **changes})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"grid": GRID}, "grid"),
        ({"encoding": "thresholds"}, "grid"),
        ({"encoding": "costs"}, "64-bit"),
        ({"scale_bits": 3}, "no scale"),
        ({"cap": 0}, "wrap"),
        ({"cap": largest_cap(10, 32) + 1}, "wrap"),
        ({"encoding": "thresholds", "grid": GRID, "ring_bits": 64}, "no cap"),
        ({"encoding": "thresholds", "grid": GRID, "cap": 0}, "64-bit"),
    ],
)
def test_unsound_specifications_have_a_fault(changes, word) -> None:
    fault = spec(**changes).fault(10)
    assert fault is not None
    assert word in fault
    assert all(sound.fault(10) is None for sound in (UPDATE, COSTS, COUNTS, MAXIMUM))


def test_sums_of_the_wrong_shape_are_refused() -> None:
    for total in (np.zeros(7, "<u8"), np.zeros(4, "<u4")):
        with pytest.raises(EncodingError, match="must hold"):
            vectors.decode(UPDATE, total)
    assert not canary_holds(UPDATE, np.zeros(6, "<u4"), H1, ["a"])


@pytest.mark.parametrize("bits", [-1, 63])
def test_a_scale_outside_the_ring_is_named(bits: int) -> None:
    with pytest.raises(EncodingError, match="scale_bits"):
        vectors.encode_signed(np.array([1.0, 2.0]), ring_bits=32, scale_bits=bits, cap=4)
    with pytest.raises(EncodingError, match="scale_bits"):
        vectors.encode_costs(np.array([1.0, 2.0]), scale_bits=bits, cap=4)
