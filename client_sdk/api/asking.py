"""Ask and wait, step by step, for the client that blocks and the one that is awaited."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

from client_sdk.api import calls
from client_sdk.api.answered import Answered, next_step, verified
from client_sdk.api.questions import AnyQuestion, read_question
from client_sdk.api.spoken import Spoken
from client_sdk.api.transport import Call
from client_sdk.errors import QueryFailed, QueryNotAnswered
from study_protocol.queries.question import BaseQuestion
from study_protocol.study.queries import Query, QueryDocument
from study_protocol.versions import PROTOCOL

OnState = Callable[[Query], None]
Step = Call[Any] | float
"""A request, whose answer is sent back; or seconds to wait."""
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.25, 5.0


def asking(
    study: str,
    question: AnyQuestion,
    *,
    spoken: Callable[[], Spoken],
    wait: bool,
    timeout: float | None,
    on_state: OnState | None,
    known_key: str | None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Step, Any, Answered | Query]:
    """The requests and pauses between a question and its answer.

    spoken  what the last description of a study said of the coordinator

    Raises:
        QueryFailed, QueryNotAnswered, AnswerNotSigned: as `Client.ask`.
    """
    began = clock()

    def remaining_seconds() -> float | None:
        return None if timeout is None else timeout - (clock() - began)

    document = yield from _document(study, question, spoken)
    query: Query = yield calls.ask_query(study, document)
    document = _with_members(document, query)
    coordinator_key = ""
    while True:
        query = yield from _until_ended(study, query, on_state, remaining_seconds, wait=wait)
        if query.state == "failed":
            raise QueryFailed(query)
        if query.state != "answered":
            return query
        coordinator_key = coordinator_key or (yield calls.study(study)).coordinator_key
        answered = verified(query, document, coordinator_key, known_key)
        if query.place is None or query.place.next is None:
            return answered
        query = yield calls.query(study, query.place.next)
        document = next_step(query, document)


def _until_ended(
    study: str, query: Query, on_state: OnState | None, remaining_seconds: Callable[[], float | None], *, wait: bool
) -> Generator[Step, Any, Query]:
    """The pauses and looks until a query is answered or has failed. Without `wait`: none.

    Raises:
        QueryNotAnswered: not in the time that remains.
    """
    pause = FIRST_LOOK_SECONDS
    while query.state in ("waiting", "asked"):
        if on_state is not None:
            on_state(query)
        if not wait:
            break
        remaining = remaining_seconds()
        if remaining is not None and remaining <= 0:
            raise QueryNotAnswered(query)
        yield pause if remaining is None else min(pause, remaining)
        # At first often, because a small query is answered at once. Hospitals' people take their time.
        pause = min(LONGEST_LOOK_SECONDS, pause * 1.5)
        query = yield calls.query(study, query.number)
    return query


def _with_members(document: QueryDocument, query: Query) -> QueryDocument:
    """Return the document with the members whom the coordinator filled in where it left them open.

    They are part of the digest that the answer is verified with.
    """
    try:
        return document.of_hospitals(query.document.question.hospitals_asked)
    except ValueError:
        # No such question exists. Its answer is not believed.
        return document


def _document(study: str, question: AnyQuestion, spoken: Callable[[], Spoken]) -> Generator[Step, Any, QueryDocument]:
    """The request that chooses the form of a question from a file or a dictionary, where it leaves the form open."""
    document = read_question(question)
    # An object says everything: an earlier question stays the same question.
    if isinstance(question, QueryDocument | BaseQuestion) or document.in_form_for(PROTOCOL) is document:
        return document
    yield calls.study(study)
    return document.in_form_for(spoken().study)
