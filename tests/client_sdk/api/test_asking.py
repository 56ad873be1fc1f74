"""Ask and wait, step by step, with a clock of the test."""

from __future__ import annotations

import json
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from client_sdk.api.asking import asking
from client_sdk.api.questions import AnyQuestion
from client_sdk.api.spoken import Spoken
from client_sdk.api.transport import Call
from client_sdk.errors import AnswerNotSigned, QueryFailed, QueryNotAnswered
from study_protocol.queries.answer import NoisedSum
from study_protocol.study.queries import Query, QueryDocument
from study_protocol.versions import PROTOCOL, UNNUMBERED
from tests.factories.questions import DOCUMENTS
from tests.factories.regressions import later_steps, regression
from tests.factories.signed_answers import PUBLIC, answered, document, shown

ASKED = document("count")
WAITING = shown(ASKED)
NEW, OLD = Spoken("9.9", PROTOCOL, PROTOCOL), Spoken("9.9", PROTOCOL, UNNUMBERED)
AGES = DOCUMENTS["moments"] | {"noise_multiplier": 4.0}
PLAIN = QueryDocument.model_validate_json(json.dumps({"question": AGES}))
CENTRED = PLAIN.in_form_for(PROTOCOL)


def kind_of(asked: QueryDocument) -> str:
    return asked.question.kind


class Walk:
    """Drives the steps: requests are answered from a list, pauses move the clock."""

    def __init__(self, *answers: Any, **options: Any) -> None:
        self.answers, self.requests, self.pauses = list(answers), list[str](), list[float]()
        self.calls = list[Call[Any]]()
        self.now, self.states = 0.0, list[Query]()
        chosen: dict[str, Any] = {"wait": True, "timeout": None, "on_state": self.states.append, "known_key": None}
        chosen["spoken"] = lambda: NEW
        question: AnyQuestion = options.pop("question", ASKED)
        self.steps: Generator[Any, Any, Any] = asking(
            "registry", question, clock=lambda: self.now, **(chosen | options)
        )

    def run(self) -> Any:
        reply: Any = None
        while True:
            try:
                step = self.steps.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(step, Call):
                self.calls.append(step)
                self.requests.append(f"{step.method} {step.target}")
                reply = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            else:
                self.pauses.append(step)
                self.now, reply = self.now + step, None


STUDY = SimpleNamespace(coordinator_key=PUBLIC)


def test_an_answer_that_is_there_takes_two_requests_and_no_pause() -> None:
    walk = Walk(answered(ASKED), STUDY)
    assert walk.run().published.hospitals == 3
    assert walk.requests == ["POST /v1/studies/registry/queries", "GET /v1/studies/registry"]
    assert (walk.pauses, walk.states) == ([], [])


def test_the_query_is_looked_at_until_it_is_answered() -> None:
    begun = shown(ASKED, state="asked", round=4)
    walk = Walk(WAITING, begun, answered(ASKED), STUDY)
    assert walk.run().query.state == "answered"
    assert walk.states == [WAITING, begun]
    assert walk.requests[1:3] == ["GET /v1/studies/registry/queries/1"] * 2
    assert walk.pauses == [0.25, 0.375]


def test_who_does_not_wait_gets_the_query_as_it_is() -> None:
    walk = Walk(WAITING, wait=False)
    assert walk.run() == WAITING
    assert walk.pauses == []


def test_looks_grow_rare_and_end_with_the_time() -> None:
    walk = Walk(WAITING, timeout=60.0)
    with pytest.raises(QueryNotAnswered, match="1 of at least 2 hospitals say yes"):
        walk.run()
    assert sum(walk.pauses) == pytest.approx(60.0)
    assert walk.pauses[0] == 0.25
    assert max(walk.pauses) == 5.0


def test_without_a_state_function_nothing_is_called() -> None:
    assert Walk(WAITING, on_state=None, wait=False).run() == WAITING


def test_a_query_that_fails_says_why() -> None:
    with pytest.raises(QueryFailed, match=r"query 1 of registry failed: (?i:the study ended before)") as failed:
        Walk(WAITING, shown(ASKED, state="failed", reason="study-finished")).run()
    assert failed.value.code == "study-finished"


