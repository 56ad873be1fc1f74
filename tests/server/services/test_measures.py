"""What is counted is what stands in the database."""

from __future__ import annotations

import pytest
from sqlalchemy import update as change

from server.db.session import Database
from server.db.tables import RoundRow
from server.services.coordinator import Coordinator
from server.services.measures import Past, measure, measure_past
from tests.factories.hospital_double import update
from tests.factories.studies import FakeClock, open_study, work


@pytest.mark.quick("sqlite")
def test_an_empty_coordinator_counts_nothing(coordinator: Coordinator) -> None:
    found = measure(coordinator)
    assert (found.studies, found.rounds, found.sessions, found.idle_seconds, found.updates) == ({}, {}, {}, {}, 0)
    assert measure_past(coordinator) == Past({}, {}, {}, 0)


@pytest.mark.quick("sqlite")
def test_rounds_files_and_the_time_since_anything_happened(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_study(coordinator)
    work(coordinator)
    size = len(update())
    hospitals[0].send(1, update())
    found = measure(coordinator)
    assert found.studies == {"running": 1}
    assert found.rounds == {"collecting": 1}
    assert found.updates == size
    clock.sleep(42)
    assert measure(coordinator).idle_seconds == {"sepsis": 42}
    for hospital in hospitals[1:]:
        hospital.send(1, update())
    work(coordinator)
    found = measure(coordinator)
    past = measure_past(coordinator)
    assert past.rounds == {"released": 1}
    assert "released" not in found.rounds
    # Scrubbed: the sizes stay in the rows, the files are gone.
    assert found.updates == 0
    assert past.models > 0
    assert found.idle_seconds == {"sepsis": 0}


@pytest.mark.quick("sqlite")
def test_every_kept_update_counts_until_its_round_is_scrubbed(coordinator: Coordinator, database: Database) -> None:
    hospitals = open_study(coordinator)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    unscrubbed = change(RoundRow).values(scrubbed_at=None, written_by="test")
    database.write("test", lambda tx: tx.session.execute(unscrubbed) and None)
    assert measure(coordinator).updates == 3 * len(update())
