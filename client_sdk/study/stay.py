"""How long a hospital stays in a study: until it ends, or for at most one round (`wardround join --once`)."""

from __future__ import annotations

from collections.abc import Callable


class Stay:
    """The length of one participation.

    A round that has begun is always taken to its end, because a masked sum fails without all of its steps.

    one_round_within  seconds to wait for a round, after which this hospital leaves. None: it stays until the end
    elapsed           seconds that only grow
    """

    def __init__(self, one_round_within: float | None, elapsed: Callable[[], float]) -> None:
        self._seconds, self._elapsed, self._begun = one_round_within, elapsed, elapsed()
        self._round_ended = False

    def wait_at_most(self, seconds: float) -> float:
        """Return the seconds of the next wait: those wanted, or fewer if less time is left."""
        return seconds if self._seconds is None else max(0.0, min(seconds, self._left(self._seconds)))

    def end_round(self) -> None:
        """Record that this hospital has sent its last word on a round."""
        self._round_ended = True

    @property
    def is_over(self) -> bool:
        """Whether to leave before the study ends."""
        return self._seconds is not None and (self._round_ended or self._left(self._seconds) <= 0)

    def _left(self, seconds: float) -> float:
        return self._begun + seconds - self._elapsed()
