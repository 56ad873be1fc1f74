"""Reasons of failed rounds in words."""

from __future__ import annotations

import re

import pytest

from study_protocol.study import reasons
from study_protocol.study.any_settings import settings_from
from study_protocol.study.reasons import FOR_GOOD, STUCK, explained, in_words
from tests.factories.settings import settings_json

# Of rounds, queries and pauses, as they stand in databases and answers.
KNOWN = (
    *("operator", "stopped", "too-few-clients", "too-few-drawn", "too-few-keys", "too-few-shares"),
    *("too-few-survivors", "too-sparse-survivors", "too-few-replies", "expired", "canary-mismatch", "sum-of-three"),
    *("same-model-again", "refused-by-hospitals", "study-finished", "budget-exhausted", "query-opened"),
    *("max-queries-reached", "updates-lost", "noised-sum-lost", "not-finite", "weights-out-of-bounds"),
)


@pytest.mark.parametrize("reason", KNOWN)
def test_settings_that_are_named_are_settings_of_a_study(reason: str) -> None:
    written = settings_from(
        settings_json(masked=True, statistics={"max_queries": 1, "max_cells": 1}, schedule={"min_clients": 4})
    ).as_json()
    for section, path in re.findall(r"\b(privacy|schedule|statistics)((?:\.[a-z_]+)+)", in_words(reason)):
        inside = written[section]
        for name in path.removeprefix(".").split("."):
            assert name in inside
            inside = inside[name]


def test_a_reason_without_words_is_a_sentence_of_its_code() -> None:
    assert in_words("of-a-later-version") == "of-a-later-version."
    assert all(in_words(reason) != reason for reason in KNOWN)


def test_an_unknown_reason_is_not_explained_by_itself() -> None:
    assert explained("of-a-later-version") == "of-a-later-version"
    assert explained("stopped") == f"stopped: {in_words('stopped')}"


def test_reasons_for_good_and_those_in_which_a_study_is_stuck_have_words() -> None:
    assert {*FOR_GOOD, *STUCK, reasons.BY_OPERATOR} <= set(KNOWN)
    assert "wardround study stop" in in_words(reasons.SAME_MODEL_AGAIN)
