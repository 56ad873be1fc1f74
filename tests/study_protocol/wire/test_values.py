"""Strict numbers, names and messages."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from study_protocol.wire.values import Finite, Message, Name, Positive, Probability, Rate, Sha256, Share, Whole


class Reading(Message):
    """A message of two values."""

    value: Finite
    count: Whole = 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "1", True, -0.0, None])
def test_what_is_no_plain_number_is_refused(number: Any) -> None:
    with pytest.raises(ValidationError):
        Reading(value=number)


@pytest.mark.parametrize("number", [1.0, "1", True])
def test_a_whole_number_is_no_float_and_no_truth(number: Any) -> None:
    with pytest.raises(ValidationError):
        Reading(value=1.0, count=number)


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (Positive, [5e-324, 1e308], [0.0, -1.0]),
        (Probability, [1e-300, 0.5], [0.0, 1.0]),
        (Rate, [1e-300, 1.0], [0.0, 1.1]),
        (Share, [0.0, 0.999], [1.0, -0.1]),
    ],
    ids=["positive", "probability", "rate", "share"],
)
def test_ends_of_a_range_are_in_it_or_not(kind: Any, inside: list[float], outside: list[float]) -> None:
    adapter = TypeAdapter(kind)
    assert [adapter.validate_python(number) for number in inside] == inside
    for number in outside:
        with pytest.raises(ValidationError):
            adapter.validate_python(number)


def test_names_are_those_that_a_host_may_have() -> None:
    names = TypeAdapter(Name)
    for name in ("a", "north-2", "0", "a" * 63):
        assert names.validate_python(name) == name
    for name in ("", "-a", "a-", "A", "a_b", "a.b", "a" * 64, "a\n", "\u00e4"):
        with pytest.raises(ValidationError):
            names.validate_python(name)


def test_a_digest_has_64_small_hexadecimal_digits() -> None:
    digests = TypeAdapter(Sha256)
    digests.validate_python("0af" + "9" * 61)
    for text in ("0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n"):
        with pytest.raises(ValidationError):
            digests.validate_python(text)


def test_messages_never_change_and_hold_nothing_unknown() -> None:
    reading = Reading(value=2.0)
    with pytest.raises(ValidationError, match="frozen"):
        reading.value = 3.0
    with pytest.raises(ValidationError, match="Extra inputs"):
        Reading.model_validate({"value": 1.0, "more": 1})
