"""One call through all its attempts: who asks, when it is sent again, how its answer is taken.

Without any waiting or network of its own: both clients drive it. Only what cannot happen twice is repeated: GET and PUT
always; POST where the request surely never arrived or the coordinator said that it changed nothing.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Generic, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from client_sdk.api.calls import Call
from client_sdk.api.transport import Answer, Outgoing
from client_sdk.errors import ConfigurationError, ConnectionFailed, UnexpectedAnswer, api_error
from client_sdk.protocol.study.messages import Problem
from client_sdk.protocol.wire.signing import request_token

T = TypeVar("T")
PROBLEM = "application/problem+json"
_LOG = logging.getLogger(__name__)
PASSING = frozenset({408, 425, 429, 502, 503, 504})
# These two say that nothing was done, so that even a POST may follow.
NOTHING_DONE = frozenset({429, 503})
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0


@dataclass
class ServerClock:
    """This machine's clock, corrected by what the coordinator said its time is."""

    read: Callable[[], float] = time.time
    offset: float = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.read() + self.offset


class Credentials(Protocol):
    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        """The Authorization header of one attempt at one request."""
        ...


class OperatorKey:
    """`wrk_<id>_<secret>`; its repr shows the id alone.

    Raises:
        ConfigurationError: not of that form.
    """

    def __init__(self, key: str) -> None:
        parts = key.split("_", 2)
        if len(parts) != 3 or parts[0] != "wrk" or not parts[1] or not parts[2] or not key.isascii():
            raise ConfigurationError("an operator key has the form wrk_<id>_<secret>")
        self._key, self.id = key, parts[1]

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        return f"Bearer {self._key}"

    def __repr__(self) -> str:
        return f"OperatorKey(wrk_{self.id}_***)"


@dataclass(frozen=True)
class Signature:
    """A hospital's own signature. `origin` is the coordinator's public origin, whatever address is dialled."""

    key: Ed25519PrivateKey = field(repr=False)
    client: str
    study: str
    origin: str

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        token = request_token(
            self.key,
            client=self.client,
            study=self.study,
            audience=self.origin,
            method=method,
            url=self.origin + target,
            body_sha256=hashlib.sha256(body).hexdigest(),
            now=now,
            token_id=token_id,
        )
        return f"Bearer {token}"


def retry_after_seconds(value: str | None, *, now: datetime) -> float | None:
    """The Retry-After header in seconds, from either of its forms; None if there is none that can be read."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment.astimezone(UTC) - now).total_seconds())


class Backoff:
    """The pauses of one request: doubling, at random between half and the whole, never shorter than Retry-After.

    patience_seconds: no new attempt begins later than this after the first.
    """

    def __init__(
        self,
        patience_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock, self._uniform = clock, uniform
        self._until = clock() + patience_seconds
        self._attempt = 0

    def pause(self, retry_after: float | None = None) -> float | None:
        """Seconds to wait before the next attempt; None: patience is at its end."""
        longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**self._attempt)
        self._attempt += 1
        wait = self._uniform(longest / 2, longest)
        if retry_after is not None:
            # Jitter comes on top: everybody who was told the same number would come back together.
            wait = retry_after + wait / 4
        return wait if self._clock() + wait <= self._until else None


def may_repeat(*, repeatable: bool, status: int) -> bool:
    """Whether an answer of this status is worth a new attempt."""
    return status in (PASSING if repeatable else NOTHING_DONE)


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
