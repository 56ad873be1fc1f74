"""The number that people compare on the telephone."""

from __future__ import annotations

import hashlib

import pytest

from client_sdk.study.pinning import as_digits, is_fingerprint

ONE = hashlib.sha256(b"one").hexdigest()


def test_twelve_groups_of_five_digits_of_all_of_the_fingerprint() -> None:
    digits = as_digits(ONE)
    assert [len(group) for group in digits.split(" ")] == [5] * 12
    assert int(digits.replace(" ", "")) == int(ONE, 16) % 10**60
    # Every half of the fingerprint shows.
    changed = {as_digits(f"{int(ONE, 16) ^ (1 << bit):064x}") for bit in range(256)}
    assert len(changed | {digits}) == 257
    assert as_digits("0" * 63 + "7") == " ".join(["00000"] * 11 + ["00007"])


@pytest.mark.parametrize(
    "said", [as_digits(ONE), as_digits(ONE).replace(" ", ""), as_digits(ONE).replace(" ", "-"), ONE, ONE.upper()]
)
def test_it_may_be_typed_in_any_grouping(said: str) -> None:
    assert is_fingerprint(said, ONE)


@pytest.mark.parametrize(
    "said", ["", as_digits(ONE)[:-1], as_digits(ONE)[6:], ONE[:60], ONE[:-1] + "0", as_digits(ONE) + " 0"]
)
def test_a_part_of_it_is_not_enough(said: str) -> None:
    assert not is_fingerprint(said, ONE)
