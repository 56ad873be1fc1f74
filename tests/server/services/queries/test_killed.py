"""A query in the clear whose coordinator dies at every point of receiving an answer, and of giving an answer up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accounting.budget.budget import replay
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.queries import ask
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
from tests.factories.dying import Killed, dying_at
from tests.factories.studies import FakeClock, work

RECEIVING = [
    *("api.before-begin-commit", "api.after-begin-commit"),
    *("api.before-update-file", "api.after-update-file", "api.after-update-commit"),
]
ABANDONING = ["worker.before-abandon", "worker.after-abandon"]
PAST_THE_LEASE = 6.0


def dies(point: str, step: Callable[[], object]) -> None:
    with dying_at(point) as death, pytest.raises(Killed):
        step()
    assert death.hit


@pytest.mark.quick("sqlite-api.before-begin-commit")
@pytest.mark.parametrize("point", RECEIVING)
def test_an_answer_that_is_sent_again_counts_once(coordinator: Coordinator, point: str) -> None:
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    dies(point, lambda: send(hospitals[0], query))
    for hospital in hospitals:
        send(hospital, query)
    work(coordinator)
    answered = shown(coordinator).answered
    assert answered is not None
    assert answered.published.hospitals == 3
    # Each said 100, which another count of the first hospital's would make 400.
    assert answered.published.answer.tables[0].rows[0][0] == pytest.approx(300.0)
    assert kinds(coordinator) == ["asked", "settled"]


@pytest.mark.quick("sqlite-api.before-begin-commit")
@pytest.mark.parametrize("point", RECEIVING)
def test_an_answer_that_never_comes_again_is_charged_if_anybody_may_have_seen_it(
    coordinator: Coordinator, clock: FakeClock, point: str
) -> None:
    """Noted before the first octet is read; what died before that has seen nothing."""
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    dies(point, lambda: send(hospitals[0], query))
    clock.sleep(61.0)
    work(coordinator)
    assert shown(coordinator).state == "failed"
    ended = "cancelled" if point == "api.before-begin-commit" else "charged-in-full"
    assert kinds(coordinator) == ["asked", ended]


@pytest.mark.slow
@pytest.mark.parametrize("point", ABANDONING)
def test_an_answer_that_is_given_up_is_charged_once_and_never_asked_again(
    coordinator: Coordinator, clock: FakeClock, point: str
) -> None:
    hospitals = open_asked(coordinator)
    settle_and_lose(coordinator, hospitals)
    dies(point, lambda: work(coordinator))
    clock.sleep(PAST_THE_LEASE)
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("failed", "updates-lost")
    assert kinds(coordinator) == ["asked", "settled"]
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, document())
    assert refused.value.code == "query-opened"
    assert replay(ledger(coordinator)).charged_queries == 1
