"""A round: its states, who takes part, when it ends how, and what its reports say about its cost.

A report errs on the safe side of everything that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accounting.budget.ledger import Kind
from accounting.plan.report import (
    DISTANCE_BINS,
    CumulativeMoments,
    DistanceHistogram,
    JointReport,
    RoundReport,
    distance_bin,
    report_to_dict,
)
from accounting.units import Level
from server.domain.admission import Findings
from study_protocol.secure_sum.messages import ParameterFault
from study_protocol.secure_sum.parameters import METRICS, PAPERS, TERMS, histogram_name
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import RoundState
from study_protocol.study.privacy import Privacy
from study_protocol.study.reasons import STUCK, TOO_FEW_DRAWN
from study_protocol.study.reports import fault_of_counts
from study_protocol.study.settings import StudySettings

Values: TypeAlias = NDArray[np.float64] | NDArray[np.int64]
_NEXT: dict[RoundState, frozenset[RoundState]] = {
    "collecting": frozenset({"settled", "abandoned", "stopped"}),
    "settled": frozenset({"released", "abandoned", "stopped"}),
    "released": frozenset(),
    "abandoned": frozenset(),
    "stopped": frozenset(),
}
_LONGEST_PAUSE_SECONDS = 60.0
# Rounds abandoned in a row after which the study waits for a person: for one reason, and for any reasons. Coins that
# draw too few count for the second alone.
SAME_REASON, ANY_REASON = 3, 10
# In place of infinity, which JSON cannot say and a report refuses.
_NO_BOUND = 1e300


class IllegalMove(Exception):
    """A round cannot go from this state to that one: another process moved it, or the caller is wrong."""


def move(state: RoundState, target: RoundState) -> RoundState:
    """Return `target`, if a round may go there.

    Raises:
        IllegalMove: it may not.
    """
    if target not in _NEXT[state]:
        raise IllegalMove(f"{state} -> {target}")
    return target


class Heads(Protocol):
    """Source of the coins of a sample."""

    def __call__(self, rate: float, *, client: str) -> bool:
        """Return the client's own coin: True with probability exactly `rate`."""
        ...


def sample(clients: Iterable[str], rate: float, heads: Heads) -> list[str]:
    """Return a Poisson sample of the clients, in order of their names. A rate of 1 takes them all."""
    return [client for client in sorted(clients) if rate == 1.0 or heads(rate, client=client)]


@dataclass(frozen=True)
class Attendance:
    """The sampled clients by outcome.

    received   their update, or all their masked vectors, is here
    waiting    may still answer
    missing    will not answer: revoked, withdrawn or too late
    sending    at least a byte of their update was ever let in
    survivors  their vectors are in the secure sum
    enrolled   every client that ever joined the study
    """

    received: frozenset[str]
    waiting: frozenset[str]
    missing: frozenset[str]
    sending: frozenset[str]
    survivors: frozenset[str] = frozenset()
    enrolled: frozenset[str] = frozenset()

    @property
    def silent(self) -> int:
        """Return how many neither sent nor refused, if collecting ends now."""
        return len(self.waiting) + len(self.missing)

    def is_due(self, *, deadline: float, now: float) -> bool:
        """Return whether collecting ends: all have answered, or the deadline is over. Seconds since the epoch."""
        return not self.waiting or now >= deadline


