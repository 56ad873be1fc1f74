"""The life of a study: draft → enrolling → running ⇄ paused → finished, and what goes on while it is paused.

A study that was opened for questions first is paused with the reason `questions-first` until training begins. So
programs that know the five states alone go on.
"""

from __future__ import annotations

from typing import Literal

from server.domain.errors import Rejected
from study_protocol.study.messages import StudyState
from study_protocol.study.reasons import BY_OPERATOR, HOSPITALS_MISSING, QUESTIONS_FIRST

Action = Literal["start", "start-asking", "train", "pause", "resume", "stop"]
_Stage = Literal[StudyState, "asking"]

_MOVES: dict[Action, tuple[_Stage, _Stage]] = {
    "start": ("enrolling", "running"),
    "start-asking": ("enrolling", "asking"),
    "train": ("asking", "running"),
    "pause": ("running", "paused"),
    "resume": ("paused", "running"),
}
_FIRST_WAIT, _LONGEST_WAIT = 600.0, 86_400.0


def move(state: StudyState, action: Action, pause_reason: str | None = None) -> tuple[StudyState, str | None]:
    """Return the state and the reason of the pause after a lead's action. One that has taken effect changes none.

    Raises:
        Rejected: `study-finished`, `model-missing`, `study-not-running`, `study-begun`.
    """
    if action == "stop":
        return "finished", None
    if action == "pause" and pause_reason in HOSPITALS_MISSING:
        # A study that would resume by itself stays paused once a person says so.
        return "paused", BY_OPERATOR
    stage: _Stage = "asking" if (state, pause_reason) == ("paused", QUESTIONS_FIRST) else state
    origin, target = _MOVES[action]
    if stage == target:
        return state, pause_reason
    if stage != origin:
        raise _out_of_place(stage, action)
    if target == "asking":
        return "paused", QUESTIONS_FIRST
    return ("paused", BY_OPERATOR) if target == "paused" else ("running", None)


def _out_of_place(stage: _Stage, action: Action) -> Rejected:
    match stage:
        case "finished":
            return Rejected("study-finished", "a finished study stays finished: open a new one")
        case "draft":
            return Rejected("model-missing", "upload the initial weights to models/0 first")
        case "asking":
            return Rejected(
                "study-not-running", "the study takes questions first: `wardround study train` begins its training"
            )
        case "paused":
            return Rejected("study-not-running", "the study is paused: resume it")
        case "running" if action == "start-asking":
            return Rejected(
                "study-begun", "the study trains already and takes questions between rounds. Pause it to hold training"
            )
        case _:
            return Rejected("study-not-running", "the study has not been started")


def resumes_alone(pause_reason: str | None, *, earlier: int, charged: bool, paused_seconds: float) -> bool:
    """Return whether a study that paused for want of hospitals may resume by itself now that they are back.

    At once the first time after a release or a person's resumption. After that only if the rounds that failed cost
    nothing, and after ten minutes, then twenty, up to a day: hospitals that come back and fail again must neither use
    up the budget nor fill the ledger.

    Args:
        earlier: how often it has resumed by itself since then.
        charged: a round that failed since then was charged.
    """
    if pause_reason not in HOSPITALS_MISSING:
        return False
    # Bounded, or the power would overflow.
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(earlier - 1, 20))
    return earlier == 0 or (not charged and paused_seconds >= wait)


def unknown_study() -> Rejected:
    return Rejected(
        "unknown-study",
        "there is no study of this name: check its spelling. Keys show the names of their studies with "
        "`wardround study list` (GET /v1/studies)",
    )


def require_open(state: StudyState) -> None:
    """Raises Rejected `study-finished`."""
    if state == "finished":
        raise Rejected("study-finished", "the study is finished: it takes and gives no more data")
