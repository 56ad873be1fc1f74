"""Rejections: for whoever calls a code and values, for whoever reads a text."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from server.domain.errors import Code, Forbids, Rejected


def words_of(literal: object) -> list[str]:
    found = list[str]()
    for argument in get_args(literal):
        found += [argument] if isinstance(argument, str) else words_of(argument)
    return found


def test_a_rejection_keeps_its_values_out_of_its_text() -> None:
    with pytest.raises(Rejected, match=r"^too-few-enrolled: wait for more hospitals$") as refused:
        raise Rejected("too-few-enrolled", "wait for more hospitals", enrolled=1, min_clients=2)
    assert (refused.value.code, refused.value.detail) == ("too-few-enrolled", "wait for more hospitals")
    assert refused.value.extra == {"enrolled": 1, "min_clients": 2}
    assert Rejected("frozen", "open a new study").extra == {}


def test_every_code_is_one_word_and_stands_once() -> None:
    codes = words_of(Code)
    assert len(codes) == len(set(codes)) > 40
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    # What a study, a round, a session or an invitation forbids is a part of it.
    assert {"frozen", "round-closed", "too-early", "invitation-used"} <= set(words_of(Forbids)) < set(codes)
