"""The state machine of a round, and when it ends how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.plan.report import RoundReport
from client_sdk.protocol.study.messages import RoundState
from client_sdk.protocol.study.settings import StudySettings
from server.domain.admission import Findings
from server.domain.report import Attendance, Values, masked_round_report, round_report

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


@dataclass(frozen=True)
class SecureSumEnd:
    """How a round's secure sum ended.

    failure        why there are no sums, None where they are open
    opened         somebody may have opened shares
    masks_updates  updates are among its vectors; else they came in the clear
    """

    failure: str | None
    opened: bool
    masks_updates: bool


@dataclass(frozen=True)
class Settle:
    """Enough updates: charge the round by its report, then aggregate. Without a report the reservation stands."""

    report: RoundReport | None


@dataclass(frozen=True)
class Abandon:
    """The round comes to nothing. `charged`: something of an update may have been seen, so it is charged in full."""

    reason: str
    charged: bool


@dataclass(frozen=True)
class Collected:
    """What a round has when its collecting ends.

    findings    of every update that came in the clear
    secure_sum  None where the study sums nothing under masks
    """

    attendance: Attendance
    findings: tuple[Findings, ...]
    secure_sum: SecureSumEnd | None


def ending(
    settings: StudySettings, collected: Collected, sums: Mapping[str, Values], *, lost: bool, publishes: bool
) -> Settle | Abandon:
    """How collecting ends, and what the round shows of its cost.

    Guarantee: a round is free only if nothing of any update can have been seen (`was_seen`).

    Args:
        sums: the opened sums of everything but updates, by vector name.
        lost: the file of an update, or of the sum of the updates, is gone.
        publishes: as in `masked_round_report`.
    """
    attendance, secure_sum = collected.attendance, collected.secure_sum
    seen = was_seen(attendance, secure_sum)
    if secure_sum is not None and secure_sum.failure is not None:
        return Abandon(secure_sum.failure, charged=seen)
    if len(attendance.received) < settings.schedule.min_clients:
        return Abandon("too-few-clients", charged=seen)
    if lost:
        return Abandon("updates-lost", charged=True)
    if secure_sum is None:
        return Settle(round_report(settings, collected.findings, attendance))
    return Settle(masked_round_report(settings, sums, attendance, publishes=publishes))


def was_seen(attendance: Attendance, secure_sum: SecureSumEnd | None) -> bool:
    """Whether somebody may know something of the round: a byte of a clear update, or opened shares of masked ones."""
    if secure_sum is None or not secure_sum.masks_updates:
        return bool(attendance.sending) or (secure_sum is not None and secure_sum.opened)
    return secure_sum.opened


def pause_after(abandoned_in_a_row: int) -> float:
    """Seconds until the next round begins: none after a release, 1, 2, 4, … 60 after rounds that came to nothing."""
    return min(_LONGEST_PAUSE_SECONDS, 2.0 ** (abandoned_in_a_row - 1)) if abandoned_in_a_row else 0.0
