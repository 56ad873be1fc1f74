"""Rounds that keep failing pause their study, and a person resumes it; nothing that was charged is lost."""

from __future__ import annotations

import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from server.domain.errors import Rejected
from server.services import events, views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from study_protocol.study.messages import StudyCreate
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.settings import settings
from tests.factories.studies import FakeClock, open_study, put_model, work


def silent_round(coordinator: Coordinator, clock: FakeClock) -> None:
    """One round in which nobody answers, and the pause behind it."""
    work(coordinator)
    clock.sleep(600)
    work(coordinator)
    clock.sleep(60)


def state_of(coordinator: Coordinator) -> tuple[str, str | None, int]:
    shown = lifecycle.show(coordinator, "sepsis")
    return shown.state, None if shown.pause_reason is None else shown.pause_reason.code, shown.rounds


@pytest.mark.quick("sqlite")
def test_three_rounds_abandoned_for_one_reason_pause_the_study(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    silent_round(coordinator, clock)
    silent_round(coordinator, clock)
    assert state_of(coordinator) == ("running", None, 2)
    silent_round(coordinator, clock)
    assert state_of(coordinator) == ("paused", "too-few-clients", 3)
    clock.sleep(86400)
    work(coordinator)
    assert state_of(coordinator) == ("paused", "too-few-clients", 3)


@pytest.mark.quick("sqlite")
def test_the_reason_names_the_setting_to_whoever_reads(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    for _ in range(3):
        silent_round(coordinator, clock)
    shown, stated = lifecycle.show(coordinator, "sepsis"), views.read_budget(coordinator, "sepsis")
    assert shown.pause_reason == stated.pause_reason
    assert shown.pause_reason is not None
    assert "schedule.min_clients" in shown.pause_reason.detail
    assert (stated.state, stated.can_continue) == ("paused", True)
    assert [event.kind for event in events.since(coordinator, "sepsis")][-1] == "study-paused"


@pytest.mark.quick("sqlite")
def test_the_pause_is_one_with_the_third_round(coordinator: Coordinator, clock: FakeClock) -> None:
    """Two workers: the second finds nothing to do, whatever it has seen before."""
    open_study(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    work(coordinator)
    other = Worker(coordinator)
    clock.sleep(600)
    work(coordinator)
    written = {event.at for event in events.since(coordinator, "sepsis")[-2:]}
    assert state_of(coordinator) == ("paused", "too-few-clients", 3)
    assert len(written) == 1
    clock.sleep(60)
    while other.step():
        pass
    assert state_of(coordinator)[2] == 3


@pytest.mark.quick("sqlite")
def test_resuming_counts_afresh(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    for _ in range(3):
        silent_round(coordinator, clock)
    assert lifecycle.act(coordinator, "sepsis", "resume").pause_reason is None
    for _ in range(2):
        silent_round(coordinator, clock)
    assert state_of(coordinator) == ("running", None, 5)
    silent_round(coordinator, clock)
    assert state_of(coordinator) == ("paused", "too-few-clients", 6)


@pytest.mark.quick("sqlite")
def test_a_release_in_between_counts_afresh(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_study(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(3, update(0.1))
    work(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    assert state_of(coordinator) == ("running", None, 5)


@pytest.mark.quick("sqlite")
def test_no_charge_is_lost_in_a_pause(coordinator: Coordinator, clock: FakeClock) -> None:
    """One hospital of two that are needed sends in each round: each is charged in full, also the third."""
    hospitals = open_study(coordinator)
    for number in (1, 2, 3):
        work(coordinator)
        hospitals[0].send(number, update(0.1))
        silent_round(coordinator, clock)
    assert state_of(coordinator)[:2] == ("paused", "too-few-clients")
    entries = ledger_page(coordinator, "sepsis").entries
    assert [entry.kind for entry in entries if entry.kind not in ("opened", "roster", "released")] == [
        "reserved", "charged-in-full",
    ] * 3  # fmt: skip
    replayed = replay(Entry.from_dict(entry.model_dump()) for entry in entries)
    assert replayed.charged_rounds == 3
    assert [limit.spent for limit in views.read_budget(coordinator, "sepsis").limits] == [
        limit["spent"] for limit in replayed.statements()
    ]


@pytest.mark.quick("sqlite")
def test_a_pause_by_hand_says_so_and_is_not_overwritten(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    for _ in range(2):
        silent_round(coordinator, clock)
    work(coordinator)
    paused = lifecycle.act(coordinator, "sepsis", "pause")
    since = paused.state_since
    clock.sleep(600)
    work(coordinator)
    shown = lifecycle.show(coordinator, "sepsis")
    assert shown.pause_reason is not None
    assert (shown.pause_reason.code, shown.state_since, shown.rounds) == ("operator", since, 3)


def test_a_start_needs_as_many_hospitals_as_a_round(coordinator: Coordinator) -> None:
    lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=settings()))
    put_model(coordinator, "sepsis")
    Hospital(UseCases(coordinator), "sepsis", "h0").enrol()
    with pytest.raises(Rejected, match="1 of at least 2 hospitals") as refused:
        lifecycle.act(coordinator, "sepsis", "start")
    assert (refused.value.code, refused.value.extra) == ("too-few-enrolled", {"enrolled": 1, "min_clients": 2})
    assert lifecycle.show(coordinator, "sepsis").state == "enrolling"
    Hospital(UseCases(coordinator), "sepsis", "h1").enrol()
    assert lifecycle.act(coordinator, "sepsis", "start").state == "running"


def test_the_counts_that_everybody_may_see(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_study(coordinator)
    UseCases(coordinator).invite("sepsis", "late")
    shown = lifecycle.show(coordinator, "sepsis")
    assert (shown.clients, shown.invited, shown.under_way) == (3, 4, None)
    work(coordinator)
    hospitals[0].send(1, update(0.1))
    hospitals[1].refuse(1)
    now = lifecycle.show(coordinator, "sepsis").under_way
    assert now is not None
    assert (now.round, now.asked, now.present) == (1, 3, 2)
    enrolment.revoke(coordinator, "sepsis", "h2")
    clock.sleep(8 * 86400)
    shown = lifecycle.show(coordinator, "sepsis")
    assert (shown.clients, shown.invited) == (2, 2)


def test_a_study_that_never_began_can_be_deleted(coordinator: Coordinator) -> None:
    lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=settings()))
    put_model(coordinator, "sepsis")
    Hospital(UseCases(coordinator), "sepsis", "h0").enrol()
    token = UseCases(coordinator).invite("sepsis", "h1")
    for _ in range(2):
        lifecycle.delete(coordinator, "sepsis")
    assert lifecycle.list_studies(coordinator).studies == []
    shown = lifecycle.show(coordinator, "sepsis")
    assert (shown.state, shown.stop_reason) == ("finished", "deleted")
    assert [entry.kind for entry in ledger_page(coordinator, "sepsis").entries][-1] == "finished"
    with pytest.raises(Rejected, match="study-finished"):
        UseCases(coordinator).enrol(Hospital(UseCases(coordinator), "sepsis", "h1").enrolment(token))
    with pytest.raises(Rejected, match="was deleted"):
        lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=settings()))


@pytest.mark.quick("sqlite-None")
@pytest.mark.parametrize("end", [None, "pause", "stop"])
def test_a_study_that_was_started_cannot_be_deleted(coordinator: Coordinator, end: lifecycle.Action | None) -> None:
    open_study(coordinator)
    if end is not None:
        lifecycle.act(coordinator, "sepsis", end)
    with pytest.raises(Rejected) as refused:
        lifecycle.delete(coordinator, "sepsis")
    assert refused.value.code == ("study-finished" if end == "stop" else "study-begun")
    assert "only a study that was never started can be deleted" in str(refused.value)
