"""Rows as messages: rounds in pages, the roster, the budget, models."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from tests.factories.hospital_double import update
from tests.factories.studies import open_study, work


@pytest.mark.quick("sqlite")
def test_rounds_are_listed_in_pages(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, max_steps=3)
    for number in (1, 2, 3):
        work(coordinator)
        for hospital in hospitals:
            hospital.send(number, update())
    work(coordinator)
    page = views.list_rounds(coordinator, "sepsis", with_clients=False, limit=2)
    assert ([view.round for view in page.rounds], page.next) == ([1, 2], 2)
    rest = views.list_rounds(coordinator, "sepsis", with_clients=True, after=2)
    assert ([view.model_version for view in rest.rounds], rest.next) == ([3], None)
    assert rest.rounds[0].clients is not None
    with pytest.raises(Rejected, match="round-unknown"):
        views.show_round(coordinator, "sepsis", 4, with_clients=False)
