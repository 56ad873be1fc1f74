from __future__ import annotations

from functools import partial
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from accounting.plan.report import CumulativeMoments, DistanceHistogram
from client_sdk.protocol.randomness.coins import AddressedCoins, DiscreteGaussianNoise
from client_sdk.protocol.randomness.source import Purpose, Randomness, RandomSource, SeededRandomness
from client_sdk.protocol.study.messages import RoundState
from server.domain.admission import Findings
from server.domain.rounds import (
    Abandon,
    Attendance,
    Collected,
    IllegalMove,
    SecureSumEnd,
    Settle,
    ending,
    masked_round_report,
    move,
    pause_after,
    round_report,
    sample,
    was_seen,
)
from tests.factories.masked_studies import masked
from tests.factories.studies import settings

NOBODY = frozenset[str]()
CLIENT = settings(scheme="client", bayesian=True)
PARALLEL = settings(bayesian=True)


def silent(missing: int) -> Attendance:
    return Attendance(NOBODY, NOBODY, frozenset(f"m{i}" for i in range(missing)), NOBODY)


def reported(filter: float, *moments: float) -> Findings:
    return Findings(None, CumulativeMoments(filter, moments))


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(0, 5))
def test_no_distance_is_counted_below_itself(distances: list[float], missing: int) -> None:
    report = round_report(CLIENT, [Findings(d, None) for d in distances], silent(missing))
    if not distances and not missing:
        assert report is None
        return
    assert isinstance(report, DistanceHistogram)
    assert sum(report.counts) == len(distances) + missing
    # However far up one looks, at least as many are counted there as there really are.
    edges = [(k + 1) / len(report.counts) for k in range(len(report.counts))]
    for k, edge in enumerate(edges):
        assert sum(report.counts[k + 1 :]) >= sum(d > edge for d in distances) + (missing if edge < 1 else 0)
    # And none is rounded up further than its own bin.
    assert report.counts[0] == sum(d <= edges[0] for d in distances) + (missing if len(edges) == 1 else 0)


def test_the_largest_of_the_reports_counts() -> None:
    report = round_report(PARALLEL, [reported(0.1, 0.5, 0.2), reported(0.3, 0.1, 0.4)], silent(0))
    assert report == CumulativeMoments(0.3, (0.5, 0.4))


def test_records_that_were_told_before_are_not_told_again() -> None:
    study = masked("sequential", bayesian=True)
    everybody = frozenset("abcde")
    present = Attendance(everybody, NOBODY, NOBODY, everybody, survivors=everybody, enrolled=everybody)
    sums = {"papers": np.full(4, 0.01), "metrics": np.array([600.0])}
    for reported, expected in ((600.0, 600.0), (0.0, None)):
        report = masked_round_report(study, sums | {"metrics": np.array([reported])}, present, publishes=False)
        assert report is None or report.records == expected


def test_a_silent_hospital_may_be_the_one_that_spent_most() -> None:
    assert round_report(PARALLEL, [reported(0.1, 0.5)], silent(1)) is None


def test_nothing_reported_is_no_evidence() -> None:
    assert round_report(PARALLEL, [], silent(0)) is None
    assert round_report(settings(), [Findings(None, None)], silent(0)) is None


def test_rate_one_takes_everybody_without_a_coin() -> None:
    def no_coin(rate: float, *, client: str) -> bool:
        raise AssertionError

    assert sample(["b", "a"], 1.0, no_coin) == ["a", "b"]


def test_every_client_has_its_own_coin() -> None:
    thrown: list[tuple[str, float]] = []

    def heads(rate: float, *, client: str) -> bool:
        thrown.append((client, rate))
        return client != "b"

    assert sample(["c", "a", "b"], 0.3, heads) == ["a", "c"]
    assert sorted(thrown) == [("a", 0.3), ("b", 0.3), ("c", 0.3)]


@pytest.mark.parametrize("rate", [0.5, 0.1, 1 / 3])
def test_coins_come_up_at_their_rate(rate: float) -> None:
    coins = AddressedCoins()
    heads = sum(coins.heads(rate, client="a", round=1) for _ in range(20_000))
    # False alarm: 1e-9 for each of the three rates.
    assert binomtest(heads, 20_000, rate).pvalue > 1e-9


def test_a_coin_is_exact() -> None:
    """Heads where the drawn fraction, of as many bits as the rate has, lies below the rate: 2 of 8 bits give 3/4."""

    class Given(Randomness):
        secure = False

        def of(self, purpose: Purpose, *, party: str, round: int, step: int = 0) -> RandomSource:
            return _Byte(round)

    coins = AddressedCoins(Given())
    for rate in (0.75, 0.5, 3 / 256, 255 / 256, 1.0):
        assert sum(coins.heads(rate, client="a", round=byte) for byte in range(256)) == rate * 256


