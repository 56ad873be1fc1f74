"""The keys that sign for clients, as they are stored now."""

from __future__ import annotations

import pytest

from server.services.coordinator import Coordinator
from server.services.identities import MemberIdentity, identify
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.studies import open_study


def member(coordinator: Coordinator, study: str, client: str) -> MemberIdentity | None:
    (found,) = identify(coordinator, [(study, client)])
    assert not isinstance(found, Exception)
    return found


@pytest.fixture
def hospitals(coordinator: Coordinator) -> list[Hospital]:
    return open_study(coordinator, clients=2)


@pytest.mark.quick("sqlite")
def test_members_are_known_by_study_and_name_alone_or_together(
    coordinator: Coordinator, hospitals: list[Hospital]
) -> None:
    asked = [("sepsis", hospital.name) for hospital in hospitals]
    asked += [("sepsis", "nobody"), ("none", hospitals[0].name), ("sepsis", "\0")]
    alone = [member(coordinator, *one) for one in asked]
    assert [known is not None for known in alone] == [True, True, False, False, False]
    assert identify(coordinator, asked) == alone


@pytest.mark.quick("sqlite")
def test_who_signs_for_a_client(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    known = member(coordinator, "sepsis", "h0")
    assert known is not None
    assert (known.public_key, known.state) == (hospitals[0].public_key, "active")
    UseCases(coordinator).invite("sepsis", "h9")
    for study, client in (("nowhere", "h0"), ("sepsis", "h9"), ("sepsis", "h8"), ("", ""), ("sep\0sis", "h\0")):
        assert member(coordinator, study, client) is None
