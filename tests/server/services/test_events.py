"""The events of a study: numbered without gaps, and cheap to look at."""

from __future__ import annotations

import pytest

from server.services import events
from server.services.coordinator import Coordinator
from server.services.studies import lifecycle
from study_protocol.study.messages import StudyCreate
from tests.factories.hospital_double import update
from tests.factories.settings import settings
from tests.factories.studies import open_study, work


def created(coordinator: Coordinator, name: str = "sepsis", **options: object) -> StudyCreate:
    request = StudyCreate(study=name, settings=settings(**options))  # type: ignore[arg-type]
    lifecycle.create(coordinator, request)
    return request


@pytest.mark.quick("sqlite")
def test_events_are_numbered_without_gaps_and_marks_are_the_newest(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, max_steps=1)
    created(coordinator, "other")
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    reported = events.since(coordinator, "sepsis")
    assert [event.id for event in reported] == list(range(1, len(reported) + 1))
    assert [event.kind for event in reported] == [
        "study-created",
        "study-enrolling",
        *["client-enrolled"] * 3,
        "study-running",
        "round-opened",
        "round-settled",
        "round-released",
        "study-finished",
    ]
    assert events.marks(coordinator, ["sepsis", "other", "nowhere"]) == {"sepsis": len(reported), "other": 1}
    assert [event.id for event in events.since(coordinator, "sepsis", after=8, limit=1)] == [9]
