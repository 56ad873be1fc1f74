"""Numbers of low precision as the decimal numbers that were meant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.cells.precision import widened


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_number_of_32_bits_is_the_decimal_number_that_was_meant(values: list[float]) -> None:
    stored = np.array(values, np.float32)
    meant = [float(one) if one == np.rint(one) else float(str(one)) for one in stored]
    assert widened(stored).tolist() == meant


def test_every_float16_is_the_shortest_decimal_number_that_is_its_own() -> None:
    """Of all 63,488 finite ones, as NumPy writes them. 1/64 alone is kept in all its digits: 0.01563 is above it."""
    stored = np.arange(2**16, dtype=np.uint16).view(np.float16)
    stored = stored[np.isfinite(stored)]
    whole = stored == np.rint(stored)
    texts = ["0.015625" if number == 1 / 64 else str(number) for number in np.abs(stored)]
    meant = np.copysign([float(text) for text in texts], stored)
    np.testing.assert_array_equal(widened(stored), np.where(whole, stored.astype(np.float64), meant))


def test_other_types_and_what_is_no_number_stay_as_they_are() -> None:
    assert widened(np.array([0.1, 36.599998474121094])).tolist() == [0.1, 36.599998474121094]
    assert widened(np.array([True, False])).tolist() == [1, 0]
    assert widened(np.array([2**53 - 1])).tolist() == [2**53 - 1]
    with np.errstate(all="raise"):
        special = widened(np.array([np.nan, np.inf, -np.inf, 36.6, 1e-45], np.float32))
    assert np.isnan(special[0])
    assert special[1:4].tolist() == [np.inf, -np.inf, 36.6]
    # The smallest float32 above zero.
    assert special[4] == 1e-45
