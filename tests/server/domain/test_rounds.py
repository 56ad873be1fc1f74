from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.protocol.study.messages import RoundState
from server.domain.rounds import Abandon, Attendance, IllegalMove, Settle, close, ended, move, pause_after

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


def test_what_ends_a_round() -> None:
    assert [state for state in STATES if ended(state)] == ["released", "abandoned", "stopped"]


@given(received=names, refused=names, waiting=names, sending=names, least=st.integers(0, 10))
def test_a_round_is_free_only_if_nothing_was_let_in(
    received: set[str], refused: set[str], waiting: set[str], sending: set[str], least: int
) -> None:
    seen = Attendance(received, refused, waiting, (), sending | received)
    ending = close(seen, min_clients=least)
    if len(received) >= least:
        assert ending == Settle()
    else:
        assert ending == Abandon("too-few-clients", charged=bool(sending | received))


@given(waiting=names, now=st.floats(0, 100), deadline=st.floats(0, 100))
def test_collecting_ends_when_all_have_answered_or_at_the_deadline(
    waiting: set[str], now: float, deadline: float
) -> None:
    seen = Attendance((), (), waiting, ("gone",), ())
    assert seen.is_due(deadline=deadline, now=now) == (not waiting or now >= deadline)


def test_rounds_that_come_to_nothing_follow_each_other_more_and_more_slowly() -> None:
    assert [pause_after(n) for n in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
