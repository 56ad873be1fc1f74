"""One byte string for one JSON value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.wire.signing import canonical_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_keys_are_sorted_spaces_are_left_out_and_letters_are_utf8() -> None:
    assert canonical_json({"b": [1.0, 0.1], "a": "é"}) == '{"a":"é","b":[1.0,0.1]}'.encode()


def test_the_order_of_insertion_does_not_show() -> None:
    assert canonical_json({"x": {"b": 1, "a": 2}, "c": 3}) == canonical_json({"c": 3, "x": {"a": 2, "b": 1}})


@given(VALUES)
def test_what_is_read_back_is_written_alike(value: object) -> None:
    written = canonical_json(value)
    assert json.loads(written) == value
    assert canonical_json(json.loads(written)) == written


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_of_json_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": [number]})
