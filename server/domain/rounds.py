"""The state machine of a round, and when it ends how."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from client_sdk.protocol.study.messages import RoundState

_NEXT: dict[RoundState, frozenset[RoundState]] = {
    "collecting": frozenset({"settled", "abandoned", "stopped"}),
    "settled": frozenset({"released", "abandoned", "stopped"}),
    "released": frozenset(),
    "abandoned": frozenset(),
    "stopped": frozenset(),
}

_LONGEST_PAUSE_SECONDS = 60.0


class IllegalMove(Exception):
    """A round cannot go from this state to that one: somebody else moved it, or the caller is wrong."""


def move(state: RoundState, target: RoundState) -> RoundState:
    """`target`, if a round may go there.

    Raises:
        IllegalMove: it may not.
    """
    if target not in _NEXT[state]:
        raise IllegalMove(f"{state} -> {target}")
    return target


def ended(state: RoundState) -> bool:
    """Nothing follows."""
    return not _NEXT[state]


@dataclass(frozen=True)
class Attendance:
    """What became of the sampled clients.

    waiting  may still answer;  missing  will not: revoked or withdrawn since
    sending  those of whose update a byte was ever let in, whatever became of it
    """

    received: Collection[str]
    refused: Collection[str]
    waiting: Collection[str]
    missing: Collection[str]
    sending: Collection[str]

    def is_due(self, *, deadline: float, now: float) -> bool:
        """Whether collecting ends: everybody has answered, or nobody else is waited for."""
        return not self.waiting or now >= deadline


@dataclass(frozen=True)
class Settle:
    """Enough updates: charge the round, then aggregate."""


@dataclass(frozen=True)
class Abandon:
    """The round comes to nothing. `charged`: something of an update was let in, so it is charged in full."""

    reason: str
    charged: bool


def close(attendance: Attendance, *, min_clients: int) -> Settle | Abandon:
    """How collecting ends.

    Guarantee: a round is free only if no byte of any update was let in.
    """
    if len(attendance.received) < min_clients:
        return Abandon("too-few-clients", charged=bool(attendance.sending))
    return Settle()


def pause_after(abandoned_in_a_row: int) -> float:
    """Seconds until the next round begins: none after a release, 1, 2, 4, … 60 after rounds that came to nothing."""
    return min(_LONGEST_PAUSE_SECONDS, 2.0 ** (abandoned_in_a_row - 1)) if abandoned_in_a_row else 0.0
