"""Questions by hospital at the coordinator: the roster in the document, who is asked, whose numbers are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.queries import ask
from server.services.studies import lifecycle
from study_protocol.study.messages import StudyCreate
from study_protocol.study.queries import Consent, Query, QueryDocument
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.asked_studies import STUDY, consented, document, open_asked, shown
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock, work

# On both databases in the whole suite.
pytestmark = pytest.mark.quick("sqlite")


def by_hospital(**question: Any) -> QueryDocument:
    return document(by="hospital", **question)


def send(hospital: Hospital, query: Query, patients: int) -> None:
    """The hospital's number of patients in its own block, without noise."""
    question = query.document.question
    assert query.round is not None
    total = question.placed(np.array([patients], np.int64) * round(1 / question.grid().spacing), hospital.name)
    hospital.send(query.round, encode({ANSWER_TENSOR: total.astype(np.float64)}))


def rows(query: Query) -> list[tuple[Any, ...]]:
    assert query.answered is not None
    (table,) = [one for one in query.answered.published.answer.tables if one.name == "count-by-hospital"]
    return [(row[0], row[1], row[2]) for row in table.rows]


def test_the_members_are_filled_in_and_the_same_question_is_one(coordinator: Coordinator) -> None:
    open_asked(coordinator)
    first = ask.ask(coordinator, STUDY, by_hospital())
    assert first.body.document.question.hospitals_asked == ("h0", "h1", "h2")
    again = ask.ask(coordinator, STUDY, by_hospital())
    named = ask.ask(coordinator, STUDY, by_hospital(hospitals=["h0", "h1", "h2"]))
    assert [one.body.number for one in (first, again, named)] == [1, 1, 1]
    assert [again.created, named.created] == [False, False]
    # The pooled question is another one.
    assert ask.ask(coordinator, STUDY, document()).body.number == 2


def test_a_forecast_counts_a_block_for_each_member(coordinator: Coordinator) -> None:
    open_asked(coordinator)
    pooled, forecast = ask.forecast(coordinator, STUDY, document()), ask.forecast(coordinator, STUDY, by_hospital())
    assert (pooled.cells, forecast.cells) == (1, 3)
    assert (forecast.sensitivity, forecast.noise_std) == (pooled.sensitivity, pooled.noise_std)
    assert forecast.limits == pooled.limits


def test_it_needs_enough_members_and_names_no_others(coordinator: Coordinator) -> None:
    lifecycle.create(coordinator, StudyCreate(study=STUDY, settings=statistics_settings(masked=False)))
    Hospital(UseCases(coordinator), STUDY, "h0").enrol()
    with pytest.raises(Rejected, match="1 hospitals have joined, and a round needs 2") as refused:
        ask.ask(coordinator, STUDY, by_hospital())
    assert refused.value.code == "invalid-request"
    Hospital(UseCases(coordinator), STUDY, "h1").enrol()
    for names in (["h0"], ["h0", "h1", "h7"]):
        with pytest.raises(Rejected, match="not the members of this study now"):
            ask.ask(coordinator, STUDY, by_hospital(hospitals=names))


def test_so_many_cells_as_a_study_allows_are_those_of_all_blocks(coordinator: Coordinator) -> None:
    open_asked(coordinator, max_cells=14)
    table = {"kind": "table", "variables": [{"column": "age", "edges": [40, 60, 80]}]}
    assert ask.ask(coordinator, STUDY, document(**table)).body.number == 1
    with pytest.raises(Rejected, match="15 cells, and a query of this study has at most 14"):
        ask.ask(coordinator, STUDY, by_hospital(**table))


def test_every_hospital_has_its_number_and_one_that_refuses_has_none(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator)
    number = ask.ask(coordinator, STUDY, by_hospital()).body.number
    for hospital, allowed in zip(hospitals, (True, True, False), strict=True):
        code = "" if allowed else "policy-by-hospital"
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=allowed, code=code))
    work(coordinator)
    for hospital, patients in zip(hospitals[:2], (300, 40), strict=True):
        send(hospital, shown(coordinator), patients)
    work(coordinator)
    found = shown(coordinator)
    assert found.state == "answered"
    assert rows(found) == [
        ("h0", "patients", pytest.approx(300.0)),
        ("h1", "patients", pytest.approx(40.0)),
        ("h2", "no answer", None),
    ]
    assert found.answered is not None
    assert any("h2: no answer" in note for note in found.answered.published.answer.notes)


def test_one_that_is_silent_has_no_number_and_is_not_zero(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, by_hospital())
    for hospital in hospitals[1:]:
        send(hospital, query, 70)
    clock.sleep(61.0)
    work(coordinator)
    assert rows(shown(coordinator))[-1] == ("h0", "no answer", None)


def test_a_member_without_a_block_is_not_asked(coordinator: Coordinator) -> None:
    """It came after the question: nobody has agreed to numbers of its own there."""
    hospitals = open_asked(coordinator)
    number = ask.ask(coordinator, STUDY, by_hospital()).body.number
    late = Hospital(UseCases(coordinator), STUDY, "h9").enrol()
    for hospital in (*hospitals, late):
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=True))
    work(coordinator)
    for hospital in hospitals:
        send(hospital, shown(coordinator), 70)
    work(coordinator)
    assert [row[0] for row in rows(shown(coordinator))] == ["h0", "h1", "h2"]
    # Asked again by all members now, it is another question with a cost of its own.
    assert ask.ask(coordinator, STUDY, by_hospital()).body.number == 2


def test_a_member_without_a_block_decides_nothing(coordinator: Coordinator, clock: FakeClock) -> None:
    """Two of three are needed. The consent of one that came later is none of them, and nobody waits for its word."""
    hospitals = open_asked(coordinator)
    number = ask.ask(coordinator, STUDY, by_hospital()).body.number
    late = Hospital(UseCases(coordinator), STUDY, "h9").enrol()
    for hospital in (hospitals[0], late):
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=True))
    clock.sleep(61.0)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).allowed) == ("waiting", 1)
    for hospital in hospitals[1:]:
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=False, code="policy-by-hospital"))
    assert shown(coordinator).state == "failed"


def test_an_older_study_takes_no_such_question(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in ("ALL_QUESTIONS", "NAMED_PEOPLE"):
        monkeypatch.setattr(f"study_protocol.versions.{number}", 3)
    open_asked(coordinator)
    with pytest.raises(Rejected, match="needs number 4 of the protocol, and this study was created with number 3"):
        ask.ask(coordinator, STUDY, by_hospital())
