"""The attempts of one call: signed anew each, repeated where that is safe, until its answer is read.

Only a request that cannot take effect twice is repeated: GET and PUT always, and POST where the request surely never
arrived or the coordinator said that it made no change.
"""

from __future__ import annotations

import logging
import math
import random
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Generic, Protocol, TypeVar

from client_sdk.api.transport import NO_COORDINATOR, Call, HttpAnswer
from client_sdk.errors import ConfigurationError, ConnectionFailed, UnexpectedAnswer, api_error
from study_protocol.study.messages import Problem
from study_protocol.wire.documents import read_document
from study_protocol.wire.signing import MAX_SKEW_SECONDS

T = TypeVar("T")
OnPause = Callable[[str | None, float], None]
PROBLEM = "application/problem+json"
_LOG = logging.getLogger(__name__)
# 408 and 425 ask for the same request again (RFC 9110, RFC 8470). The others pass by themselves.
PASSING = frozenset({408, 425, 429, 502, 503, 504})
# These two say that nothing was done, so that even a POST may follow.
NOTHING_DONE = frozenset({429, 503})
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
# Whatever Retry-After says: nobody sleeps through a study because of one answer.
LONGEST_ASKED_SECONDS = 600.0


class Credentials(Protocol):
    """The credentials of a request: an API key, or a hospital's signature."""

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        """The Authorization header of one attempt at one request."""
        ...


@dataclass
class ServerClock:
    """The time at which requests are signed: this machine's time, corrected by the time that the coordinator reported.

    Only tokens go by it, because the time that the coordinator reports here is not signed. Every expiry goes by `read`.
    """

    read: Callable[[], float] = time.time
    offset: float = 0.0
    elapsed: Callable[[], float] = time.monotonic
    """Seconds that only grow, from any beginning."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.read() + self.offset

    def correct(self, server_time: float) -> bool:
        """Sign at `server_time` from now on. Return False, unchanged, if it is too far from the local time."""
        offset = server_time - self.read()
        if not abs(offset) <= MAX_SKEW_SECONDS:
            return False
        self.offset = offset
        _LOG.warning("this machine's clock and the coordinator's are %.0f s apart: set this one", abs(offset))
        return True


class Attempts(Generic[T]):
    """The attempts of one call. `headers()` are the next attempt's. `failed` and `answered` return the pause, or raise.

    `answered` returns None once `result` is there.
    """

    def __init__(
        self,
        call: Call[T],
        credentials: Credentials | None,
        clock: ServerClock,
        backoff: Backoff,
        on_pause: OnPause | None = None,
    ) -> None:
        if credentials is None and not call.open:
            raise ConfigurationError("this request needs an API key or an enrolled hospital")
        self._call, self._credentials, self._clock, self._backoff = call, credentials, clock, backoff
        self._on_pause, self._paused = on_pause, False
        # One per call, not per attempt: a POST that did arrive is recognised when it comes again.
        self._token_id = secrets.token_urlsafe(18) if call.method == "POST" else None
        self._clock_corrected = False
        self.result: T

    def headers(self) -> dict[str, str]:
        call = self._call
        typed = {} if call.content_type is None else {"Content-Type": call.content_type}
        headers = {**call.headers, **typed}
        if self._credentials is not None and not call.open:
            # A PUT that did arrive may come again: what is recognised is a copy that somebody else sends.
            token_id = secrets.token_urlsafe(18) if call.signed_once and self._token_id is None else self._token_id
            # Signed anew for each attempt: the signature holds for a minute only.
            headers["Authorization"] = self._credentials.authorization(
                method=call.method, target=call.target, body=call.body, now=self._clock.now(), token_id=token_id
            )
        return headers

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

    def answered(self, answer: HttpAnswer) -> float | None:
        """None: `result` is there. Otherwise the seconds to wait.

        Raises:
            ApiError: the coordinator's no.
            UnexpectedAnswer: not an answer of this protocol.
        """
        if answer.status in (200, 201, 202, 204):
            self.result = self._call.read(answer)
            if self._paused and self._on_pause is not None:
                self._on_pause(None, 0.0)
            return None
        problem = _problem(answer)
        # Whoever answers a coordinator's path with a page or a document of its own will do so again.
        if problem is None and answer.status not in PASSING:
            raise UnexpectedAnswer(
                f"status {answer.status} without a problem document: what answered is another server, or something "
                f"between here and the coordinator, such as a proxy or a login page: {NO_COORDINATOR}",
                answer.request_id,
            )
        pause = self._pause(answer, problem)
        if pause is not None:
            return pause
        if problem is not None:
            raise api_error(problem)
        raise UnexpectedAnswer(
            f"status {answer.status} without a problem document: another server answered, or a proxy that cannot reach "
            "the coordinator. Check the address and the port (--server, WARDROUND_SERVER)",
            answer.request_id,
        )

    def _pause(self, answer: HttpAnswer, problem: Problem | None) -> float | None:
        """Return the seconds until the request is worth another attempt, or None if it is not."""
        if problem is not None and problem.code == "clock-skew" and problem.server_time is not None:
            # Once a call: a clock that is wrong after that is not helped by trying again.
            if self._clock_corrected or not self._clock.correct(problem.server_time):
                return None
            self._clock_corrected = True
            return 0.0
        if not may_repeat(repeatable=self._call.repeatable, status=answer.status):
            return None
        pause = self._backoff.pause(retry_after_seconds(answer.headers.get("retry-after"), now=datetime.now(UTC)))
        if pause is not None:
            self._tell(f"status {answer.status}", pause)
        return pause

    def _tell(self, reason: str, pause: float) -> None:
        # Patience may have no end. Whoever watches the hospital must see what it waits for.
        self._paused = True
        if self._on_pause is not None:
            self._on_pause(reason, pause)
            return
        _LOG.warning("%s %s: %s, again in %.1f s", self._call.method, self._call.target, reason, pause)


class Backoff:
    """The pauses of one request: doubling, at random between half and the whole, never shorter than Retry-After,
    of which ten minutes are obeyed.

    patience_seconds: no new attempt begins later than this after the first failure: a large body may have taken longer.
    """

    def __init__(
        self,
        patience_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock, self._uniform = clock, uniform
        self._patience_seconds, self._until = patience_seconds, math.inf
        self._attempt = 0

    def pause(self, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt, or None when patience is at its end."""
        if self._attempt == 0:
            self._until = self._clock() + self._patience_seconds
        longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**self._attempt)
        self._attempt += 1
        wait = self._uniform(longest / 2, longest)
        if retry_after is not None:
            # Jitter comes on top: everybody who was told the same number would come back together.
            wait = min(retry_after, LONGEST_ASKED_SECONDS) + wait / 4
        return wait if self._clock() + wait <= self._until else None


def may_repeat(*, repeatable: bool, status: int) -> bool:
    """Whether an answer of this status is worth a new attempt."""
    return status in (PASSING if repeatable else NOTHING_DONE)


def retry_after_seconds(value: str | None, *, now: datetime) -> float | None:
    """Return the Retry-After header in seconds, from either of its forms, or None if it cannot be read."""
    if value is None:
        return None
    # Of ASCII: ² is a digit, too, and no number.
    if re.fullmatch(r"[0-9]+", value.strip()):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (moment.astimezone(UTC) - now).total_seconds())


def _problem(answer: HttpAnswer) -> Problem | None:
    # What a proxy answers in the coordinator's place has such a status too, but not this type.
    if answer.headers.get("content-type", "").partition(";")[0].strip() != PROBLEM:
        return None
    try:
        return read_document(Problem, answer.body)
    except ValueError:
        return None
