"""Three questions of which each follows from the answers before: one cost, kept whole, and nothing else is asked."""

from __future__ import annotations

import json

import numpy as np
import pytest

from accounting.accountants.profile import mu_from_epsilon
from accounting.budget.budget import replay
from server.db.ledger_store import budget_of
from server.db.rows import find_study
from server.db.session import Transaction
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.queries import ask, show
from server.services.queries.schedule import reserved
from server.services.studies import enrolment, lifecycle
from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.messages import StudyCreate
from study_protocol.study.queries import Consent, Query, QueryDocument
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from synthesis.rule import next_question
from tests.factories.asked_studies import (
    STUDY,
    document,
    kinds,
    ledger,
    open_asked,
    send,
    settle_and_lose,
    shown,
)
from tests.factories.dying import Killed, dying_at
from tests.factories.hospital_double import Hospital
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock, work
from tests.factories.synthesis import SECTION, section

# Σ Δ²/s² of the limit, of which the section takes half of one.
WHOLE = mu_from_epsilon(5.0, 1e-5) ** 2
SYNTHESIS = SECTION | {"patients": 9000}
ENTRIES = {"epsilon": 5.0, "synthesis": SYNTHESIS}
DYING = [f"worker.{side}-{point}" for point in ("reserve", "settle", "answer") for side in ("before", "after")]


def first() -> QueryDocument:
    return section(patients=9000).first_question()


def allow(coordinator: Coordinator, hospitals: list[Hospital], number: int, *, allowed: bool = True) -> None:
    for hospital in hospitals:
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=allowed))


def answer(coordinator: Coordinator, hospitals: list[Hospital], number: int) -> None:
    allow(coordinator, hospitals, number)
    work(coordinator)
    query = shown(coordinator, number)
    for hospital in hospitals:
        send(hospital, query)
    work(coordinator)


def queries(coordinator: Coordinator) -> list[Query]:
    return show.list_queries(coordinator, STUDY, with_clients=True).queries


def states(coordinator: Coordinator) -> list[str]:
    return [query.state for query in queries(coordinator)]


def fits(coordinator: Coordinator, squares: float) -> bool:
    """Whether a question of this Σ Δ²/s² would be let in now."""
    cost = document(noise_multiplier=squares**-0.5).cost()

    def look(tx: Transaction) -> bool:
        row = find_study(tx, STUDY)
        return budget_of(tx, coordinator.signer, row).supposing(reserved(tx, row)).authorise_query(cost).is_allowed

    return coordinator.database.read("look", look)


def leaves(coordinator: Coordinator, squares: float) -> bool:
    """Whether this Σ Δ²/s² is what is left of the limit, beside all that is kept and charged."""
    return fits(coordinator, squares - 2e-3) and not fits(coordinator, squares + 2e-3)