@dataclass(frozen=True)
class SecureSumEnd:
    """The end of a round's secure sum.

    failure        why there are no sums, None where they are open
    opened         some client may have opened shares
    masks_updates  updates are among its vectors. Otherwise they came in the clear
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
    """The round is given up. `charged`: some part of an update may have been seen, so it is charged in full."""

    reason: str
    charged: bool


@dataclass(frozen=True)
class Collected:
    """The input of a round's end, once its collecting ends.

    findings    of every update that came in the clear
    secure_sum  None where the study makes no sum under masks
    refusals    codes of the refusals that hospitals gave
    sampled     how many were sampled, None where that is not asked
    """

    attendance: Attendance
    findings: tuple[Findings, ...]
    secure_sum: SecureSumEnd | None
    refusals: frozenset[str] = frozenset()
    sampled: int | None = None


def abandonment(min_clients: int, collected: Collected, *, lost: bool) -> Abandon | None:
    """Return why the round is given up. None: it is not.

    Guarantee: a round is free only if no part of any update can have been seen (`was_seen`).

    Args:
        lost: the file of an update, or of the sum of the updates, is gone.
    """
    attendance, secure_sum = collected.attendance, collected.secure_sum
    reached = was_seen(attendance, secure_sum)
    if secure_sum is not None and secure_sum.failure is not None:
        # The next rounds would end so too, so the study's lead has to know why.
        stuck = next((code for code in STUCK if code in collected.refusals), None)
        return Abandon(stuck or secure_sum.failure, charged=reached)
    if len(attendance.received) < min_clients:
        # The coins' doing, which the next round may not repeat, is told apart from hospitals that are not there.
        unlucky = collected.sampled is not None and collected.sampled < min_clients
        return Abandon(TOO_FEW_DRAWN if unlucky else "too-few-clients", charged=reached)
    if lost:
        # A lost file had arrived, so it may have been seen.
        return Abandon("updates-lost", charged=True)
    return None


def settled(settings: StudySettings, collected: Collected, sums: Mapping[str, Values], *, publishes: bool) -> Settle:
    """Return the report of a round of training on its cost.

    Args:
        sums: the opened sums of everything but updates, by vector name. Each (length,), log-moments in nats.
        publishes: as in `masked_round_report`.
    """
    if collected.secure_sum is None:
        # Without a secure sum the report is in the updates themselves.
        return Settle(round_report(settings, collected.findings, collected.attendance))
    return Settle(masked_round_report(settings, sums, collected.attendance, publishes=publishes))


def entry_of(ending: Settle | Abandon, settings: AnySettings) -> tuple[Kind, dict[str, Any]]:
    """Return the ledger's entry for a reservation's outcome. Clients and viewers read it as soon as it is written."""
    match ending:
        case Settle(report):
            return "settled", {"report": report_to_dict(report) if shows_reports(settings) else None}
        case Abandon(reason, charged):
            return "charged-in-full" if charged else "cancelled", {"reason": reason}


def shows_reports(settings: AnySettings) -> bool:
    """Return whether each round's report is written down as it happens, and acted on."""
    return isinstance(settings, StudySettings) and settings.privacy.disclosure != "at-end"


def no_session(fault: ParameterFault, sampled: int, *, members: int) -> Abandon:
    """Return the end of a round whose session could not be opened: free, because no client has been asked yet."""
    too_few = fault.code in ("too-few-clients", "unreachable-threshold")
    chance = too_few and sampled < members
    return Abandon(TOO_FEW_DRAWN if chance else "too-few-clients" if too_few else fault.code, charged=False)


def was_seen(attendance: Attendance, secure_sum: SecureSumEnd | None) -> bool:
    """Return whether any part of the round may be known: a byte of a clear update, or opened shares of masked ones."""
    if secure_sum is None or not secure_sum.masks_updates:
        return bool(attendance.sending) or (secure_sum is not None and secure_sum.opened)
    return secure_sum.opened


def pause_after(abandoned_in_a_row: int) -> float:
    """Return seconds until the next round begins: 0 after a release, 1, 2, 4, … 60 after failed rounds."""
    # Beyond six doublings the longest pause holds. Unbounded, the power would overflow in a study left alone for a day.
    return min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(abandoned_in_a_row - 1, 6)) if abandoned_in_a_row else 0.0


def pauses(reasons: Sequence[str]) -> bool:
    """Return whether a study pauses by itself. reasons: of the rounds abandoned in a row, the newest first."""
    newest = reasons[:SAME_REASON]
    is_repeated = len(newest) == SAME_REASON and len(set(newest)) == 1 and newest[0] != TOO_FEW_DRAWN
    return is_repeated or len(reasons) >= ANY_REASON


