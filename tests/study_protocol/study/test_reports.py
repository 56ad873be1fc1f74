"""What no honest round reports; honest ones pass."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.plan.report import DISTANCE_BINS, CumulativeMoments, DistanceHistogram, JointReport
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import Purpose, SeededRandomness
from study_protocol.study.reports import fault_of_report, reach
from tests.factories.settings import ORDERS, settings

CLIENT = settings("client", bayesian=True, schedule={"min_clients": 3})
NOISED = settings("client", bayesian=True, masked=True, disclosure="noised", histogram_noise={"std": 20.0, "every": 2})
PARALLEL = settings(bayesian=True)


def counted(**bins: int) -> DistanceHistogram:
    counts = [0] * DISTANCE_BINS
    for place, count in bins.items():
        counts[int(place[1:])] = count
    return DistanceHistogram(tuple(counts))


def moments(value: float, complete: bool = False, orders: int = len(ORDERS)) -> CumulativeMoments:
    return CumulativeMoments(value, (value,) * orders, complete)


@pytest.mark.parametrize(
    ("chosen", "report", "words"),
    [
        (CLIENT, counted(b0=10**9), "1000000000 clients are counted, of 5 members"),
        (CLIENT, counted(b0=6), "6 clients are counted, of 5 members"),
        (CLIENT, counted(b63=2), "a round counts at least 3"),
        (CLIENT, DistanceHistogram((5,)), "of 1 bins"),
        (CLIENT, DistanceHistogram((5,) * 64, 5, 1.0), "belong together"),
        (CLIENT, moments(1.0), "makes no report of this kind"),
        (PARALLEL, counted(b0=3), "makes no report of this kind"),
        (PARALLEL, moments(0.0), "bounds of zero"),
        (PARALLEL, moments(1.0, orders=2), "bounds at 2 orders, not 4"),
        (PARALLEL, moments(1.0, complete=True), "without masks"),
        (PARALLEL, JointReport(counted(b0=3), moments(1.0)), "makes no report of this kind"),
        (settings(), moments(1.0), "no Bayesian limit"),
    ],
)
def test_what_no_honest_round_reports(chosen: Any, report: Any, words: str) -> None:
    assert words in (fault_of_report(chosen, report, round_number=2, members=5) or "")


@pytest.mark.parametrize(
    ("chosen", "report"),
    [(CLIENT, counted(b0=3, b63=2)), (PARALLEL, moments(1e-300)), (CLIENT, None), (PARALLEL, None)],
)
def test_what_an_honest_round_may_report(chosen: Any, report: Any) -> None:
    assert fault_of_report(chosen, report, round_number=2, members=5) is None


def noised(clients: int, *, std: float, seed: int) -> DistanceHistogram:
    """Every client adds its share, as `client_sdk.secure_sum.delivery` does."""
    counts, source = [0] * DISTANCE_BINS, SeededRandomness(seed, allow_insecure=True).in_round("a", 2)
    counts[7] = clients
    for client in range(clients):
        share = sampler(std).sample(DISTANCE_BINS, source.of(Purpose.CLIENT_HISTOGRAM, step=client))
        counts = [count + int(noise) for count, noise in zip(counts, share, strict=True)]
    return DistanceHistogram(tuple(counts), clients, std * clients**0.5)


def test_honest_noise_is_never_taken_for_a_lie() -> None:
    """300 histograms of 64 counts: a false alarm in this test has a probability below 300e-12."""
    share = 20.0 / NOISED.privacy.histogram_shares**0.5
    for seed in range(300):
        report = noised(5, std=share, seed=seed)
        assert fault_of_report(NOISED, report, round_number=2, members=5) is None


def test_noise_does_not_hide_a_lie_beyond_its_reach() -> None:
    share = 20.0 / NOISED.privacy.histogram_shares**0.5
    honest = noised(5, std=share, seed=1)
    far = int(5 + reach(honest.count_noise, 1)) + 1
    one_count = DistanceHistogram((far, *honest.counts[1:]), 5, honest.count_noise)
    assert "beyond what 5 clients" in (fault_of_report(NOISED, one_count, round_number=2, members=5) or "")
    # Each of them within its noise, and all of them on the same side.
    shifted = DistanceHistogram(tuple(c + 80 for c in honest.counts), 5, honest.count_noise)
    assert "add up to" in (fault_of_report(NOISED, shifted, round_number=2, members=5) or "")
    quiet = DistanceHistogram(honest.counts, 5, 1.0)
    assert "the hospitals add between" in (fault_of_report(NOISED, quiet, round_number=2, members=5) or "")
    assert "publishes none" in (fault_of_report(NOISED, honest, round_number=3, members=5) or "")
