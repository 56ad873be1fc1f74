"""Roles: which of a person's grants acts, and who may give which role."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.study.roles import OPERATIONS, ROLE_TEXTS, ROLES, Grant, Role, acting_role, may_give, roles_in

STUDIES = st.sampled_from([None, "icu", "sepsis"])
GRANTS = st.lists(st.builds(Grant, role=st.sampled_from(ROLES), study=STUDIES), max_size=4)
ADMINISTRATOR, LEAD = Grant("administrator"), Grant("lead", "icu")


def test_every_role_has_a_text_and_an_operation() -> None:
    assert set(ROLE_TEXTS) == set(get_args(Role)) == set(ROLES)
    for role in ROLES:
        assert any(role in callers for callers in OPERATIONS.values())


def test_the_strongest_role_acts() -> None:
    both = (Grant("asker", "icu"), LEAD)
    assert acting_role(both, "ask_query", "icu") == "lead"
    assert acting_role(both, "ask_query", "sepsis") is None
    # Of an operation that belongs to no study.
    assert acting_role(both, "create_key", None) == "lead"
    assert acting_role((Grant("auditor", "icu"),), "read_coordinator_audit_log", None) is None


@given(GRANTS, st.sampled_from(sorted(OPERATIONS)), st.sampled_from(["icu", "sepsis", "other"]))
def test_a_grant_for_another_study_changes_nothing(grants: list[Grant], operation: str, study: str) -> None:
    for_study = [grant for grant in grants if grant.study in (None, study)]
    assert acting_role(grants, operation, study) == acting_role(for_study, operation, study)
    role = acting_role(grants, operation, study)
    assert role is None or (role in OPERATIONS[operation] and role in roles_in(grants, study))


@given(GRANTS, GRANTS, st.builds(Grant, role=st.sampled_from(ROLES), study=STUDIES))
def test_more_grants_give_no_less(grants: list[Grant], more: list[Grant], wanted: Grant) -> None:
    assert may_give([*grants, *more], wanted) >= may_give(grants, wanted)


@pytest.mark.parametrize(
    ("held", "wanted", "allowed"),
    [
        (ADMINISTRATOR, ADMINISTRATOR, True),
        (ADMINISTRATOR, Grant("viewer", "icu"), True),
        (LEAD, Grant("lead", "icu"), True),
        (LEAD, Grant("viewer", "icu"), True),
        (LEAD, Grant("viewer", "sepsis"), False),
        (LEAD, Grant("viewer"), False),
        (LEAD, ADMINISTRATOR, False),
        (LEAD, Grant("administrator", "icu"), False),
        (Grant("lead"), Grant("lead"), True),
        (Grant("lead"), ADMINISTRATOR, False),
        # No message can ask for it, and a row of the database can name it.
        (Grant("administrator", "icu"), ADMINISTRATOR, False),
        (Grant("auditor"), Grant("viewer", "icu"), False),
        (Grant("asker", "icu"), Grant("asker", "icu"), False),
    ],
)
def test_who_may_give_a_role(held: Grant, wanted: Grant, allowed: bool) -> None:
    assert may_give([held], wanted) is allowed


@given(GRANTS, st.builds(Grant, role=st.sampled_from(ROLES), study=STUDIES))
def test_only_an_administrator_gives_more_than_it_has(grants: list[Grant], wanted: Grant) -> None:
    if may_give(grants, wanted) and ADMINISTRATOR not in grants:
        assert wanted.role != "administrator"
        assert "lead" in roles_in(grants, wanted.study)
        assert wanted.study is not None or Grant("lead") in grants