def round_report(settings: StudySettings, findings: Sequence[Findings], attendance: Attendance) -> RoundReport | None:
    """Return the report in updates that came in the clear, one finding for each. None charges the reservation."""
    if settings.privacy.bayesian is None:
        return None
    if settings.privacy.rules.central:
        return _histogram([f.distance for f in findings], attendance.silent, settings.privacy.clip_norm)
    log_moments = [f.log_moments for f in findings if f.log_moments is not None]
    # A client that has not reported may be the one whose bound is the largest.
    if attendance.silent or not log_moments or len(log_moments) < len(findings):
        return None
    return CumulativeMoments.largest(log_moments)


def masked_round_report(
    settings: StudySettings, sums: Mapping[str, Values], attendance: Attendance, *, publishes: bool
) -> RoundReport | None:
    """Return the report in the opened sums, by vector name. None charges the reservation.

    publishes: under disclosure `noised`, whether this round's histograms are real. Otherwise they are zeros.
    """
    privacy = settings.privacy
    if privacy.bayesian is None or (privacy.disclosure == "noised" and not publishes):
        return None
    # An update came in the clear from a client whose log-moments are not in the sums.
    unreported = not attendance.received <= attendance.survivors
    measured, histogram = Level.INSTANCE in privacy.rules.levels, histogram_name(privacy.rules)
    records = _moments(sums, attendance) if measured and not unreported else None
    clients = None if histogram is None else _true_counts(settings, sums.get(histogram), attendance)
    if histogram is None or not measured:
        return records if histogram is None else clients
    return JointReport(clients, records)


def _moments(sums: Mapping[str, Values], attendance: Attendance) -> CumulativeMoments | None:
    reported, papers = sums.get(TERMS), sums.get(PAPERS)
    if reported is None:
        return None
    # Above the grid: no bound was reported, and the reservation is the smaller one.
    bounds = [min(float(value), _NO_BOUND) for value in reported]
    costs = None if papers is None or not np.isfinite(papers).all() else tuple(float(cost) for cost in papers)
    metrics = sums.get(METRICS)
    # Summed once: afterwards every hospital says 0, so that two sums never differ by one hospital's number.
    records = float(metrics[0]) if metrics is not None and np.isfinite(metrics[0]) and metrics[0] > 0 else None
    # A hospital that has left may hold the largest bound: the maximum is complete only with all hospitals.
    return CumulativeMoments(bounds[0], tuple(bounds[1:]), attendance.survivors == attendance.enrolled, costs, records)


def _true_counts(settings: StudySettings, reported: Values | None, attendance: Attendance) -> DistanceHistogram | None:
    counts = _counts(settings.privacy, reported, attendance)
    # One hospital can write any word. Sums that no honest hospitals make say little, and would stop every hospital.
    if counts is None or fault_of_counts(settings, counts, len(attendance.survivors) + attendance.silent):
        return None
    return counts


def _counts(privacy: Privacy, reported: Values | None, attendance: Attendance) -> DistanceHistogram | None:
    """Return the summed histogram. Missing clients fill the top bin."""
    if reported is None:
        return None
    counts = [round(float(count)) for count in reported]
    # The clip norm, which no client can exceed: the worst case of a client without a report.
    counts[-1] += attendance.silent
    if privacy.histogram_noise is None:
        return DistanceHistogram(tuple(counts)) if any(counts) else None
    # Every survivor added its share. Only the honest ones are relied on for privacy. Rounded up, because counts are
    # corrected downwards by the most that this noise can hide.
    noise = privacy.histogram_noise.std * math.sqrt(len(attendance.survivors) / privacy.histogram_shares)
    return DistanceHistogram(
        tuple(counts), len(attendance.survivors) + attendance.silent, math.nextafter(noise, math.inf)
    )


def _histogram(distances: Sequence[float | None], missing: int, top: float) -> DistanceHistogram | None:
    counts = [0] * DISTANCE_BINS
    for distance in distances:
        counts[distance_bin(distance, top)] += 1
    counts[-1] += missing
    return DistanceHistogram(tuple(counts)) if any(counts) else None
