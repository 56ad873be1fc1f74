"""Windows of later patients whose coordinator dies on the way: each is answered once, and all that are kept still fit.

It tests server.services.queries.schedule.
"""

from __future__ import annotations

import pytest

from accounting.budget.budget import replay
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.services.coordinator import Coordinator
from server.services.queries import show
from study_protocol.documents.certify import compute_account
from study_protocol.study.queries import QueryDocument
from tests.factories.dying import Killed, dying_at
from tests.factories.hospital_double import Hospital
from tests.factories.monitored_studies import monitoring
from tests.factories.studies import FakeClock, work
from tests.server.services.queries.test_reserved import agree, sums
from tests.server.services.queries.test_windows import FOUR, asks, opened, refused, state, train

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]
PAST_THE_LEASE = 10.0
BEGINNING = ("worker.before-reserve", "worker.after-reserve")
RECEIVING = ("api.before-begin-commit", "api.after-begin-commit", "api.before-update-file", "api.after-update-file")
ENDING = tuple(f"worker.{side}-{point}" for point in ("settle", "answer") for side in ("before", "after"))
POINTS = (*BEGINNING, *RECEIVING, "api.after-update-commit", *ENDING, "")
# Four windows in a study: as many as its limit has room for.
STUDIES = tuple(POINTS[first : first + 4] for first in range(0, len(POINTS), 4))


def goes_on(coordinator: Coordinator, hospitals: list[Hospital], number: int) -> None:
    """Work, let every hospital send its sum, again if it was sent, and work."""
    work(coordinator)
    query = show.show_query(coordinator, "sepsis", number, with_clients=True)
    for hospital in hospitals if query.state == "asked" else ():
        hospital.send(query.round or 0, sums(query.document.question.cells))
    work(coordinator)


@pytest.mark.parametrize("points", STUDIES, ids=lambda points: points[0].replace(".", "-"))
def test_the_coordinator_dies_in_every_window(
    coordinator: Coordinator, clock: FakeClock, points: tuple[str, ...]
) -> None:
    hospitals = opened(coordinator)
    model = train(coordinator, hospitals)
    everybody = QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 13.3}})
    for window, point in enumerate(points, 1):
        number = asks(coordinator, monitoring().document(window, model))
        agree(coordinator, hospitals, number)
        if point:
            with dying_at(point) as death, pytest.raises(Killed):
                goes_on(coordinator, hospitals, number)
            assert death.hit
            # Past the dead worker's lease.
            clock.sleep(PAST_THE_LEASE)
            # What is kept for windows to come is kept whatever has died: no other question fits.
            assert "pass a limit" in refused(coordinator, everybody)
        goes_on(coordinator, hospitals, number)
        assert state(coordinator, number) == "answered"
        assert asks(coordinator, monitoring().document(window, model)) == number
    found = coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "sepsis").id, 0, 10_000))
    budget = replay(found)
    assert budget.charged_queries == len(points)
    # ε that is stated, by the coordinator and in a certificate, is that of four questions to one patient.
    for stated in (budget.statements()[0]["spent"], compute_account(found).limits[0].spent):
        assert stated is not None
        assert FOUR <= stated <= FOUR * 1.05
    assert [each.kind for each in found if each.kind in ("asked", "cancelled", "charged-in-full")] == ["asked"] * 4
