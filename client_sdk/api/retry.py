"""When a request is sent again, and how long to wait before.

Only what cannot happen twice is repeated: GET and PUT always; POST where the request surely never arrived or the
coordinator said that it changed nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

PASSING = frozenset({408, 425, 429, 502, 503, 504})
# These two say that nothing was done, so that even a POST may follow.
NOTHING_DONE = frozenset({429, 503})
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0


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
