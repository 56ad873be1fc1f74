"""How far a query has come, in words."""

from __future__ import annotations

import pytest

from study_protocol.study.query_words import refusals_of, state_in_words, title_of
from tests.factories.signed_answers import answered, document, shown

ASKED = document("count")


def test_a_query_without_a_title_is_called_by_its_question() -> None:
    assert title_of(shown(document("count", title="Everybody"))) == "Everybody"
    assert title_of(shown(ASKED)).startswith("How many patients there are.")


@pytest.mark.parametrize(
    ("refused", "words"),
    [(0, ""), (1, ", 1 says no"), (2, ", 2 say no")],
)
def test_who_is_waited_for_is_counted(refused: int, words: str) -> None:
    assert state_in_words(shown(ASKED, refused=refused)) == f"waiting: 1 of at least 2 hospitals say yes{words}"


def test_every_later_state_has_its_words() -> None:
    assert state_in_words(shown(ASKED, state="asked", round=4)) == "asked in round 4: hospitals compute"
    assert state_in_words(answered(ASKED)) == "answered"


@pytest.mark.parametrize(
    ("reason", "again"), [("too-few-clients", True), (None, True), ("study-finished", False), ("query-opened", False)]
)
def test_a_failure_says_whether_asking_again_helps(reason: str | None, again: bool) -> None:
    words = state_in_words(shown(ASKED, state="failed", reason=reason))
    assert words.startswith("failed: ")
    assert ("Asking again" in words) == again


def test_refusals_are_told_with_their_reason_to_those_who_may_see_them() -> None:
    consents = [
        {"client": "a", "consent": {"allowed": False, "code": "policy-noise", "detail": "too little noise"}},
        {"client": "b", "consent": {"allowed": False, "code": "policy-noise"}},
        {"client": "c", "consent": {"allowed": False}},
        {"client": "d", "consent": {"allowed": True}},
    ]
    assert refusals_of(shown(ASKED, consents=consents)) == [
        "a: too little noise",
        "b: policy-noise",
        "c: no reason given",
    ]
    assert refusals_of(shown(ASKED)) == []
