"""A query that came to nothing and is asked again: every draw that anybody may have seen is charged."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sqlalchemy import text

from accounting.budget.budget import replay
from server.db.session_states import States
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.queries import ask
from server.services.studies import lifecycle
from server.worker import Worker
from study_protocol.study.queries import Consent
from tests.factories.asked_studies import (
    STUDY,
    consented,
    document,
    kinds,
    ledger,
    open_asked,
    send,
    settle_and_lose,
    shown,
)
from tests.factories.studies import FakeClock, work


def spent(coordinator: Coordinator) -> float:
    return views.read_budget(coordinator, STUDY).limits[0].spent or 0.0


def charged(coordinator: Coordinator) -> float:
    """What the ledger's charges come to. A study of queries alone states its limit from the first one on."""
    return replay(ledger(coordinator)).accounts[0].epsilon()


@pytest.mark.quick("sqlite")
def test_nobody_sent_anything_and_nothing_is_charged(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_asked(coordinator)
    consented(coordinator, hospitals, document())
    clock.sleep(61.0)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("failed", "too-few-clients")
    assert kinds(coordinator) == ["asked", "cancelled"]
    assert spent(coordinator) == 0.0


@pytest.mark.quick("sqlite")
def test_one_answer_was_seen_and_both_draws_are_charged(coordinator: Coordinator, clock: FakeClock) -> None:
    """The coordinator has one hospital's noised numbers. With fresh ones the noise would be averaged: each costs."""
    hospitals = open_asked(coordinator)
    first = consented(coordinator, hospitals, document())
    send(hospitals[0], first)
    clock.sleep(61.0)
    work(coordinator)
    assert shown(coordinator).state == "failed"
    assert kinds(coordinator) == ["asked", "charged-in-full"]
    once, stated = charged(coordinator), spent(coordinator)
    second = consented(coordinator, hospitals, document())
    assert (second.number, second.round) == (1, 2)
    for hospital in hospitals:
        send(hospital, second)
    work(coordinator)
    assert shown(coordinator).state == "answered"
    assert kinds(coordinator) == ["asked", "charged-in-full", "asked", "settled"]
    assert replay(ledger(coordinator)).charged_queries == 2
    assert stated == spent(coordinator) >= charged(coordinator) > once > 0.0
    # From here on it is the stored answer.
    again = ask.ask(coordinator, STUDY, document())
    assert (again.created, again.body.answered) == (False, shown(coordinator).answered)
    assert replay(ledger(coordinator)).charged_queries == 2


@pytest.mark.quick("sqlite")
def test_a_pause_of_a_study_of_questions_alone_holds_them_back(coordinator: Coordinator) -> None:
    """Otherwise it would hold back nothing. A worker that finds nothing to do there must not look for ever."""
    hospitals = open_asked(coordinator)
    lifecycle.act(coordinator, STUDY, "pause")
    assert consented(coordinator, hospitals, document()).state == "waiting"
    paused = lifecycle.show(coordinator, STUDY).pause_reason
    assert paused is not None
    assert paused.detail == "The study's lead paused it. No question is asked."
    assert not Worker(coordinator).step()
    lifecycle.act(coordinator, STUDY, "resume")
    work(coordinator)
    assert shown(coordinator).state == "asked"


@pytest.mark.slow
def test_all_answers_were_seen_but_the_files_are_gone(coordinator: Coordinator, clock: FakeClock) -> None:
    """Settled, and then nothing can be published: the charge stays, and nobody is asked for another draw."""
    hospitals = open_asked(coordinator)
    settle_and_lose(coordinator, hospitals)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("failed", "updates-lost")
    assert kinds(coordinator) == ["asked", "settled"]
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, document())
    assert refused.value.code == "query-opened"
    assert "another noise_multiplier" in refused.value.detail
    # Another question is one.
    other = consented(coordinator, hospitals, document(noise_multiplier=9.0))
    assert (other.number, other.round) == (2, 2)


@pytest.mark.quick("sqlite")
def test_what_was_charged_once_may_not_fit_again(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_asked(coordinator, epsilon=1.0)
    first = consented(coordinator, hospitals, document(noise_multiplier=3.75))
    send(hospitals[0], first)
    clock.sleep(61.0)
    work(coordinator)
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, document(noise_multiplier=3.75))
    assert refused.value.code == "query-overspends"
    assert kinds(coordinator) == ["asked", "charged-in-full"]


