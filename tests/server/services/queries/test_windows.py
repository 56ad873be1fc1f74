"""Windows of later patients at the coordinator: after training, when they are due, once, and with their costs kept."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.queries import ask, show
from server.services.studies import lifecycle
from study_protocol.study.messages import StudyCreate
from study_protocol.study.queries import QueryDocument
from tests.client_sdk.guard.test_monitored_charges import closed_form
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.monitored_studies import QUESTION, SECTION, monitored_study, monitoring
from tests.factories.settings import limit
from tests.factories.studies import FakeClock, put_model, work
from tests.server.services.queries.test_reserved import agree, sums

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]
# Four windows at this noise cost about as much as a classical limit of 0.55 allows.
FOUR = closed_form(math.sqrt(4 / 13.3**2))
QUIET = {"noise_multiplier": 100.0, "sampling_rate": 1.0, "max_steps": 1}


def limits(epsilon: float) -> list[dict[str, Any]]:
    return [limit("instance", epsilon=epsilon, enforcement="gaussian-filter")]


def opened(coordinator: Coordinator, section: dict[str, Any] | None = None, **options: Any) -> list[Hospital]:
    chosen = monitored_study(section, **{"limits": limits(FOUR * 1.05), **QUIET} | options)
    lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=chosen))
    put_model(coordinator, "sepsis")
    hospitals = [Hospital(UseCases(coordinator), "sepsis", f"h{place}").enrol() for place in range(3)]
    lifecycle.act(coordinator, "sepsis", "start")
    return hospitals


def train(coordinator: Coordinator, hospitals: list[Hospital]) -> int:
    """The one round of training, and the number of its model."""
    work(coordinator)
    number = views.list_rounds(coordinator, "sepsis", with_clients=False).rounds[-1].round
    for hospital in hospitals:
        hospital.send(number, update(0.0))
    work(coordinator)
    model = lifecycle.show(coordinator, "sepsis").model
    assert model is not None
    return model.version


def asks(coordinator: Coordinator, document: QueryDocument) -> int:
    return ask.ask(coordinator, "sepsis", document).body.number


def state(coordinator: Coordinator, number: int) -> str:
    return show.show_query(coordinator, "sepsis", number, with_clients=True).state


def answer(coordinator: Coordinator, hospitals: list[Hospital], number: int) -> None:
    agree(coordinator, hospitals, number)
    work(coordinator)
    query = show.show_query(coordinator, "sepsis", number, with_clients=True)
    assert query.round is not None
    for hospital in hospitals:
        hospital.send(query.round, sums(query.document.question.cells))
    work(coordinator)
    assert state(coordinator, number) == "answered"


def refused(coordinator: Coordinator, document: QueryDocument) -> str:
    with pytest.raises(Rejected) as rejected:
        ask.ask(coordinator, "sepsis", document)
    return str(rejected.value)


def test_windows_that_do_not_fit_together_open_no_study(coordinator: Coordinator) -> None:
    with pytest.raises(Rejected, match="the 4 windows could together pass a limit") as rejected:
        opened(coordinator, limits=limits(FOUR * 0.97))
    assert rejected.value.code == "whole-plan-overspends"
    opened(coordinator, limits=limits(FOUR * 1.05))


def test_the_refusal_names_the_least_noise_with_which_all_windows_fit(coordinator: Coordinator) -> None:
    def section(noise_multiplier: float) -> dict[str, Any]:
        return SECTION | {"question": QUESTION | {"noise_multiplier": noise_multiplier}}

    tight: dict[str, Any] = {"limits": limits(FOUR * 0.6)}
    with pytest.raises(Rejected, match="ask for fewer windows") as rejected:
        opened(coordinator, **tight)
    named = re.search(r"raise question\.noise_multiplier to ([\d.]+),", str(rejected.value))
    assert named is not None
    noise = float(named[1])
    with pytest.raises(Rejected, match="could together pass a limit"):
        opened(coordinator, section(noise * 0.98), **tight)
    opened(coordinator, section(noise), **tight)


def test_all_windows_are_asked_and_the_study_stays_open_for_the_last(coordinator: Coordinator) -> None:
    """The clock stands in January 2027. max_queries is four: with the last one the study has ended."""
    hospitals = opened(coordinator, statistics={"max_queries": 4, "max_cells": 100})
    document = monitoring().document(1, 1)
    assert "still trains" in refused(coordinator, document)
    model = train(coordinator, hospitals)
    assert lifecycle.show(coordinator, "sepsis").state == "running"
    for window in range(1, 5):
        assert lifecycle.show(coordinator, "sepsis").state == "running"
        number = asks(coordinator, monitoring().document(window, model))
        # The same question again is the same query.
        assert asks(coordinator, monitoring().document(window, model)) == number == window
        answer(coordinator, hospitals, number)
    work(coordinator)
    assert lifecycle.show(coordinator, "sepsis").state == "finished"


def test_other_questions_leave_the_windows_their_cost(coordinator: Coordinator) -> None:
    hospitals = opened(coordinator)
    model = train(coordinator, hospitals)
    number = asks(coordinator, monitoring().document(1, model))
    everybody = QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 13.3}})
    assert "pass a limit" in refused(coordinator, everybody)
    # Nor does one that waits lose its own.
    assert ask.forecast(coordinator, "sepsis", everybody).allowed is False
    assert ask.forecast(coordinator, "sepsis", monitoring().document(2, model)).allowed is True
    answer(coordinator, hospitals, number)
    assert "pass a limit" in refused(coordinator, everybody)
    for window in range(2, 5):
        answer(coordinator, hospitals, asks(coordinator, monitoring().document(window, model)))
    assert "pass a limit" in refused(coordinator, everybody)


def test_a_window_waits_as_long_as_the_hospitals_need(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = opened(coordinator)
    model = train(coordinator, hospitals)
    number = asks(coordinator, monitoring().document(1, model))
    clock.sleep(60 * 86_400.0)
    work(coordinator)
    assert state(coordinator, number) == "waiting"
    answer(coordinator, hospitals, number)


def test_a_window_is_asked_about_when_it_is_due(coordinator: Coordinator, clock: FakeClock) -> None:
    section = SECTION | {"first_day": "2027-01-01", "wait_days": 10}
    hospitals = opened(coordinator, section)
    model, chosen = train(coordinator, hospitals), monitoring(**section)
    assert "window 1 is asked about from 2027-04-11 on" in refused(coordinator, chosen.document(1, model))
    clock.sleep(86 * 86_400.0)
    assert asks(coordinator, chosen.document(1, model)) == 1
    assert "from 2027-07-10 on" in refused(coordinator, chosen.document(2, model))


def test_no_other_window_and_no_second_model(coordinator: Coordinator) -> None:
    hospitals = opened(coordinator)
    model = train(coordinator, hospitals)
    assert asks(coordinator, monitoring().document(1, model)) == 1
    assert "another model" in refused(coordinator, monitoring().document(1, 2))
    dumped = monitoring().document(1, model).model_dump(mode="json")
    dumped["question"]["first_record"] |= {"first_day": "2026-01-02", "end": "2026-04-02"}
    assert "not a window" in refused(coordinator, QueryDocument.model_validate(dumped))
