"""A regression in several steps: one cost, kept whole, one next step after each answer, and one end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accounting.accountants.profile import mu_from_epsilon
from accounting.budget.budget import replay
from server.db.ledger_store import budget_of
from server.db.rows import find_study
from server.db.session import Transaction
from server.domain.errors import Rejected
from server.domain.queries import min_noise_multiplier
from server.services.coordinator import Coordinator
from server.services.queries import ask, show
from server.services.queries.schedule import reserved
from server.services.studies import lifecycle
from server.worker import Worker
from study_protocol.queries.answer import NoisedSum
from study_protocol.study.queries import Query, StepPlace
from tests.factories.asked_studies import STUDY, document, kinds, ledger, open_asked, shown
from tests.factories.dying import Killed, dying_at
from tests.factories.questions import exact, patients
from tests.factories.regressions import allow, answer_step, later_steps, regression, send_sum
from tests.factories.studies import FakeClock, work

# Σ Δ²/s² of the limit, of which all steps together take 1 / 4².
WHOLE, ALL_STEPS = mu_from_epsilon(5.0, 1e-5) ** 2, 4.0**-2
ENTRIES: dict[str, Any] = {"epsilon": 5.0}
DYING = [f"worker.{side}-{point}" for point in ("reserve", "settle", "answer") for side in ("before", "after")]


def queries(coordinator: Coordinator) -> list[Query]:
    return show.list_queries(coordinator, STUDY, with_clients=True).queries


def states(coordinator: Coordinator) -> list[str]:
    return [query.state for query in queries(coordinator)]


def place(coordinator: Coordinator, number: int) -> StepPlace:
    found = shown(coordinator, number).place
    assert found is not None
    return found


def leaves(coordinator: Coordinator, squares: float) -> bool:
    """Whether this Σ Δ²/s² is what is left of the limit, beside all that is kept and charged."""

    def fits(tx: Transaction, squares: float) -> bool:
        row, cost = find_study(tx, STUDY), document(noise_multiplier=squares**-0.5).cost()
        return budget_of(tx, coordinator.signer, row).supposing(reserved(tx, row)).authorise_query(cost).is_allowed

    return coordinator.database.read("look", lambda tx: fits(tx, squares - 1e-3) and not fits(tx, squares + 1e-3))


@pytest.mark.quick("sqlite")
def test_each_answer_leads_to_the_next_step_and_all_cost_what_was_admitted(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    assert ask.ask(coordinator, STUDY, regression()).created is True
    for number in (1, 2, 3):
        assert states(coordinator) == ["answered"] * (number - 1) + ["waiting"]
        assert leaves(coordinator, WHOLE - ALL_STEPS)
        answer_step(coordinator, hospitals, number)
    assert states(coordinator) == ["answered"] * 3
    assert [query.document.step for query in queries(coordinator)] == [1, 2, 3]
    assert len({query.approved_digest for query in queries(coordinator)}) == 1
    assert kinds(coordinator) == ["asked", "settled"] * 3
    assert replay(ledger(coordinator)).charged_queries == 3
    assert leaves(coordinator, WHOLE - ALL_STEPS)
    # Asked again it is the stored answer.
    assert ask.ask(coordinator, STUDY, regression()).created is False
    assert states(coordinator) == ["answered"] * 3


def test_the_last_answer_is_that_of_all_patients_in_one_place(
    coordinator: Coordinator,
) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    asked = regression(noise_multiplier=1.0, steps=8)
    ask.ask(coordinator, STUDY, asked)
    for number in range(1, 9):
        answer_step(coordinator, hospitals, number)
    answered = shown(coordinator, 8).answered
    assert answered is not None
    assert answered.published.answer.tables[0].name == "coefficients"
    table = answered.published.answer.tables[0]
    estimates = np.array([row[table.columns.index("estimate")] for row in table.rows], np.float64)
    # All patients in one place, by as many steps.
    columns = {name: np.concatenate([patients(800, seed=seed)[name] for seed in range(3)]) for name in patients(1)}
    question = later_steps(asked, columns)[-1].question
    expected = question.answer(NoisedSum(exact(question, columns), 1e-9, 1)).tables[0]
    assert [row[:1] for row in table.rows] == [row[:1] for row in expected.rows]
    assert estimates == pytest.approx([row[1] for row in expected.rows], rel=2e-3)


def test_a_query_tells_its_place_what_is_kept_and_what_followed(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, document())
    ask.ask(coordinator, STUDY, regression())
    assert shown(coordinator, 1).place is None
    first = place(coordinator, 2)
    assert (first.step, first.steps, first.first, first.next) == (1, 3, 2, None)
    costs = regression().costs()
    assert first.kept == pytest.approx(sum(cost.noise_multiplier**-2 for cost in costs[1:]))
    assert first.words == f"Step 1 of 3. {first.kept:.3g} of Σ 1 / noise_multiplier² is kept for the steps after it."
    answer_step(coordinator, hospitals, 2)
    assert place(coordinator, 2).words == "Step 1 of 3. Query 3 followed from it."
    assert (place(coordinator, 2).next, place(coordinator, 2).kept) == (3, 0)
    answer_step(coordinator, hospitals, 3)
    last = place(coordinator, 4)
    assert (last.step, last.first, last.kept) == (3, 2, 0)
    assert last.words == "Step 3 of 3. It is the last step: its answer is the result."
    answer_step(coordinator, hospitals, 4)
    assert place(coordinator, 4).words == "Step 3 of 3. It is the last step: its answer is the result."


def test_the_forecast_states_the_cost_of_all_steps(coordinator: Coordinator) -> None:
    open_asked(coordinator, **ENTRIES)
    (limit,) = (whole := ask.forecast(coordinator, STUDY, regression())).limits
    assert (whole.sums, whole.allowed, whole.known) == (3, True, None)
    # As much as one question of the analysis' own noise multiplier.
    (alone,) = ask.forecast(coordinator, STUDY, document(noise_multiplier=4.0)).limits
    assert limit.after is not None
    assert limit.after == pytest.approx(alone.after, rel=1e-3)
    # One that does not fit names the noise that does, in the entry which a person writes.
    noisy = ask.forecast(coordinator, STUDY, regression(noise_multiplier=0.5))
    assert (noisy.allowed, noisy.reason) == (False, "budget-exhausted")
    least = noisy.least_noise_multiplier
    assert least == pytest.approx(WHOLE**-0.5, rel=2e-3)
    assert ask.forecast(coordinator, STUDY, regression(noise_multiplier=least)).allowed
    assert not ask.forecast(coordinator, STUDY, regression(noise_multiplier=(least or 0) * 0.998)).allowed
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, regression(noise_multiplier=0.5))
    assert refused.value.code == "query-overspends"
    assert f"this query and the 2 steps after it could pass a limit of the study: a noise_multiplier of {least:g}" in (
        refused.value.detail
    )


def test_steps_count_as_queries_and_too_many_are_refused(coordinator: Coordinator) -> None:
    open_asked(coordinator, max_queries=2, **ENTRIES)
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, regression())
    assert "as many queries as it may" in refused.value.detail
    assert ask.ask(coordinator, STUDY, regression(steps=2)).created


def test_the_least_noise_multiplier_of_one_step_is_unchanged_by_its_form(coordinator: Coordinator) -> None:
    open_asked(coordinator, **ENTRIES)

    def look(tx: Transaction) -> tuple[float | None, float | None]:
        budget, cost = budget_of(tx, coordinator.signer, find_study(tx, STUDY)), document().cost()
        return min_noise_multiplier(budget, cost), min_noise_multiplier(budget, cost, (cost, cost, cost))

    one, four = coordinator.database.read("look", look)
    # Four equal sums cost as much as one with half the noise: the number is that of the one.
    assert one == pytest.approx(WHOLE**-0.5, rel=2e-3)
    assert four == pytest.approx(one, rel=2e-3)


def test_a_later_step_that_no_answer_led_to_is_refused(coordinator: Coordinator) -> None:
    open_asked(coordinator, **ENTRIES)
    _, later, _ = later_steps(regression())
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, later)
    assert refused.value.code == "invalid-request"
    assert "this is step 2 of a question. Ask its first step" in refused.value.detail
    assert states(coordinator) == []


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_refused_step_keeps_nothing_and_the_first_question_goes_on_from_it(
    coordinator: Coordinator, step: int
) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    for number in range(1, step):
        answer_step(coordinator, hospitals, number)
    # Two of three are needed, so that two refusals decide.
    allow(coordinator, hospitals[:2], step, allowed=False)
    assert states(coordinator) == ["answered"] * (step - 1) + ["failed"]
    spent = sum(cost.noise_multiplier**-2 for cost in regression().costs()[: step - 1])
    assert leaves(coordinator, WHOLE - spent)
    assert "Asked again, it goes on from here" in place(coordinator, step).words
    again = ask.ask(coordinator, STUDY, regression())
    assert (again.created, again.body.number) == (False, 1)
    assert states(coordinator) == ["answered"] * (step - 1) + ["waiting"]
    assert leaves(coordinator, WHOLE - ALL_STEPS)
    for number in range(step, 4):
        answer_step(coordinator, hospitals, number)
    assert states(coordinator) == ["answered"] * 3
    assert kinds(coordinator) == ["asked", "settled"] * 3


@pytest.mark.quick("sqlite")
def test_an_expired_step_frees_the_rest_and_must_fit_again(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_asked(coordinator, decision_deadline_seconds=600.0, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    answer_step(coordinator, hospitals, 1)
    clock.sleep(601.0)
    work(coordinator)
    assert [(query.state, query.reason) for query in queries(coordinator)] == [
        ("answered", None),
        ("failed", "undecided"),
    ]
    spent = regression().cost().noise_multiplier ** -2
    assert leaves(coordinator, WHOLE - spent)
    # What is left is given to another question: the rest of the steps does not fit any more, and says so.
    ask.ask(coordinator, STUDY, document(noise_multiplier=(WHOLE - spent - 0.5 * ALL_STEPS) ** -0.5))
    forecast = ask.forecast(coordinator, STUDY, regression())
    assert (forecast.known, forecast.allowed, forecast.sums) == (1, False, 2)
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, regression())
    assert refused.value.code == "query-overspends"
    assert "this query and the 1 steps after it" in refused.value.detail


@pytest.mark.quick("sqlite")
def test_a_sum_that_was_opened_and_lost_ends_the_question_in_words(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    answer_step(coordinator, hospitals, 1)
    allow(coordinator, hospitals, 2)
    work(coordinator)
    for number, hospital in enumerate(hospitals):
        send_sum(hospital, shown(coordinator, 2), number)
    _lose_what_is_settled(coordinator)
    assert states(coordinator) == ["answered", "failed"]
    assert place(coordinator, 2).words == (
        "Step 2 of 3. Its sum was opened and the answer is lost. No other step is asked in its place, so this question "
        "ends without a result. What was kept for later questions is free again."
    )
    spent = sum(cost.noise_multiplier**-2 for cost in regression().costs()[:2])
    assert leaves(coordinator, WHOLE - spent)
    for asked in (regression(), shown(coordinator, 2).document):
        with pytest.raises(Rejected) as refused:
            ask.ask(coordinator, STUDY, asked)
        assert refused.value.code == "query-opened"
    assert kinds(coordinator) == ["asked", "settled"] * 2


def _lose_what_is_settled(coordinator: Coordinator) -> None:
    """Settle the round under way, and lose its files before its answer is made."""
    worker = Worker(coordinator)
    before = kinds(coordinator).count("settled")
    while kinds(coordinator).count("settled") == before:
        (task, *_) = worker._tasks()
        worker.perform(task)
    worker._let_go()
    for folder in coordinator.blobs.folders(f"rounds/{STUDY}"):
        coordinator.blobs.clear(folder)
    work(coordinator)


@pytest.mark.slow
def test_a_drop_out_is_charged_and_its_step_is_asked_anew(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    answer_step(coordinator, hospitals, 1)
    allow(coordinator, hospitals, 2)
    work(coordinator)
    send_sum(hospitals[0], shown(coordinator, 2))
    clock.sleep(61.0)
    work(coordinator)
    assert states(coordinator) == ["answered", "failed"]
    assert kinds(coordinator) == ["asked", "settled", "asked", "charged-in-full"]
    ask.ask(coordinator, STUDY, regression())
    for number in (2, 3):
        answer_step(coordinator, hospitals, number)
    assert states(coordinator) == ["answered"] * 3
    assert replay(ledger(coordinator)).charged_queries == 4


@pytest.mark.quick("sqlite-worker.before-answer", "sqlite-worker.after-answer")
@pytest.mark.parametrize("point", DYING)
def test_a_coordinator_that_dies_at_any_step_asks_each_next_step_once(
    coordinator: Coordinator, clock: FakeClock, point: str
) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    for number in (1, 2, 3):
        allow(coordinator, hospitals, number)
        for is_sent in (False, True):
            if is_sent:
                for at, hospital in enumerate(hospitals):
                    send_sum(hospital, shown(coordinator, number), at)
            with dying_at(point) as death:
                try:
                    work(coordinator)
                except Killed:
                    assert death.hit
            clock.sleep(6.0)
            work(coordinator)
    assert states(coordinator) == ["answered"] * 3
    assert [query.document.step for query in queries(coordinator)] == [1, 2, 3]
    assert kinds(coordinator) == ["asked", "settled"] * 3


@pytest.mark.slow
def test_two_regressions_keep_and_follow_apart(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    ask.ask(coordinator, STUDY, regression(title="another"))
    assert leaves(coordinator, WHOLE - 2 * ALL_STEPS)
    for number in range(1, 7):
        answer_step(coordinator, hospitals, number)
    assert [query.document.step for query in queries(coordinator)] == [1, 1, 2, 2, 3, 3]
    assert [place(coordinator, number).first for number in range(1, 7)] == [1, 2, 1, 2, 1, 2]
    assert leaves(coordinator, WHOLE - 2 * ALL_STEPS)


@pytest.mark.slow
def test_every_hospital_may_have_an_intercept(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    asked = ask.ask(coordinator, STUDY, regression(by_hospital=True)).body
    assert asked.document.question.hospitals_asked == ("h0", "h1", "h2")
    for number in (1, 2, 3):
        answer_step(coordinator, hospitals, number)
    answered = shown(coordinator, 3).answered
    assert answered is not None
    terms = [row[0] for row in answered.published.answer.tables[0].rows]
    assert terms[-3:] == ["intercept: h0", "intercept: h1", "intercept: h2"]
    # With its blocks left open it is the same question again.
    assert ask.ask(coordinator, STUDY, regression(by_hospital=True)).body.number == 1


@pytest.mark.slow
def test_a_finished_study_shows_what_failed_and_asks_no_more(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, regression())
    answer_step(coordinator, hospitals, 1)
    allow(coordinator, hospitals[:2], 2, allowed=False)
    lifecycle.act(coordinator, STUDY, "stop")
    again = ask.ask(coordinator, STUDY, regression())
    assert (again.created, again.body.state) == (False, "answered")
    assert again.body.place is not None
    assert again.body.place.next == 2
