from __future__ import annotations

from typing import Any

import pytest

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.decision import NOT_RECORDED, Decision, Subject
from client_sdk.guard.policy import SitePolicy

PERSON = {"name": "Ada", "role": "", "reason": "", "account": {"identifier": "1000", "name": "ada"}}
BODY: dict[str, Any] = {
    "study": "/decisions",
    "kind": "terms",
    "of": "sepsis",
    "sha256": "ab" * 32,
    "words": "take part",
    "rule": None,
    "verdict": "agree",
    "person": PERSON,
    "at": "2026-11-27T10:00:00+00:00",
}


def test_an_entry_is_read_as_it_was_written() -> None:
    decision = Decision.from_body(3, "cd" * 32, BODY)
    assert (decision.number, decision.verdict, str(decision.subject)) == (3, "agree", "the terms of study sepsis")
    assert decision.identity == "cd" * 32
    assert "Ada" in decision.person_in_words


def test_an_approval_of_an_earlier_version_keeps_its_name_in_charges() -> None:
    decision = Decision.from_body(1, "cd" * 32, BODY | {"person": None, "earlier": "approval-7"})
    assert (decision.identity, decision.person_in_words) == ("approval-7", NOT_RECORDED)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"kind": kind} for kind in ("secret-kind", None, 7)),
        *({"verdict": verdict} for verdict in ("secret-verdict", "", None)),
        {"person": PERSON | {"name": "secret\nname"}},
        {"person": PERSON | {"account": None}},
        {"more": "secret"},
        {"at": None},
    ],
)
def test_an_entry_of_another_kind_is_damage_and_not_quoted(wrong: dict[str, Any]) -> None:
    with pytest.raises(LedgerDamaged, match=r"entry 3 of decisions\.db") as damaged:
        Decision.from_body(3, "cd" * 32, BODY | wrong)
    assert "secret" not in str(damaged.value)
    assert damaged.value.__cause__ is None


def test_of_rivals_one_is_in_force() -> None:
    policy = Subject.of_policy(SitePolicy())
    stricter = Subject.of_policy(SitePolicy.model_validate({"approval": {"people": 2}}))
    assert policy.has_one_in_force
    assert policy.is_rival_of(stricter)
    assert policy.sha256 != stricter.sha256
    terms = [Subject("terms", study, "ab" * 32, "take part") for study in ("sepsis", "stroke")]
    assert not terms[0].is_rival_of(terms[1])
    assert not terms[0].has_one_in_force
