from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.domain.study import Action, move, require_open, resumes_alone
from study_protocol.study.reasons import BY_OPERATOR, HOSPITALS_MISSING, QUESTIONS_FIRST, REASONS

# The whole table: what an action leads to, or the code it is refused with.
TABLE: dict[tuple[str, Action], str] = {
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
    ("draft", "train"): "!model-missing",
    ("draft", "start-asking"): "!model-missing",
    ("enrolling", "train"): "!study-not-running",
    ("enrolling", "start-asking"): "asking",
    ("running", "train"): "running",
    ("running", "start-asking"): "!study-begun",
    ("paused", "train"): "!study-not-running",
    ("paused", "start-asking"): "!study-not-running",
    ("asking", "start"): "!study-not-running",
    ("asking", "start-asking"): "asking",
    ("asking", "train"): "running",
    ("asking", "pause"): "!study-not-running",
    ("asking", "resume"): "!study-not-running",
    ("asking", "stop"): "finished",
    ("finished", "train"): "!study-finished",
    ("finished", "start-asking"): "!study-finished",
}


STANDING = {
    "asking": ("paused", QUESTIONS_FIRST),
    "paused": ("paused", BY_OPERATOR),
    **{state: (state, None) for state in ("draft", "enrolling", "running", "finished")},
}


@pytest.mark.parametrize(("given", "expected"), TABLE.items())
def test_every_action_in_every_state(given: tuple[str, Action], expected: str) -> None:
    (state, reason), action = STANDING[given[0]], given[1]
    if expected.startswith("!"):
        with pytest.raises(Rejected) as refused:
            move(state, action, reason)
        assert refused.value.code == expected[1:]
    else:
        assert move(state, action, reason) == STANDING[expected]


def test_a_resumption_ends_any_pause_but_that_before_training() -> None:
    for reason in HOSPITALS_MISSING:
        assert move("paused", "resume", reason) == ("running", None)


def test_a_persons_pause_ends_the_wait_for_hospitals_and_excuses_no_failure() -> None:
    for reason in REASONS:
        kept = BY_OPERATOR if reason in HOSPITALS_MISSING else reason
        if reason != QUESTIONS_FIRST:
            assert move("paused", "pause", reason) == ("paused", kept)


def test_a_study_resumes_alone_only_after_missing_hospitals() -> None:
    for reason in {*REASONS, "unknown"} - set(HOSPITALS_MISSING):
        assert not resumes_alone(reason, earlier=0, charged=False, paused_seconds=1e9)
    assert not resumes_alone(None, earlier=0, charged=False, paused_seconds=1e9)
    for reason in HOSPITALS_MISSING:
        assert resumes_alone(reason, earlier=0, charged=True, paused_seconds=0.0)


def test_it_resumes_alone_more_and_more_seldom_and_never_again_after_a_charge() -> None:
    for earlier, minutes in ((1, 10), (2, 20), (3, 40), (8, 1280), (9, 1440), (5000, 1440)):
        seconds = 60.0 * minutes
        assert not resumes_alone("too-few-keys", earlier=earlier, charged=False, paused_seconds=seconds - 1)
        assert resumes_alone("too-few-keys", earlier=earlier, charged=False, paused_seconds=seconds)
        assert not resumes_alone("too-few-keys", earlier=earlier, charged=True, paused_seconds=1e9)


def test_a_finished_study_takes_nothing() -> None:
    with pytest.raises(Rejected, match="study-finished"):
        require_open("finished")
    require_open("paused")
