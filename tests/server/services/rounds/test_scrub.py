"""What a round leaves behind: no update, and the hash of each."""

from __future__ import annotations

import pytest

from server.db.blobs import update_of
from server.services import views
from server.services.coordinator import Coordinator
from tests.factories.clear_rounds import collecting, shown
from tests.factories.hospital_double import update
from tests.factories.studies import work


@pytest.mark.quick("sqlite")
def test_after_the_release_the_updates_are_gone_and_their_hashes_are_not(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    digests = [hospital.send(1, update(0.1 * i)).body.sha256 for i, hospital in enumerate(hospitals)]
    assert coordinator.blobs.has(update_of("sepsis", 1, "h0"), digests[0])
    work(coordinator)
    assert coordinator.blobs.folders("rounds/sepsis") == []
    assert [client.sha256 for client in shown(coordinator).clients or []] == digests
    assert views.show_round(coordinator, "sepsis", 1, with_clients=False).clients is None
