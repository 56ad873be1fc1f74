"""The context of the use cases: two processes on one database are equal, and each has its own memory."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from server.db.session_states import States
from server.services import views
from server.services.coordinator import Coordinator
from tests.factories.studies import open_study

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_what_a_process_remembers_is_no_part_of_what_it_is(coordinator: Coordinator) -> None:
    other = replace(coordinator, sessions=States(), assignments={}, statements={}, reports={}, pages={}, walks={})
    open_study(coordinator, clients=2)
    views.read_budget(coordinator, "sepsis")
    assert list(coordinator.statements) == ["sepsis"]
    assert other.statements == {}
    assert other == coordinator
    # Nor of what is logged of it.
    assert "sepsis" not in repr(coordinator)
    assert replace(coordinator, origin="https://other.example.org") != coordinator


def test_no_two_have_one_memory_by_default(coordinator: Coordinator) -> None:
    parts = (coordinator.database, coordinator.blobs, coordinator.coins, coordinator.noise, coordinator.signer)
    one, two = (Coordinator(*parts, origin="https://study.example.org") for _ in range(2))
    for name in ("statements", "reports", "assignments", "pages", "certified", "walks", "sessions"):
        assert getattr(one, name) is not getattr(two, name), name


def test_its_parts_stay(coordinator: Coordinator) -> None:
    with pytest.raises(FrozenInstanceError):
        coordinator.origin = "https://other.example.org"  # type: ignore[misc]
