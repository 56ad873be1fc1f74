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
    began, pause = clock(), FIRST_LOOK_SECONDS
    document = yield from _document(study, question, spoken)
    query: Query = yield calls.ask_query(study, document)
    coordinator_key = ""
    while True:
        while query.state in ("waiting", "asked"):
            if on_state is not None:
                on_state(query)
            if not wait:
                return query
            remaining_seconds = None if timeout is None else timeout - (clock() - began)
            if remaining_seconds is not None and remaining_seconds <= 0:
                raise QueryNotAnswered(query)
            yield pause if remaining_seconds is None else min(pause, remaining_seconds)
            # At first often, because a small query is answered at once. Hospitals' people take their time.
            pause = min(LONGEST_LOOK_SECONDS, pause * 1.5)
            query = yield calls.query(study, query.number)
        if query.state == "failed":
            raise QueryFailed(query)
        coordinator_key = coordinator_key or (yield calls.study(study)).coordinator_key
        answered = verified(query, document, coordinator_key, known_key)
        if query.place is None or query.place.next is None:
            return answered
        query, pause = (yield calls.query(study, query.place.next)), FIRST_LOOK_SECONDS
        document = next_step(query, document)


def _document(study: str, question: AnyQuestion, spoken: Callable[[], Spoken]) -> Generator[Step, Any, QueryDocument]:
    """The request that chooses the form of a question from a file or a dictionary, where it leaves the form open."""
    document = read_question(question)
    # An object says everything: an earlier question stays the same question.
    if isinstance(question, QueryDocument | BaseQuestion) or document.in_form_for(PROTOCOL) is document:
        return document
    yield calls.study(study)
    return document.in_form_for(spoken().study)
