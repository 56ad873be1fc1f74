from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.domain.study import Action, move, require_open
from study_protocol.study.messages import StudyState

# The whole table: what an action leads to, or the code it is refused with.
TABLE: dict[tuple[StudyState, Action], str] = {
    ("draft", "start"): "!model-missing",
    ("draft", "pause"): "!model-missing",
    ("draft", "resume"): "!model-missing",
    ("draft", "stop"): "finished",
    ("enrolling", "start"): "running",
    ("enrolling", "pause"): "!study-not-running",
    ("enrolling", "resume"): "!study-not-running",
    ("enrolling", "stop"): "finished",
    ("running", "start"): "running",
    ("running", "pause"): "paused",
    ("running", "resume"): "running",
    ("running", "stop"): "finished",
    ("paused", "start"): "!study-not-running",
    ("paused", "pause"): "paused",
    ("paused", "resume"): "running",
    ("paused", "stop"): "finished",
    ("finished", "start"): "!study-finished",
    ("finished", "pause"): "!study-finished",
    ("finished", "resume"): "!study-finished",
    ("finished", "stop"): "finished",
}


@pytest.mark.parametrize(("given", "expected"), TABLE.items())
def test_every_action_in_every_state(given: tuple[StudyState, Action], expected: str) -> None:
    state, action = given
    if expected.startswith("!"):
        with pytest.raises(Rejected) as refused:
            move(state, action)
        assert refused.value.code == expected[1:]
    else:
        assert move(state, action) == expected


def test_a_finished_study_takes_nothing() -> None:
    with pytest.raises(Rejected, match="study-finished"):
        require_open("finished")
    require_open("paused")
