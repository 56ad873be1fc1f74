"""A study that paused because hospitals were missing goes on when enough of them ask for rounds again."""

from __future__ import annotations

import pytest

from server.services import events
from server.services.coordinator import Coordinator
from server.services.studies import lifecycle
from study_protocol.study.messages import Study
from study_protocol.study.reasons import BY_OPERATOR
from tests.factories.hospital_double import Hospital, update
from tests.factories.studies import FakeClock, open_study, work


def shown(coordinator: Coordinator) -> Study:
    return lifecycle.show(coordinator, "sepsis")


def pause_reason(coordinator: Coordinator) -> str | None:
    reason = shown(coordinator).pause_reason
    return None if reason is None else reason.code


def fail_rounds(coordinator: Coordinator, clock: FakeClock) -> None:
    """Nobody answers until the study pauses."""
    for _ in range(20):
        work(coordinator)
        if shown(coordinator).state == "paused":
            return
        clock.sleep(601.0)
    raise AssertionError("it does not pause")


def answer_with(*hospitals: Hospital) -> None:
    """The round under way, for the first of them is asked in it."""
    asked = hospitals[0].assignment()
    assert asked is not None
    for hospital in hospitals:
        hospital.send(asked.assignment.round, update(0.0))


def deserted(coordinator: Coordinator, clock: FakeClock) -> list[Hospital]:
    hospitals = open_study(coordinator, clients=3, max_steps=20)
    fail_rounds(coordinator, clock)
    assert pause_reason(coordinator) == "too-few-clients"
    return hospitals


@pytest.mark.quick("sqlite")
def test_it_resumes_when_enough_are_back_and_says_so(coordinator: Coordinator, clock: FakeClock) -> None:
    first, second, third = deserted(coordinator, clock)
    detail = shown(coordinator).pause_reason
    assert detail is not None
    assert "resumes by itself" in detail.detail
    assert first.assignment() is None
    # The same hospital again is not a second one, and one that was here long ago is not present.
    assert first.assignment() is None
    clock.sleep(91.0)
    assert second.assignment() is None
    assert shown(coordinator).state == "paused"
    assert third.assignment() is None
    resumed = shown(coordinator)
    assert (resumed.state, resumed.pause_reason) == ("running", None)
    assert resumed.resumed_at == resumed.state_since
    kinds = [event.kind for event in events.since(coordinator, "sepsis")]
    assert kinds[-2:] == ["hospitals-returned", "study-running"]
    work(coordinator)
    assert first.assignment() is not None


@pytest.mark.quick("sqlite")
def test_an_operators_pause_stays(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, clients=3)
    lifecycle.act(coordinator, "sepsis", "pause")
    for hospital in hospitals:
        hospital.assignment()
    assert pause_reason(coordinator) == BY_OPERATOR


@pytest.mark.slow
def test_an_operators_pause_ends_the_wait_for_hospitals(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = deserted(coordinator, clock)
    lifecycle.act(coordinator, "sepsis", "pause")
    for hospital in hospitals:
        hospital.assignment()
    assert pause_reason(coordinator) == BY_OPERATOR


@pytest.mark.slow
def test_it_does_not_flap(coordinator: Coordinator, clock: FakeClock) -> None:
    """Hospitals that ask for rounds and answer none: the study waits longer each time."""
    hospitals = deserted(coordinator, clock)
    resumptions = 0
    began = clock.now()
    while clock.now() - began < 6 * 3600:
        for hospital in hospitals:
            hospital.assignment()
        if shown(coordinator).state == "running":
            resumptions += 1
            fail_rounds(coordinator, clock)
        clock.sleep(60.0)
    # At once, and after 10, 20, 40 and 80 minutes, with half an hour of failing rounds after each.
    assert resumptions == 5
    # A person's resumption counts afresh.
    lifecycle.act(coordinator, "sepsis", "resume")
    fail_rounds(coordinator, clock)
    for hospital in hospitals:
        hospital.assignment()
    assert shown(coordinator).state == "running"


@pytest.mark.slow
def test_charged_rounds_are_tried_again_once(coordinator: Coordinator, clock: FakeClock) -> None:
    """In the clear one hospital's update is charged although the round fails: a person decides about more."""

    def fail(hospital: Hospital) -> None:
        for _ in range(3):
            work(coordinator)
            # A failed round is followed by a pause of seconds.
            clock.sleep(5.0)
            work(coordinator)
            answer_with(hospital)
            clock.sleep(601.0)
        work(coordinator)
        assert pause_reason(coordinator) == "too-few-clients"

    hospitals = open_study(coordinator, clients=3, max_steps=20)
    fail(hospitals[0])
    for hospital in hospitals:
        hospital.assignment()
    assert shown(coordinator).state == "running"
    fail(hospitals[0])
    clock.sleep(86_401.0)
    for hospital in hospitals:
        hospital.assignment()
    assert pause_reason(coordinator) == "too-few-clients"
    # It must not be said to resume by itself.
    detail = shown(coordinator).pause_reason
    assert detail is not None
    assert "wardround study resume" in detail.detail


@pytest.mark.slow
def test_hospitals_that_refused_are_not_back(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_study(coordinator, clients=3)
    for number in (1, 2, 3):
        work(coordinator)
        clock.sleep(5.0)
        work(coordinator)
        for hospital in hospitals[:2]:
            hospital.refuse(number)
        clock.sleep(601.0)
    work(coordinator)
    assert pause_reason(coordinator) == "too-few-clients"
    for hospital in hospitals:
        hospital.assignment()
    assert pause_reason(coordinator) == "too-few-clients"


@pytest.mark.slow
def test_a_release_counts_afresh(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = deserted(coordinator, clock)
    for _ in range(2):
        for hospital in hospitals:
            hospital.assignment()
        work(coordinator)
        answer_with(*hospitals)
        fail_rounds(coordinator, clock)
    for hospital in hospitals:
        hospital.assignment()
    assert shown(coordinator).state == "running"
