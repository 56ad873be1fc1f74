from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.rounds import (
    Abandon,
    Attendance,
    Collected,
    IllegalMove,
    SecureSumEnd,
    Settle,
    abandonment,
    move,
    pause_after,
    settled,
    was_seen,
)
from study_protocol.study.messages import RoundState
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings

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


def ending(chosen: StudySettings, collected: Collected, *, lost: bool) -> Settle | Abandon:
    found = abandonment(chosen.schedule.min_clients, collected, lost=lost)
    return settled(chosen, collected, {}, publishes=False) if found is None else found


def of(received: set[str] = frozenset(), **others: set[str]) -> Attendance:  # type: ignore[assignment]
    sets = {name: frozenset(others.get(name, ())) for name in ("waiting", "missing", "survivors", "enrolled")}
    return Attendance(frozenset(received), sending=frozenset(received | others.get("sending", set())), **sets)


@given(received=names, waiting=names, sending=names, least=st.integers(0, 9), lost=st.booleans())
def test_a_round_in_the_clear_is_free_only_if_nothing_was_let_in(
    received: set[str], waiting: set[str], sending: set[str], least: int, lost: bool
) -> None:
    chosen = settings(schedule={"min_clients": least})
    seen = of(received, waiting=waiting, sending=sending)
    decided = ending(chosen, Collected(seen, (), None), lost=lost)
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
    decided = ending(settings(schedule={"min_clients": 3}), Collected(seen, (), end), lost=False)
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
    assert pause_after(100_000) == 60
