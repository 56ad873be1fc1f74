"""A question that hospitals have not decided keeps its cost, from training and from other questions, until it fails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting.budget.budget import Budget, replay
from server.db.ledger_store import entries
from server.db.query_tables import QueryRow
from server.db.rows import find_study
from server.db.session import Transaction
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.queries import ask, show
from server.services.studies import lifecycle
from server.worker import seconds_left
from study_protocol.study.messages import StudyCreate
from study_protocol.study.queries import Consent, QueryDocument
from study_protocol.study.reasons import QUESTIONS_FIRST, UNDECIDED
from study_protocol.study.settings import StudySettings
from study_protocol.study.synthesis import Synthesis
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.settings import limit, settings_json
from tests.factories.studies import FakeClock, put_model, work

# ε of one question is near 1, that of a round of training near 0.5: ten rounds would use all.
STATISTICS = {"max_queries": 20, "max_cells": 100, "decision_deadline_seconds": 3600.0}
PRIVACY = {
    "limits": [limit("instance", epsilon=3.0) | {"enforcement": "gaussian-filter"}],
    "sampling_rate": 1.0,
    "noise_multiplier": 4.0,
    "max_steps": 40,
}


def question(noise: float = 4.0, **entries: Any) -> QueryDocument:
    return QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": noise, **entries}})


def asking(coordinator: Coordinator, **entries: Any) -> list[Hospital]:
    chosen = StudySettings.model_validate(settings_json(statistics=STATISTICS, **PRIVACY) | entries)
    lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=chosen))
    put_model(coordinator, "sepsis")
    hospitals = [Hospital(UseCases(coordinator), "sepsis", f"h{i}").enrol() for i in range(3)]
    lifecycle.act(coordinator, "sepsis", "start-asking")
    return hospitals


def sums(cells: int, value: float = 100.0 * 2**18) -> bytes:
    return encode({ANSWER_TENSOR: np.full(cells, value)})


def asked(coordinator: Coordinator, document: QueryDocument) -> int:
    return ask.ask(coordinator, "sepsis", document).body.number


def agree(coordinator: Coordinator, hospitals: list[Hospital], number: int) -> None:
    for hospital in hospitals:
        ask.consent(coordinator, "sepsis", number, hospital.name, Consent(allowed=True))


def answer(coordinator: Coordinator, hospitals: list[Hospital], number: int, value: float = 100.0 * 2**18) -> None:
    """All say yes, the round begins, all send, and the answer is there."""
    agree(coordinator, hospitals, number)
    work(coordinator)
    round_number = show.show_query(coordinator, "sepsis", number, with_clients=True).round
    assert round_number is not None
    cells = show.show_query(coordinator, "sepsis", number, with_clients=True).document.question.cells
    for hospital in hospitals:
        hospital.send(round_number, sums(cells, value))
    work(coordinator)


def state(coordinator: Coordinator, number: int) -> tuple[str, str | None]:
    query = show.show_query(coordinator, "sepsis", number, with_clients=True)
    return query.state, query.reason


def rounds(coordinator: Coordinator, hospitals: list[Hospital], most: int = 100) -> int:
    """Train until nothing begins any more, and return how many rounds that were."""
    for done in range(most):
        work(coordinator)
        if hospitals[0].assignment() is None:
            return done
        number = views.list_rounds(coordinator, "sepsis", with_clients=False).rounds[-1].round
        for hospital in hospitals:
            hospital.send(number, update(0.0))
    raise AssertionError("it trains for ever")


@pytest.mark.slow
def test_questions_are_answered_before_between_in_a_pause_and_after(coordinator: Coordinator) -> None:
    hospitals = asking(coordinator)
    work(coordinator)
    shown = lifecycle.show(coordinator, "sepsis")
    assert (shown.state, shown.pause_reason and shown.pause_reason.code) == ("paused", QUESTIONS_FIRST)
    assert hospitals[0].assignment() is None
    first = asked(coordinator, question(6.0))
    answer(coordinator, hospitals, first)
    assert state(coordinator, first) == ("answered", None)
    # After it no round of training begins.
    assert hospitals[0].assignment() is None
    last = asked(coordinator, question(6.0, title="after training"))
    lifecycle.act(coordinator, "sepsis", "train")
    work(coordinator)
    assert hospitals[0].assignment() is not None
    lifecycle.act(coordinator, "sepsis", "pause")
    for hospital in hospitals:
        hospital.send(2, update(0.0))
    work(coordinator)
    paused = asked(coordinator, question(6.0, title="paused"))
    answer(coordinator, hospitals, paused)
    assert state(coordinator, paused) == ("answered", None)
    assert lifecycle.show(coordinator, "sepsis").state == "paused"
    lifecycle.act(coordinator, "sepsis", "resume")
    assert rounds(coordinator, hospitals) > 0
    # Training has used all but what is kept for the last question.
    assert lifecycle.show(coordinator, "sepsis").state == "running"
    answer(coordinator, hospitals, last)
    assert state(coordinator, last) == ("answered", None)
    replayed = replayed_budget(coordinator)
    assert replayed.accounts[0].epsilon() <= 3.0
    assert not replayed.authorise().is_allowed


def replayed_budget(coordinator: Coordinator) -> Budget:
    return replay(coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "sepsis").id, 0, 10_000)))


def trained_beside(
    coordinator: Coordinator, *documents: QueryDocument, **entries: Any
) -> tuple[list[Hospital], list[int], int]:
    hospitals = asking(coordinator, **entries)
    numbers = [asked(coordinator, document) for document in documents]
    lifecycle.act(coordinator, "sepsis", "train")
    return hospitals, numbers, rounds(coordinator, hospitals)


@pytest.mark.slow
def test_what_is_kept_costs_training_its_rounds_and_comes_back(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals, (first, second), trained = trained_beside(coordinator, question(), question(title="another"))
    assert trained == rounds_beside(2)
    agree(coordinator, hospitals, first)
    # A worker that dies and one that follows find the same.
    work(coordinator)
    assert state(coordinator, first)[0] == "asked"
    for hospital in hospitals:
        hospital.send(trained + 1, sums(1))
    work(coordinator)
    assert state(coordinator, first) == ("answered", None)
    # The place of the second is still kept.
    assert rounds(coordinator, hospitals) == 0
    clock.sleep(3601.0)
    work(coordinator)
    assert state(coordinator, second) == ("failed", UNDECIDED)
    assert rounds(coordinator, hospitals) == rounds_beside(1) - trained
    # Asked again it is refused before a hospital looks at it, and no training took it away meanwhile.
    with pytest.raises(Rejected, match="could pass a limit"):
        asked(coordinator, question(title="another"))


@pytest.mark.slow
def test_a_synthesis_that_ends_gives_training_what_it_does_not_need(coordinator: Coordinator) -> None:
    """No answer says that there are patients, so the first question is asked twice."""
    columns = [{"column": "age", "edges": [50.0]}, {"column": "ill", "categories": ["0", "1"]}]
    entry = {"columns": columns, "outcome": "ill", "allowance": 0.2, "shares": [10, 20, 20]}
    hospitals, (first,), trained = trained_beside(
        coordinator, Synthesis.model_validate(entry).first_question(), synthesis=entry
    )
    assert trained < rounds_beside(0)
    # Nothing that is kept is trained away meanwhile.
    assert rounds(coordinator, hospitals) == 0
    answer(coordinator, hospitals, first, value=0.0)
    # Half of the allowance is in no share, and no third question is asked.
    assert rounds(coordinator, hospitals) == 1
    answer(coordinator, hospitals, first + 1, value=0.0)
    assert (state(coordinator, first), state(coordinator, first + 1)) == (("answered", None),) * 2
    assert replayed_budget(coordinator).accounts[0].epsilon() <= 3.0


@pytest.mark.quick("sqlite")
def test_questions_keep_their_place_from_each_other_and_time_frees_it(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    asking(coordinator)
    kept = rounds_beside(0) // 4
    for number in range(1, kept + 1):
        assert asked(coordinator, question(2.0, title=f"question {number}")) == number
    overspends = question(2.0, title="one more")
    forecast = ask.forecast(coordinator, "sepsis", overspends)
    assert (forecast.allowed, forecast.reason) == (False, "budget-exhausted")
    with pytest.raises(Rejected, match=f"with {kept} that hospitals have not decided") as refused:
        asked(coordinator, overspends)
    assert refused.value.extra["least_noise_multiplier"] == forecast.least_noise_multiplier
    # Its own cost is kept for it: asking again, or looking at it, finds no second one.
    assert asked(coordinator, question(2.0, title="question 1")) == 1
    assert ask.forecast(coordinator, "sepsis", question(2.0, title="question 1")).allowed
    assert coordinator.database.read("look", lambda tx: seconds_left(tx, "nobody")) == 3600.0
    clock.sleep(3599.0)
    work(coordinator)
    assert state(coordinator, 1) == ("waiting", None)
    clock.sleep(1.0)
    work(coordinator)
    assert [state(coordinator, number) for number in (1, kept)] == [("failed", UNDECIDED)] * 2
    assert asked(coordinator, overspends) == kept + 1
    # A failed one is asked anew, for the whole time.
    assert asked(coordinator, question(2.0, title="question 1")) == 1
    clock.sleep(3599.0)
    work(coordinator)
    assert state(coordinator, 1) == ("waiting", None)


@pytest.mark.quick("sqlite")
def test_a_question_that_is_decided_does_not_expire(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = asking(coordinator)
    number = asked(coordinator, question())
    agree(coordinator, hospitals, number)
    clock.sleep(4000.0)
    work(coordinator)
    assert state(coordinator, number)[0] == "asked"


@pytest.mark.quick("sqlite")
def test_a_question_that_keeps_nothing_waits_for_what_others_keep(coordinator: Coordinator, clock: FakeClock) -> None:
    """As those of an older database, and scheduled evaluations: it takes nothing from others, and is not lost."""
    hospitals = asking(coordinator)
    old = asked(coordinator, question(2.0))

    def keep_nothing(tx: Transaction) -> None:
        tx.session.get_one(QueryRow, (find_study(tx, "sepsis").id, old)).reserved_until = None

    coordinator.database.write("keep-nothing", keep_nothing)
    kept = [asked(coordinator, question(2.0, title=f"question {n}")) for n in range(rounds_beside(0) // 4)]
    agree(coordinator, hospitals, old)
    work(coordinator)
    assert state(coordinator, old) == ("waiting", None)
    answer(coordinator, hospitals, kept[0])
    assert state(coordinator, kept[0]) == ("answered", None)
    clock.sleep(3601.0)
    work(coordinator)
    assert [state(coordinator, old)[0], state(coordinator, kept[1])[0]] == ["asked", "failed"]


@pytest.mark.slow
def test_a_round_under_way_counts_at_its_most_before_a_question_is_taken(coordinator: Coordinator) -> None:
    """Otherwise the question would fail when the round is charged."""
    hospitals = asking(coordinator)
    for number in range(1, rounds_beside(0)):
        asked(coordinator, question(title=f"question {number}"))
    lifecycle.act(coordinator, "sepsis", "train")
    work(coordinator)
    assert hospitals[0].assignment() is not None
    with pytest.raises(Rejected, match="could pass a limit"):
        asked(coordinator, question(title="one more"))


def rounds_beside(questions: int) -> int:
    """Each charge is 1/16 of a squared mean, and δ of the Gaussian mechanism has a closed form (Dong et al. 2022)."""

    def delta(charges: int, epsilon: float = 3.0) -> float:
        mean = math.sqrt(charges / 16)
        return cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * cdf(-mean / 2 - epsilon / mean)

    return next(count for count in range(1, 100) if delta(count + 1) > 1e-5) - questions


def cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
