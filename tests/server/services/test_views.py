"""Rows as messages: rounds in pages, the roster, the budget, models."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from server.db.blobs import models_of
from server.db.tables import ParticipantRow
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.studies import enrolment
from server.services.views import at, locate_model, read_budget, refusal_of, roster
from tests.factories.forging import forge
from tests.factories.hospital_double import update
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock, open_study, work


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


def test_times_are_said_in_seconds_since_1970() -> None:
    assert at(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert at(1_800_000_000.5) == datetime(2027, 1, 15, 8, 0, 0, 500_000, tzinfo=UTC)
    # The last second that a message can say.
    assert at(253_402_300_799.0).year == 9999


def test_a_row_without_a_code_is_no_refusal() -> None:
    assert refusal_of(ParticipantRow(refusal_detail="of nothing")) is None
    refused = refusal_of(ParticipantRow(refusal_code="own-limit"))
    assert refused is not None
    assert (refused.code, refused.detail) == ("own-limit", "")


@pytest.mark.quick("sqlite")
def test_a_masked_round_is_shown_with_the_roster_of_its_opening(coordinator: Coordinator) -> None:
    """Masking keys are checked against it, whoever has left since."""
    open_study(coordinator, clients=5, settings=settings(masked=True))
    work(coordinator)
    before = roster(coordinator, "sepsis")
    enrolment.revoke(coordinator, "sepsis", "h4")
    now, then = roster(coordinator, "sepsis"), roster(coordinator, "sepsis", 1)
    assert [member.state for member in now.members] == ["active"] * 4 + ["revoked"]
    assert [member.state for member in then.members] == ["active"] * 5
    assert then.fingerprint == before.fingerprint != now.fingerprint


@pytest.mark.quick("sqlite")
def test_a_budget_is_compared_once_for_as_long_as_its_rows_are_the_same(coordinator: Coordinator) -> None:
    open_study(coordinator, clients=2)
    first = read_budget(coordinator, "sepsis")
    assert read_budget(coordinator, "sepsis") is first
    work(coordinator)
    second = read_budget(coordinator, "sepsis")
    assert (first.round, second.round) == (0, 1)
    forge(coordinator, "UPDATE budgets SET max_steps = 99")
    with pytest.raises(Rejected) as refused:
        read_budget(coordinator, "sepsis")
    assert refused.value.extra == {"stop_reason": "database-differs"}


@pytest.mark.quick("sqlite")
def test_a_models_file_may_be_gone_although_its_row_is_there(coordinator: Coordinator) -> None:
    open_study(coordinator, clients=2)
    found = locate_model(coordinator, "sepsis", 0)
    coordinator.blobs.remove(models_of("sepsis"), found.info.sha256)
    assert locate_model(coordinator, "sepsis", 0).info == found.info
    with pytest.raises(FileNotFoundError, match="model 0 is gone: restore the blobs"):
        locate_model(coordinator, "sepsis", 0).open()
    with pytest.raises(Rejected, match="unknown-model"):
        locate_model(coordinator, "sepsis", 1)


@pytest.mark.quick("sqlite")
def test_a_plan_is_stated_with_its_steps_and_rounds_say_where_they_were(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    """One round that is settled, and one that nobody answered."""
    limits = [limit("instance", epsilon=4.0, enforcement="fixed-plan")]
    hospitals = open_study(coordinator, limits=limits, noise_multiplier=2.0, sampling_rate=0.2, max_steps=6)
    work(coordinator)
    stated = read_budget(coordinator, "sepsis").limits[0]
    assert (stated.spent, stated.running) == (0.0, None)
    whole = stated.reserved
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    clock.sleep(601.0)
    work(coordinator)
    stated = read_budget(coordinator, "sepsis").limits[0]
    assert stated.progress is not None
    assert stated.progress.model_dump() == {
        "enforcement": "fixed-plan",
        "steps": {"used": 1, "reserved": 0, "allowed": 6},
        "squares": None,
    }
    assert (stated.spent, stated.reserved) == (whole, 0.0)
    assert stated.running is not None
    assert stated.spent is not None
    assert stated.running.epsilon is not None
    assert stated.running.epsilon < stated.spent
    rounds = views.list_rounds(coordinator, "sepsis", with_clients=False).rounds
    assert [(each.state, [spent.steps for spent in each.spent or []]) for each in rounds] == [
        ("released", [1]),
        ("abandoned", [1]),
    ]
