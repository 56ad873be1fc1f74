"""The versions that an answer's headers report."""

from __future__ import annotations

from client_sdk.api.spoken import Spoken
from study_protocol.versions import UNKNOWN_VERSION, UNNUMBERED


def test_what_an_answer_says_of_its_program() -> None:
    headers = {"wardround-version": "1.2.3", "wardround-protocol": "2", "wardround-study-protocol": "1"}
    assert Spoken.within(headers) == Spoken("1.2.3", 2, 1)
    assert Spoken.within({"wardround-version": "\x1b[2J", "wardround-protocol": "many"}) == Spoken()
    assert Spoken.within({"date": "today"}) is None


def test_an_answer_of_before_the_numbers_says_none_and_one_without_its_program_is_of_an_unknown_one() -> None:
    assert Spoken.within({}) is None
    assert Spoken.within({"wardround-version": "1.2.3"}) is None
    assert Spoken.within({"wardround-protocol": "2"}) == Spoken(UNKNOWN_VERSION, 2, UNNUMBERED)
