from __future__ import annotations

from typing import Any

import pytest

from server.single_sign_on.errors import LoginRefused
from server.single_sign_on.identity import groups_of, name_of
from tests.factories.case_ids import plain_id


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": "Ada", "preferred_username": "ada", "sub": "1"}, "Ada"),
        ({"preferred_username": "ada", "email": "a@b", "sub": "1"}, "ada"),
        ({"email": "a@b", "sub": "1"}, "a@b"),
        ({"sub": "1"}, "1"),
        ({"name": "", "sub": "1"}, "1"),
        ({"name": " \u200b\u202e\n", "sub": "1"}, "1"),
        ({"name": ["Ada"], "sub": "1"}, "1"),
        ({"name": "Ada\r\n  E.\u2028Example\t"}, "Ada E. Example"),
        ({"name": "\u202eelpmaxE\x00 \x1b[31mAda\ud800"}, "elpmaxE [31mAda"),
        ({"name": "\u00c5sa \u738b"}, "\u00c5sa \u738b"),
        ({"name": "a" * 500}, "a" * 100),
    ],
    ids=plain_id,
)
def test_a_name_is_one_visible_line(claims: dict[str, Any], name: str) -> None:
    assert name_of(claims) == name


def test_a_person_without_a_visible_name_is_refused() -> None:
    with pytest.raises(LoginRefused):
        name_of({"sub": "\u200b"})


@pytest.mark.parametrize(
    ("claims", "path", "groups"),
    [
        ({"groups": ["a", "b"]}, "groups", ("a", "b")),
        ({"groups": "a"}, "groups", ("a",)),
        ({"groups": []}, "groups", ()),
        ({}, "groups", None),
        ({"groups": None}, "groups", None),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ("a",)),
        ({"realm_access": ["roles"]}, "realm_access.roles", None),
        ({"realm_access": {}}, "realm_access.roles", None),
        ({"https://study.example/groups": ["a"]}, "https://study.example/groups", ("a",)),
        ({"groups": ["a", "", "b\u202e", "c\ud800", "d" * 257]}, "groups", ("a",)),
        ({"roles": ["a"], "_claim_names": {"groups": "src1"}}, "roles", ("a",)),
        ({"_claim_names": ["groups"]}, "groups", None),
    ],
    ids=plain_id,
)
def test_groups_are_found_at_a_path(claims: dict[str, Any], path: str, groups: tuple[str, ...] | None) -> None:
    assert groups_of(claims, path) == groups


@pytest.mark.parametrize("groups", [7, True, {"a": True}, ["a", 7], [["a"]]])
def test_groups_that_are_no_names_are_refused(groups: Any) -> None:
    with pytest.raises(LoginRefused, match="not a list of names"):
        groups_of({"groups": groups}, "groups")


@pytest.mark.parametrize("sign", [{"_claim_names": {"groups": "src1"}}, {"hasgroups": True}], ids=["code", "implicit"])
def test_groups_that_entra_id_left_out_are_not_taken_for_none(sign: dict[str, Any]) -> None:
    with pytest.raises(LoginRefused, match="too many"):
        groups_of(sign, "groups")
