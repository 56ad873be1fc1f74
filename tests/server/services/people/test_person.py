"""Persons: the names that rows may hold, and the names under which they act."""

from __future__ import annotations

import pytest

from server.services.people.person import Person, are_texts
from study_protocol.study.audit_log import Actor
from study_protocol.study.roles import Grant


def test_a_person_acts_under_the_strongest_role_that_allows_it() -> None:
    grants = (Grant("viewer"), Grant("lead", "sepsis"))
    session = Person("0a", "Ada", grants, "session", "ada-1")
    assert session.acting_as("pause_study", "sepsis") == Actor(kind="session", id="ada-1", name="Ada", role="lead")
    assert session.acting_as("show_study", "stroke").role == "viewer"
    assert Person("0a", "Ada", grants).acting_as("show_study", None).id == "0a"


@pytest.mark.parametrize("value", [None, 7, b"x", "a\nb", "\x1b[31m", "\u202ea", "\ud800"])
def test_what_cannot_be_shown_is_no_text(value: object) -> None:
    assert not are_texts("Ada", value)


def test_names_in_any_alphabet_are_texts() -> None:
    assert are_texts("Ada Example", "李", "\U0001f600", "")