@pytest.mark.quick("sqlite")
def test_each_answer_leads_to_the_next_question_and_all_cost_what_was_agreed(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    for number in (1, 2, 3):
        assert leaves(coordinator, WHOLE - 0.5)
        answer(coordinator, hospitals, number)
    assert states(coordinator) == ["answered"] * 3
    assert [query.document.question.stage for query in queries(coordinator)] == [1, 2, 3]  # pyright: ignore
    answers = [found.answered.published for found in (shown(coordinator, n) for n in (1, 2, 3)) if found.answered]
    for place, found in enumerate(answers):
        assert next_question(section(patients=9000), answers[:place]) == shown(coordinator, found.query).document
    assert next_question(section(patients=9000), answers) is None
    assert leaves(coordinator, WHOLE - 0.5)
    assert replay(ledger(coordinator)).charged_queries == 3
    # Asked again it is the stored answer.
    assert ask.ask(coordinator, STUDY, first()).created is False


def words(coordinator: Coordinator, number: int) -> str:
    place = shown(coordinator, number).synthesis
    assert place is not None
    return place.words


# Of one outcome at one hospital, in steps of the first question's grid.
PATIENTS = 500.0 * 2**18


def uniform(query: Query) -> bytes:
    """One hospital's sums for the first question: as many patients in each group of a column, in each outcome."""
    question = query.document.question
    assert isinstance(question, Marginals)
    (outcome,) = set.intersection(*map(set, question.cliques))
    sizes = [len(column.labels) for column in question.variables]
    columns = [next(column for column in clique if column != outcome) for clique in question.cliques]
    steps = [
        np.full(sizes[column] * sizes[outcome], times * PATIENTS / sizes[column])
        for column, times in zip(columns, question.times, strict=True)
    ]
    return encode({ANSWER_TENSOR: np.rint(np.concatenate(steps))})


def independent(query: Query) -> bytes:
    """One hospital's sums by which no pair is associated, after `uniform` has answered the first question."""
    question, first_grid = query.document.question, first().question.grid()
    assert isinstance(question, Marginals)
    groups = [groups or range(len(column.labels)) for column, groups in zip(question.variables, question.groups)]  # noqa: B905
    sizes = [np.array([list(numbers).count(group) for group in range(max(numbers) + 1)]) for numbers in groups]
    patients = PATIENTS * first_grid.spacing / question.grid().spacing
    shares = [size / size.sum() for size in sizes]
    tables = [
        times * np.multiply.outer(shares[clique[0]], shares[clique[1]])
        for clique, times in zip(question.cliques, question.times, strict=True)
    ]
    steps = [np.rint(np.repeat(table.ravel(), sizes[-1].sum()) * patients) for table in tables]
    return encode({ANSWER_TENSOR: np.concatenate(steps).astype(np.float64)})


@pytest.mark.slow
def test_without_an_association_two_questions_are_all_and_the_rest_is_free(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    allow(coordinator, hospitals, 1)
    work(coordinator)
    columns = shown(coordinator, 1)
    assert columns.round is not None
    for hospital in hospitals:
        hospital.send(columns.round, uniform(columns))
    work(coordinator)
    allow(coordinator, hospitals, 2)
    work(coordinator)
    pairs = shown(coordinator, 2)
    assert pairs.synthesis is not None
    assert (pairs.synthesis.stage, pairs.synthesis.kept) == (2, pytest.approx(0.2, abs=1e-4))
    assert leaves(coordinator, WHOLE - 0.5)
    assert pairs.round is not None
    for hospital in hospitals:
        hospital.send(pairs.round, independent(pairs))
    work(coordinator)
    assert states(coordinator) == ["answered"] * 2
    assert words(coordinator, 1) == "Question 1 of the synthesis. Query 2 followed from it."
    assert words(coordinator, 2) == "Question 2 of the synthesis. Nothing follows it, and nothing is kept."
    assert leaves(coordinator, WHOLE - 0.3)


@pytest.mark.quick("sqlite")
def test_a_sum_that_was_opened_and_lost_ends_the_synthesis_and_frees_the_rest(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    settle_and_lose(coordinator, hospitals, first())
    work(coordinator)
    assert (states(coordinator), kinds(coordinator)) == (["failed"], ["asked", "settled"])
    assert "The rule asks no other question in its place, so the synthesis ends." in words(coordinator, 1)
    assert leaves(coordinator, WHOLE - 0.05)
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, first())
    assert refused.value.code == "query-opened"


@pytest.mark.slow
def test_a_hospital_that_leaves_stops_no_other_and_too_few_free_the_rest(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    hospitals = open_asked(coordinator, decision_deadline_seconds=600.0, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    enrolment.withdraw(coordinator, STUDY, hospitals[2].name)
    answer(coordinator, hospitals[:2], 1)
    enrolment.withdraw(coordinator, STUDY, hospitals[1].name)
    clock.sleep(601.0)
    work(coordinator)
    assert states(coordinator) == ["answered", "failed"]
    assert "Asked again, it goes on from here" in words(coordinator, 2)
    assert leaves(coordinator, WHOLE - 0.05)


@pytest.mark.quick("sqlite")
def test_an_imitation_that_fails_frees_nothing_of_the_question_under_way(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    value = json.loads(section().document(40, [(0, 1, 3)], title="", stage=3).model_dump_json())
    value["question"] |= {"noise_multiplier": section().noise_multiplier(40), "stage": 3}
    ask.ask(coordinator, STUDY, QueryDocument.model_validate(value))
    allow(coordinator, hospitals[:2], 2, allowed=False)
    assert states(coordinator) == ["waiting", "failed"]
    assert leaves(coordinator, WHOLE - 0.5)


@pytest.mark.slow
def test_with_few_patients_the_first_question_is_asked_again_for_the_rest(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, epsilon=5.0, synthesis=SYNTHESIS | {"patients": 40})
    ask.ask(coordinator, STUDY, section(patients=40).first_question())
    answer(coordinator, hospitals, 1)
    answer(coordinator, hospitals, 2)
    one, two = (query.document.question for query in queries(coordinator))
    assert isinstance(one, Marginals)
    assert isinstance(two, Marginals)
    assert (one.cliques, one.stage, two.cliques, two.stage) == (two.cliques, 1, one.cliques, 2)
    assert states(coordinator) == ["answered"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_refusal_frees_what_was_kept_and_the_question_can_be_asked_again(
    coordinator: Coordinator, stage: int
) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    for number in range(1, stage):
        answer(coordinator, hospitals, number)
    # Two of three are needed, so that two refusals decide.
    allow(coordinator, hospitals[:2], stage, allowed=False)
    assert states(coordinator) == ["answered"] * (stage - 1) + ["failed"]
    spent = sum(0.5 * share / 100 for share in (10, 50, 40)[: stage - 1])
    assert leaves(coordinator, WHOLE - spent)
    again = shown(coordinator, stage).document
    assert ask.ask(coordinator, STUDY, again).body.number == stage
    assert leaves(coordinator, WHOLE - 0.5)
    for number in range(stage, 4):
        answer(coordinator, hospitals, number)
    assert states(coordinator) == ["answered"] * 3


@pytest.mark.slow
def test_an_expired_reservation_fails_the_question_in_words_and_frees_the_rest(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    hospitals = open_asked(coordinator, decision_deadline_seconds=600.0, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    answer(coordinator, hospitals, 1)
    clock.sleep(601.0)
    work(coordinator)
    assert [(query.state, query.reason) for query in queries(coordinator)] == [
        ("answered", None),
        ("failed", "undecided"),
    ]
    assert leaves(coordinator, WHOLE - 0.05)
    # What is left is given to another question: the rest of the synthesis does not fit any more, and says so.
    ask.ask(coordinator, STUDY, document(noise_multiplier=(WHOLE - 0.2) ** -0.5))
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, shown(coordinator, 2).document)
    assert refused.value.code == "query-overspends"
    assert "the 1 of synthesis that follow from it could together pass a limit" in refused.value.detail


@pytest.mark.quick("sqlite")
def test_a_synthesis_that_could_never_fit_is_refused_when_the_study_is_created(coordinator: Coordinator) -> None:
    chosen = statistics_settings(masked=False, epsilon=1.0, synthesis=SYNTHESIS)
    with pytest.raises(Rejected) as refused:
        lifecycle.create(coordinator, StudyCreate(study=STUDY, settings=chosen))
    assert refused.value.code == "whole-plan-overspends"
    assert "synthesis.allowance: 0.5 passes a limit of the study: at most 0.07" in refused.value.detail


@pytest.mark.slow
def test_a_drop_out_after_an_answer_was_seen_is_charged_and_the_question_goes_on(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    answer(coordinator, hospitals, 1)
    allow(coordinator, hospitals, 2)
    work(coordinator)
    send(hospitals[0], shown(coordinator, 2))
    clock.sleep(61.0)
    work(coordinator)
    assert states(coordinator) == ["answered", "failed"]
    assert kinds(coordinator) == ["asked", "settled", "asked", "charged-in-full"]
    ask.ask(coordinator, STUDY, shown(coordinator, 2).document)
    for number in (2, 3):
        answer(coordinator, hospitals, number)
    assert states(coordinator) == ["answered"] * 3
    assert replay(ledger(coordinator)).charged_queries == 4


@pytest.mark.slow
@pytest.mark.parametrize("point", DYING)
def test_a_coordinator_that_dies_at_any_step_asks_the_same_questions_once(
    coordinator: Coordinator, clock: FakeClock, point: str
) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    ask.ask(coordinator, STUDY, first())
    for number in (1, 2, 3):
        allow(coordinator, hospitals, number)
        for is_sent in (False, True):
            if is_sent:
                for hospital in hospitals:
                    send(hospital, shown(coordinator, number))
            with dying_at(point) as death:
                try:
                    work(coordinator)
                except Killed:
                    assert death.hit
            clock.sleep(6.0)
            work(coordinator)
    assert states(coordinator) == ["answered"] * 3
    assert kinds(coordinator) == ["asked", "settled"] * 3


@pytest.mark.slow
def test_a_question_that_only_looks_like_one_of_the_rule_leads_nowhere(coordinator: Coordinator) -> None:
    hospitals = open_asked(coordinator, **ENTRIES)
    value = json.loads(first().model_dump_json())
    value["question"] |= {"cliques": [[0, 1]], "weights": [], "stage": 1}
    imitation = QueryDocument.model_validate(value)
    ask.ask(coordinator, STUDY, imitation)
    answer(coordinator, hospitals, 1)
    assert states(coordinator) == ["answered"]