@pytest.mark.quick("sqlite-0")
@pytest.mark.parametrize("sent", [0, 1])
def test_a_study_that_is_stopped_in_the_midst(coordinator: Coordinator, sent: int) -> None:
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    for hospital in hospitals[:sent]:
        send(hospital, query)
    lifecycle.act(coordinator, STUDY, "stop")
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("failed", "stopped")
    assert kinds(coordinator) == ["asked", "charged-in-full" if sent else "cancelled", "finished"]


@pytest.mark.quick("sqlite")
def test_a_study_that_is_stopped_between_the_charge_and_the_answer(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    for hospital in hospitals:
        send(hospital, query)
    worker = Worker(coordinator)
    while kinds(coordinator)[-1] != "settled":
        (task, *_) = worker._tasks()
        worker.perform(task)
    worker._let_go()
    lifecycle.act(coordinator, STUDY, "stop")
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).answered) == ("failed", None)
    assert kinds(coordinator) == ["asked", "settled", "finished"]


@pytest.mark.quick("sqlite")
def test_queries_that_were_let_in_together_are_weighed_again_when_their_turn_comes(coordinator: Coordinator) -> None:
    """Two that fit one by one and not together, let in before costs were kept: the second never computes."""
    hospitals = open_asked(coordinator, epsilon=1.0)
    numbers: list[int] = []
    for noise in (4.0, 4.5):
        numbers.append(ask.ask(coordinator, STUDY, document(noise_multiplier=noise)).body.number)
        with coordinator.database.engine.begin() as connection:
            connection.execute(text("UPDATE queries SET reserved_until = NULL"))
    for number in numbers:
        for hospital in hospitals:
            ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=True))
    work(coordinator)
    for hospital in hospitals:
        send(hospital, shown(coordinator, 1))
    work(coordinator)
    assert [shown(coordinator, number).state for number in numbers] == ["answered", "failed"]
    assert shown(coordinator, 2).reason == "budget-exhausted"
    assert kinds(coordinator)[:2] == ["asked", "settled"]
    assert replay(ledger(coordinator)).charged_queries == 1


@pytest.mark.slow
def test_many_ask_the_same_at_once_and_many_workers_take_it(coordinator: Coordinator) -> None:
    """Eight threads that ask, each through a process's memory of its own, and three workers: one query, one charge."""
    hospitals = open_asked(coordinator)
    asked, found, errors = document(), list[tuple[int, bool]](), list[BaseException]()
    together = threading.Barrier(8)

    def other() -> Coordinator:
        return replace(coordinator, sessions=States(), assignments={}, statements={})

    def asks() -> None:
        together.wait()
        written = ask.ask(other(), STUDY, asked)
        found.append((written.body.number, written.created))

    def works() -> None:
        worker = Worker(other())
        together.wait()
        for _ in range(20):
            worker.step()

    _at_once([asks] * 8, errors)
    assert errors == []
    assert sorted(found) == [(1, False)] * 7 + [(1, True)]
    for hospital in hospitals:
        ask.consent(coordinator, STUDY, 1, hospital.name, Consent(allowed=True))
    together = threading.Barrier(3)
    _at_once([works] * 3, errors)
    for hospital in hospitals:
        send(hospital, shown(coordinator))
    together = threading.Barrier(3)
    _at_once([works] * 3, errors)
    work(coordinator)
    assert errors == []
    assert shown(coordinator).state == "answered"
    assert kinds(coordinator) == ["asked", "settled"]


def _at_once(many: list, errors: list[BaseException]) -> None:  # type: ignore[type-arg]
    def kept(run) -> None:  # type: ignore[no-untyped-def]
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test says so
            errors.append(error)

    threads = [threading.Thread(target=kept, args=(run,)) for run in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.mark.quick("sqlite")
def test_a_form_that_the_studys_programs_cannot_read_is_refused_in_words(coordinator: Coordinator) -> None:
    """The study is as one that an earlier version created."""
    open_asked(coordinator)
    number = {"column": "age", "low": 0.0, "high": 100.0}
    centred = document(kind="moments", numbers=(number,), centred=True)
    assert ask.forecast(coordinator, STUDY, centred).sensitivity == 1.5
    with coordinator.database.engine.begin() as connection:
        connection.execute(text("UPDATE studies SET protocol = 2"))
    for use_case in (ask.forecast, ask.ask):
        with pytest.raises(Rejected, match="created with number 2: ask without it"):
            use_case(coordinator, STUDY, centred)
    plain = document(kind="moments", numbers=(number,))
    assert ask.forecast(coordinator, STUDY, plain).sensitivity == pytest.approx(3**0.5)
