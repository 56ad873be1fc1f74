"""Persons: the roles and the names under which they act."""

from __future__ import annotations

from server.services.people.person import Person
from study_protocol.study.audit_log import Actor
from study_protocol.study.roles import Grant


def test_a_person_acts_under_the_strongest_role_that_allows_it() -> None:
    grants = (Grant("viewer"), Grant("lead", "sepsis"))
    session = Person("0a", "Ada", grants, "session", "ada-1")
    assert session.acting_as("pause_study", "sepsis") == Actor(kind="session", id="ada-1", name="Ada", role="lead")
    assert session.acting_as("show_study", "stroke").role == "viewer"
    assert Person("0a", "Ada", grants).acting_as("show_study", None).id == "0a"
