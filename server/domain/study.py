"""The life of a study: draft → enrolling → running ⇄ paused → finished."""

from __future__ import annotations

from typing import Literal

from server.domain.errors import Rejected
from study_protocol.study.messages import StudyState

Action = Literal["start", "pause", "resume", "stop"]

_MOVES: dict[Action, tuple[StudyState, StudyState]] = {
    "start": ("enrolling", "running"),
    "pause": ("running", "paused"),
    "resume": ("paused", "running"),
}


def move(state: StudyState, action: Action) -> StudyState:
    """Return the state after an operator's action. An action that has taken effect already makes no change.

    Raises:
        Rejected: `study-finished`, `model-missing`, `study-not-running`.
    """
    if action == "stop":
        return "finished"
    origin, target = _MOVES[action]
    if state in (origin, target):
        return target
    if state == "finished":
        raise Rejected("study-finished", "a finished study stays finished: open a new one")
    if state == "draft":
        raise Rejected("model-missing", "upload the initial weights to models/0 first")
    if state == "paused":
        raise Rejected("study-not-running", "the study is paused: resume it")
    raise Rejected("study-not-running", "the study has not been started")


def unknown_study() -> Rejected:
    return Rejected(
        "unknown-study",
        "there is no study of this name: check its spelling. Operators and viewers see all names with "
        "`wardround study list` (GET /v1/studies)",
    )


def require_open(state: StudyState) -> None:
    """Raises Rejected `study-finished`."""
    if state == "finished":
        raise Rejected("study-finished", "the study is finished: it takes and gives no more data")