class _Byte(RandomSource):
    secure = False

    def __init__(self, byte: int) -> None:
        super().__init__()
        self._byte = byte

    def _key(self) -> bytes:
        raise AssertionError

    def read(self, size: int) -> bytes:
        assert size <= 1
        return bytes([self._byte])[:size]


def test_seeded_coins_depend_on_the_client_and_the_round_alone() -> None:
    coins, others = (AddressedCoins(SeededRandomness(1, allow_insecure=True)) for _ in range(2))
    names = [f"c{i}" for i in range(40)]
    first = sample(names, 0.5, partial(coins.heads, round=3))
    # Another order, and some of the clients gone: the rest throw what they threw.
    assert sample(reversed(names), 0.5, partial(others.heads, round=3)) == first
    assert sample(names[10:], 0.5, partial(others.heads, round=3)) == [c for c in first if c in names[10:]]
    assert sample(names, 0.5, partial(others.heads, round=4)) != first


def test_seeded_central_noise_and_sessions_are_those_of_their_round_and_secrets_are_never_seeded() -> None:
    one, other = (SeededRandomness(1, allow_insecure=True) for _ in range(2))
    skipped = DiscreteGaussianNoise(other)
    skipped.of(1)(5.0, 1000)
    noise = DiscreteGaussianNoise(one).of(2)(5.0, 50)
    assert skipped.of(2)(5.0, 50).tolist() == noise.tolist()
    assert skipped.of(3)(5.0, 50).tolist() != noise.tolist()
    coins, others = AddressedCoins(one), AddressedCoins(other)
    assert coins.session(2) == others.session(2) != coins.session(3)
    assert len(coins.session(2)) == 32
    assert coins.token(32) != others.token(32)


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5, float("nan")])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        AddressedCoins().heads(rate, client="a", round=1)


STATES: tuple[RoundState, ...] = get_args(RoundState)
ALLOWED = {
    *(("collecting", target) for target in ("settled", "abandoned", "stopped")),
    *(("settled", target) for target in ("released", "abandoned", "stopped")),
}
names = st.sets(st.sampled_from([f"h{i}" for i in range(9)]))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("target", STATES)
def test_rounds_only_go_forward(state: RoundState, target: RoundState) -> None:
    if (state, target) in ALLOWED:
        assert move(state, target) == target
    else:
        with pytest.raises(IllegalMove):
            move(state, target)


def of(received: set[str] = frozenset(), **others: set[str]) -> Attendance:  # type: ignore[assignment]
    sets = {name: frozenset(others.get(name, ())) for name in ("waiting", "missing", "survivors", "enrolled")}
    return Attendance(frozenset(received), sending=frozenset(received | others.get("sending", set())), **sets)


@given(received=names, waiting=names, sending=names, least=st.integers(0, 9), lost=st.booleans())
def test_a_round_in_the_clear_is_free_only_if_nothing_was_let_in(
    received: set[str], waiting: set[str], sending: set[str], least: int, lost: bool
) -> None:
    chosen = settings(schedule={"min_clients": least})
    seen = of(received, waiting=waiting, sending=sending)
    decided = ending(chosen, Collected(seen, (), None), {}, lost=lost, publishes=False)
    if len(received) < least:
        assert decided == Abandon("too-few-clients", charged=bool(sending | received))
    else:
        assert decided == (Abandon("updates-lost", charged=True) if lost else Settle(None))


@given(received=names, sending=names, opened=st.booleans(), masked=st.booleans(), failed=st.booleans())
def test_a_masked_round_is_free_only_if_no_share_can_have_been_opened(
    received: set[str], sending: set[str], opened: bool, masked: bool, failed: bool
) -> None:
    end = SecureSumEnd("expired" if failed else None, opened, masked)
    seen = of(received, sending=sending)
    charged = opened or (not masked and bool(sending | received))
    assert was_seen(seen, end) == charged
    decided = ending(settings(schedule={"min_clients": 3}), Collected(seen, (), end), {}, lost=False, publishes=False)
    if failed:
        assert decided == Abandon("expired", charged)
    elif len(received) < 3:
        assert decided == Abandon("too-few-clients", charged)
    else:
        assert decided == Settle(None)


@given(waiting=names, now=st.floats(0, 100), deadline=st.floats(0, 100))
def test_collecting_ends_when_all_have_answered_or_at_the_deadline(
    waiting: set[str], now: float, deadline: float
) -> None:
    seen = of(waiting=waiting, missing={"gone"})
    assert seen.is_due(deadline=deadline, now=now) == (not waiting or now >= deadline)


def test_rounds_that_come_to_nothing_follow_each_other_more_and_more_slowly() -> None:
    assert [pause_after(n) for n in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
