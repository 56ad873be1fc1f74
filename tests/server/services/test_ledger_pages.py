"""The ledger in pages, each made once for as long as nothing is new."""

from __future__ import annotations

import pytest

from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from tests.factories.hospital_double import update
from tests.factories.studies import open_study, work


@pytest.mark.quick("sqlite")
def test_a_ledger_is_read_in_pages_that_hang_together(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, max_steps=2)
    for number in (1, 2):
        work(coordinator)
        for hospital in hospitals:
            hospital.send(number, update())
    work(coordinator)
    first = ledger_page(coordinator, "sepsis", limit=4)
    assert ([entry.sequence for entry in first.entries], first.next) == ([1, 2, 3, 4], 4)
    second = ledger_page(coordinator, "sepsis", after=4)
    assert ([entry.sequence for entry in second.entries], second.next) == ([*range(5, 13)], None)
    assert second.entries[0].previous == first.entries[-1].sha256
    assert second.head == first.head
    assert second.head.head.sha256 == second.entries[-1].sha256
    assert ledger_page(coordinator, "sepsis", after=12).next is None
