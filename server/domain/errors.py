"""Rejections by the coordinator. They change no state. The code is stable, and the text says what to do next."""

from __future__ import annotations

from typing import Any, Literal

WhoAsks = Literal[
    "bad-token",
    "bad-signature",
    "replayed",
    "revoked",
    "forbidden",
    "client-too-old",
    "too-many-requests",
    "too-many-logins",
    "login-refused",
]
Unknown = Literal[
    "unknown-study",
    "unknown-client",
    "unknown-model",
    "unknown-key",
    "round-unknown",
    "invitation-unknown",
    "no-session",
    "unknown-query",
    "unknown-witness",
    "unknown-login",
    "no-single-sign-on",
]
StudyForbids = Literal[
    "frozen",
    "not-enrolled",
    "too-few-enrolled",
    "study-exists",
    "study-begun",
    "study-not-running",
    "study-finished",
    "model-missing",
    "no-queries",
    "no-evaluation",
    "query-overspends",
    "query-closed",
    "query-opened",
]
RoundForbids = Literal["not-sampled", "different-update", "round-closed", "unknown-head"]
SessionForbids = Literal["too-early", "session-failed", "different-message"]
InvitationForbids = Literal["invitation-used", "invitation-expired"]
Body = Literal["body-too-large", "digest-mismatch", "log-moments-missing", "invalid-request"]
Length = Literal["clip-exceeded", "norm-exceeded"]
Tensors = Literal[
    "malformed-tensors",
    "wrong-names",
    "wrong-shape",
    "wrong-dtype",
    "not-finite",
    "weights-out-of-bounds",
    "wrong-metadata",
]
Forbids = Literal[StudyForbids, RoundForbids, SessionForbids, InvitationForbids]
Code = Literal[
    WhoAsks, Unknown, Forbids, Body, Length, Tensors, "first-round-overspends", "whole-plan-overspends", "beyond-bounds"
]


class Rejected(Exception):
    """A refused request. `code` is one of `Code`. `extra` holds values for programs, never a submitted value."""

    def __init__(self, code: Code, detail: str, **extra: Any) -> None:
        super().__init__(f"{code}: {detail}")
        self.code: Code = code
        self.detail = detail
        self.extra: dict[str, Any] = extra
