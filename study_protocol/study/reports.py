"""Limits of an honest round's report that follow from public settings and the size of the roster.

A coordinator drops a report beyond them and charges the reservation. A hospital that finds one in the ledger stops.
"""

from __future__ import annotations

import math

from accounting.plan.report import (
    DISTANCE_BINS,
    CumulativeMoments,
    DistanceHistogram,
    RoundReport,
    histogram_in,
    moments_in,
)
from accounting.plan.schemes import Tells
from study_protocol.study.plan_of import plan_of
from study_protocol.study.privacy import HistogramNoise
from study_protocol.study.settings import StudySettings

# How often honest noise may be taken for a lie, a report.
_FALSE_ALARM = 1e-12
# The parties round their shares of the noise up by a unit in the last place.
_ROUNDING = 1 + 1e-9


def fault_of_report(
    settings: StudySettings, report: RoundReport | None, *, round_number: int, members: int
) -> str | None:
    """Return why no honest round could report this, in words. Return None if one could, and for no report at all.

    Args:
        members: active clients when the round was reserved. No other client was drawn.
    """
    if report is None:
        return None
    if settings.privacy.bayesian is None:
        return "a round was reported on, and the study has no Bayesian limit"
    plan, histogram, moments = plan_of(settings), histogram_in(report), moments_in(report)
    # Bounds are reported in every round. Between two published histograms they are worst cases.
    if histogram is not None and plan.release is not None and not plan.publishes(round_number):
        return "a histogram of a round that publishes none"
    parts = {Tells.HISTOGRAM: histogram, Tells.CUMULATIVE: moments}
    reportable = {protection.tells for protection in plan.rules.protects}
    if any(parts[kind] is not None for kind in parts.keys() - reportable):
        return f"scheme {plan.rules.display_name} makes no report of this kind"
    return fault_of_counts(settings, histogram, members) or _fault_of_moments(settings, moments)


def reach(noise: float, bins: int) -> float:
    """Return how far discrete Gaussian noise on each of `bins` counts moves their sum at most.

    `noise` is its standard deviation. It goes further with probability below 1e-12, all sums of one histogram taken
    together. Their moment generating function is at most the Gaussian's (Canonne, Kamath & Steinke 2020).
    """
    # Every single count, every tail sum and the total, on both sides.
    events = 2 * (2 * DISTANCE_BINS + 1)
    return noise * math.sqrt(bins) * math.sqrt(2 * math.log(events / _FALSE_ALARM)) * _ROUNDING


def fault_of_counts(settings: StudySettings, reported: DistanceHistogram | None, members: int) -> str | None:
    """Return the same of a histogram of clients' distances."""
    if reported is None:
        return None
    if len(reported.counts) != DISTANCE_BINS:
        return f"a histogram of {len(reported.counts)} bins, not {DISTANCE_BINS}"
    noise, size = settings.privacy.histogram_noise, reported.sample_size
    if (noise is None) != (size is None):
        return "counts with noise and a number of clients belong together, where the study noises them"
    total = sum(reported.counts) if size is None else size
    minimum = max(1, settings.schedule.min_clients)
    if not minimum <= total <= members:
        return f"{total} clients are counted, of {members} members, and a round counts at least {minimum}"
    return None if noise is None or size is None else _fault_of_noise(settings, reported, noise, size, members)


def _fault_of_noise(
    settings: StudySettings, reported: DistanceHistogram, noise: HistogramNoise, size: int, members: int
) -> str | None:
    largest = noise.std * math.sqrt(members / settings.privacy.histogram_shares) * _ROUNDING
    if not noise.std <= reported.count_noise <= largest:
        return f"counts with noise {reported.count_noise:g}: the hospitals add between {noise.std:g} and {largest:g}"
    single_bin, all_bins = reach(reported.count_noise, 1), reach(reported.count_noise, DISTANCE_BINS)
    if any(not -single_bin <= count <= size + single_bin for count in reported.counts):
        return f"a count beyond what {size} clients and their noise can make"
    if abs(sum(reported.counts) - size) > all_bins:
        return f"the counts add up to {sum(reported.counts)}: too far from {size} clients for their noise"
    return None


def _fault_of_moments(settings: StudySettings, reported: CumulativeMoments | None) -> str | None:
    bayesian = settings.privacy.bayesian
    if reported is None:
        return None
    if bayesian is not None and len(reported.moments) != len(bayesian.orders):
        return f"bounds at {len(reported.moments)} orders, not {len(bayesian.orders)}"
    # A hospital rounds its bounds up, away from zero.
    if not min(reported.filter, *reported.moments) > 0:
        return "bounds of zero: a round with participants has a cost"
    if reported.complete and settings.privacy.masking is None:
        return "bounds of all clients that ever took part: without masks no party vouches for that"
    return None