def test_an_answer_is_verified_with_the_key_that_is_known() -> None:
    assert Walk(answered(ASKED), STUDY, known_key=PUBLIC).run().pinned
    with pytest.raises(AnswerNotSigned, match="another key"):
        Walk(answered(ASKED), STUDY, known_key="0" * 64).run()


def place(step: int, follower: int | None) -> dict[str, Any]:
    return {"step": step, "steps": 3, "first": 1, "next": follower, "kept": 0.0, "words": f"Step {step} of 3."}


def test_a_question_in_steps_is_followed_to_its_last_answer() -> None:
    steps = later_steps(regression())
    replies = [
        answered(steps[0], place=place(1, 2)),
        STUDY,
        shown(steps[1], number=2, place=place(2, None)),
        answered(steps[1], number=2, place=place(2, 5)),
        answered(steps[2], number=5, place=place(3, None)),
    ]
    walk = Walk(*replies, question=steps[0])
    result = walk.run()
    assert (result.query.number, result.query.document) == (5, steps[2])
    assert walk.requests[2:] == [f"GET /v1/studies/registry/queries/{number}" for number in (2, 2, 5)]
    assert [query.number for query in walk.states] == [2]
    # Who does not wait gets the step that waits.
    assert Walk(*replies, question=steps[0], wait=False).run().number == 2


def test_a_step_that_fails_says_why_and_one_of_another_question_is_not_believed() -> None:
    first, second, third = later_steps(regression())
    begun = [answered(first, place=place(1, 2)), STUDY]
    with pytest.raises(QueryFailed, match="query 2 of registry failed"):
        Walk(*begun, shown(second, number=2, state="failed", reason="undecided"), question=first).run()
    for other in (third, first, later_steps(regression(noise_multiplier=3.0))[1], ASKED):
        with pytest.raises(AnswerNotSigned, match="query 2 is no next step of the question"):
            Walk(*begun, answered(other, number=2, place=place(2, None)), question=first).run()


@pytest.mark.parametrize("question", [document("count", by="hospital"), regression(by_hospital=True)], ids=kind_of)
def test_members_whom_the_coordinator_filled_in_belong_to_the_question(question: QueryDocument) -> None:
    filled = question.of_hospitals(("alpha", "beta"))
    assert filled.digest() != question.digest()
    sums = NoisedSum(np.zeros(filled.question.cells), 1.0, 1)
    reply = answered(filled, answer=filled.question.answer(sums))
    assert Walk(reply, STUDY, question=question).run().query.document == filled
    # Named by the person, they are the question's own.
    with pytest.raises(AnswerNotSigned, match="answers something else"):
        Walk(reply, STUDY, question=question.of_hospitals(("alpha", "gamma"))).run()
    with pytest.raises(AnswerNotSigned, match="answers something else"):
        Walk(answered(ASKED), STUDY, question=question).run()


def documents_sent(walk: Walk) -> list[QueryDocument]:
    return [QueryDocument.model_validate_json(call.body) for call in walk.calls if call.method == "POST"]


@pytest.mark.parametrize(("spoken", "asked"), [(NEW, CENTRED), (OLD, PLAIN)], ids=["new", "old"])
def test_a_dictionary_that_leaves_the_form_open_is_centred_where_the_study_reads_it(
    spoken: Spoken, asked: QueryDocument
) -> None:
    walk = Walk(STUDY, answered(asked), STUDY, question=AGES, spoken=lambda: spoken)
    assert walk.run().query.document == asked
    assert walk.requests[0] == "GET /v1/studies/registry"
    assert documents_sent(walk) == [asked]


@pytest.mark.parametrize(
    ("question", "asked"),
    [(AGES | {"centred": False}, PLAIN), (AGES | {"centred": True}, CENTRED), (PLAIN, PLAIN), (PLAIN.question, PLAIN)],
    ids=["plain", "centred", "document", "question"],
)
def test_a_form_that_is_chosen_stays_and_an_earlier_question_is_the_same_question(
    question: AnyQuestion, asked: QueryDocument
) -> None:
    walk = Walk(answered(asked), STUDY, question=question)
    walk.run()
    assert walk.requests[0] == "POST /v1/studies/registry/queries"
    assert documents_sent(walk) == [asked]
