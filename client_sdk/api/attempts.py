"""One call through all its attempts, without any waiting or network of its own: both clients drive it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import ValidationError

from client_sdk.api.calls import Call
from client_sdk.api.credentials import Credentials
from client_sdk.api.retry import Backoff, may_repeat, retry_after_seconds
from client_sdk.api.transport import Answer, Outgoing
from client_sdk.errors import ConfigurationError, ConnectionFailed, UnexpectedAnswer, api_error
from client_sdk.protocol.study.messages import Problem

T = TypeVar("T")
PROBLEM = "application/problem+json"
_LOG = logging.getLogger(__name__)


@dataclass
class ServerClock:
    """This machine's clock, corrected by what the coordinator said its time is."""

    read: Callable[[], float] = time.time
    offset: float = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.read() + self.offset


class Attempts(Generic[T]):
    """`request()` gives the next attempt; `failed` and `answered` say how long to wait, or raise.

    `answered` returns None once `result` is there.
    """

    def __init__(self, call: Call[T], credentials: Credentials | None, clock: ServerClock, backoff: Backoff) -> None:
        if credentials is None and not call.open:
            raise ConfigurationError("this request needs an operator key or an enrolled hospital")
        self._call, self._credentials, self._clock, self._backoff = call, credentials, clock, backoff
        # One per call, not per attempt: a POST that did arrive is recognised when it comes again.
        self._token_id = None if call.method in ("GET", "PUT", "DELETE") else secrets.token_urlsafe(18)
        self._clock_corrected = False
        self.result: T

    def request(self) -> Outgoing:
        call = self._call
        headers: dict[str, str] = {}
        if call.content_type is not None:
            headers["Content-Type"] = call.content_type
        if self._credentials is not None and not call.open:
            # Signed anew for each attempt: the signature holds for a minute only.
            headers["Authorization"] = self._credentials.authorization(
                method=call.method,
                target=call.target,
                body=call.body,
                now=self._clock.now(),
                token_id=self._token_id,
            )
        return Outgoing(call.method, call.target, headers, call.body, call.quiet_seconds, call.answer_limit)

    def failed(self, error: ConnectionFailed) -> float:
        """Seconds to wait.

        Raises:
            ConnectionFailed: patience is at its end, or the request may have been carried out and must not be again.
        """
        pause = self._backoff.pause() if self._call.repeatable or not error.sent else None
        if pause is None:
            raise error
        self._tell(str(error), pause)
        return pause

    def answered(self, answer: Answer) -> float | None:
        """None: `result` is there. Otherwise the seconds to wait.

        Raises:
            ApiError: the coordinator's no.
            UnexpectedAnswer: not an answer of this protocol.
        """
        if answer.status in (200, 201, 202, 204):
            self.result = self._call.read(answer)
            return None
        problem = _problem(answer)
        if problem is not None and problem.code == "clock-skew" and problem.server_time is not None:
            if not self._clock_corrected:
                self._clock_corrected = True
                self._clock.offset = problem.server_time - self._clock.read()
                return 0.0
        elif may_repeat(repeatable=self._call.repeatable, status=answer.status):
            reported = retry_after_seconds(answer.headers.get("retry-after"), now=datetime.now(UTC))
            pause = self._backoff.pause(reported)
            if pause is not None:
                self._tell(f"status {answer.status}", pause)
                return pause
        if problem is not None:
            raise api_error(problem)
        raise UnexpectedAnswer(
            f"status {answer.status} without a problem document: something between here and the coordinator answered",
            answer.request_id,
        )

    def _tell(self, reason: str, pause: float) -> None:
        # Patience may be a whole day; whoever watches the hospital must see what it waits for.
        _LOG.warning("%s %s: %s; again in %.1f s", self._call.method, self._call.target, reason, pause)


def _problem(answer: Answer) -> Problem | None:
    if answer.headers.get("content-type", "").partition(";")[0].strip() != PROBLEM:
        return None
    try:
        return Problem.model_validate_json(answer.body)
    except ValidationError:
        return None
