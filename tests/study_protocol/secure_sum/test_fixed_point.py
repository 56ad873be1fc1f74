"""Encodings against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from study_protocol.secure_sum import vectors as fp
from study_protocol.secure_sum.vectors import EncodingError

COSTS = st.floats(min_value=0, allow_nan=False, allow_infinity=False, max_value=1e30).map(abs)
SIGNED = st.floats(min_value=-3.0, max_value=3.0)


def ring_sum(parts: list[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total


@settings(deadline=None)
@given(st.lists(st.lists(SIGNED, min_size=3, max_size=3), min_size=1, max_size=12), st.sampled_from([32, 64]))
def test_signed_sums_are_exact_within_the_resolution(clients, bits) -> None:
    cap, scale = fp.largest_cap(len(clients), bits), 24
    words = [fp.encode_signed(np.array(x), ring_bits=bits, scale_bits=scale, cap=cap) for x in clients]
    decoded = fp.decode_signed(ring_sum(words), scale_bits=scale)
    for column, got in enumerate(decoded):
        exact = sum(Fraction(x[column]) for x in clients)
        assert abs(Fraction(got) - exact) <= Fraction(len(clients), 2 ** (scale + 1))


@settings(deadline=None)
@given(st.lists(st.lists(COSTS, min_size=2, max_size=2), min_size=1, max_size=12))
def test_cost_sums_are_never_below_and_stay_close(clients) -> None:
    cap, scale = fp.largest_cap(len(clients), 64), 32
    pairs = [fp.encode_costs(np.array(x), scale_bits=scale, cap=cap) for x in clients]
    total, saturated = ring_sum([p[0] for p in pairs]), ring_sum([p[1] for p in pairs])
    decoded = fp.decode_costs(total, saturated, scale_bits=scale)
    for column, got in enumerate(decoded):
        exact = sum(Fraction(x[column]) for x in clients)
        if any(Fraction(x[column]) * 2**scale > cap for x in clients):
            assert math.isinf(got)
        else:
            assert Fraction(got) >= exact
            assert Fraction(math.nextafter(got, 0)) <= exact + Fraction(len(clients), 2**scale)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**20), min_size=4, max_size=4), min_size=1, max_size=50))
def test_count_sums_are_exact(clients) -> None:
    words = [fp.encode_counts(np.array(x), ring_bits=32, cap=2**20) for x in clients]
    assert fp.decode_counts(ring_sum(words)).tolist() == [sum(column) for column in zip(*clients, strict=True)]


def test_all_clients_at_the_range_limit_do_not_wrap() -> None:
    for bits in (32, 64):
        cap = fp.largest_cap(50, bits)
        ends = np.array([-1.0, 1.0]) * math.floor(math.ldexp(cap, -12))
        words = [fp.encode_signed(ends, ring_bits=bits, scale_bits=12, cap=cap)] * 50
        assert fp.decode_signed(ring_sum(words), scale_bits=12).tolist() == [50 * x for x in ends]


def test_a_positive_cost_never_becomes_zero() -> None:
    units, _ = fp.encode_costs(np.array([5e-324, 0.0]), scale_bits=32, cap=2**40)
    assert units.tolist() == [1, 0]


def test_infinite_and_huge_costs_saturate() -> None:
    values = np.array([math.inf, 1e300, 2.0**20, math.nextafter(2.0**20, math.inf)])
    units, saturated = fp.encode_costs(values, scale_bits=0, cap=2**20)
    assert units.tolist() == [2**20] * 4
    assert saturated.tolist() == [1, 1, 0, 1]
    assert fp.decode_costs(units, saturated, scale_bits=0).tolist() == [math.inf, math.inf, 2.0**20, math.inf]


def test_the_cap_is_honoured_exactly_where_float64_cannot_hold_it() -> None:
    cap = fp.largest_cap(3, 64)
    assert int(float(cap)) != cap
    beyond = np.array([math.nextafter(float(cap), math.inf)])
    assert fp.encode_costs(beyond, scale_bits=0, cap=cap)[1].tolist() == [1]
    inside = np.array([math.nextafter(float(cap), 0)])
    units, saturated = fp.encode_costs(inside, scale_bits=0, cap=cap)
    assert int(units[0]) <= cap
    assert saturated.tolist() == [0]


def test_decoded_costs_are_rounded_up_beyond_53_bits() -> None:
    total = np.array([2**62 + 1, 2**53 + 1, 2**53], dtype="<u8")
    decoded = fp.decode_costs(total, np.zeros(3, "<u8"), scale_bits=0)
    assert [int(x) for x in decoded] == [2**62 + 1024, 2**53 + 2, 2**53]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([math.nan], "NaN"),
        ([-1e-9], "negative"),
        ([-0.0], "-0.0"),
        ([[1.0]], "one-dimensional"),
        ([-math.inf], "negative"),
    ],
)
def test_bad_costs_are_refused_by_name(values, word) -> None:
    with pytest.raises(EncodingError, match=f"values.*{word}"):
        fp.encode_costs(np.array(values), scale_bits=32, cap=100)


@pytest.mark.parametrize(
    ("values", "word"),
    [([math.nan, 1.0], "NaN"), ([math.inf], "infinity"), ([1.01], "range"), ([-1.01], "range"), ([[1.0]], "one-dim")],
)
@pytest.mark.parametrize("bits", [32, 64])
def test_bad_signed_values_are_refused_by_name(values, word, bits) -> None:
    with pytest.raises(EncodingError, match=f"values.*{word}"):
        fp.encode_signed(np.array(values), ring_bits=bits, scale_bits=10, cap=1024)


@pytest.mark.parametrize("counts", [[-1], [6], [[1]], [1.0]])
def test_bad_counts_are_refused_by_name(counts) -> None:
    with pytest.raises(EncodingError, match="counts"):
        fp.encode_counts(np.array(counts), ring_bits=32, cap=5)


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(EncodingError, match="ring_bits"):
        fp.ring_dtype(16)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="scale_bits"):
        fp.VectorSpec(name="x", encoding="signed", length=1, ring_bits=64, scale_bits=63, cap=1)
    with pytest.raises(EncodingError, match="clients"):
        fp.largest_cap(0, 32)


def test_sums_only_a_liar_can_cause_are_refused() -> None:
    with pytest.raises(EncodingError, match="total"):
        fp.decode_counts(np.array([2**31], dtype="<u4"))
    with pytest.raises(EncodingError, match="total"):
        fp.decode_costs(np.array([2**63], dtype="<u8"), np.zeros(1, "<u8"), scale_bits=0)


def test_rounding_adds_at_most_the_stated_norm() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=10_000)
    x *= 1.0 / np.linalg.norm(x)
    scale = 8
    words = fp.encode_signed(x, ring_bits=32, scale_bits=scale, cap=2**20)
    rounded = fp.decode_signed(words, scale_bits=scale)
    # Half a unit a coordinate: sqrt(10,000) / 2^(scale + 1).
    assert np.linalg.norm(rounded) <= 1 + 100 / 512
    # The worst case: every coordinate just past one half of a unit.
    worst = np.full(x.size, math.nextafter(0.5, 1) / 2**scale)
    grown = fp.decode_signed(fp.encode_signed(worst, ring_bits=32, scale_bits=scale, cap=9), scale_bits=scale)
    assert np.linalg.norm(grown) <= (np.linalg.norm(worst) + 100 / 512) * (1 + 1e-12)


def test_float32_and_blocks_longer_than_one_are_encoded_alike() -> None:
    x = np.linspace(-1, 1, 200_001, dtype=np.float32)
    words = fp.encode_signed(x, ring_bits=32, scale_bits=20, cap=2**21)
    assert np.array_equal(words.view("<i4"), np.rint(x.astype(np.float64) * 2**20).astype(np.int32))
