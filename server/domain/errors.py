"""What the coordinator says no to. A rejection changes nothing; its code is stable, its text says what to do next."""

from __future__ import annotations

from typing import Any, Literal

Code = Literal[
    # Who asks
    "bad-token",
    "bad-signature",
    "replayed",
    "unknown-client",
    "not-enrolled",
    "revoked",
    # What was asked for
    "unknown-study",
    "unknown-model",
    "unknown-key",
    "round-unknown",
    "invitation-unknown",
    # State
    "frozen",
    "study-exists",
    "study-not-running",
    "study-finished",
    "model-missing",
    "not-sampled",
    "different-update",
    "invitation-used",
    "invitation-expired",
    "round-closed",
    "no-session",
    "too-early",
    "session-failed",
    "different-message",
    # The body
    "body-too-large",
    "digest-mismatch",
    "malformed-tensors",
    "wrong-names",
    "wrong-shape",
    "wrong-dtype",
    "not-finite",
    "clip-exceeded",
    "log-moments-missing",
    "invalid-request",
    "first-round-overspends",
]


class Rejected(Exception):
    """`code` is one of `Code`; `extra` holds what a program may want to read, never a submitted value."""

    def __init__(self, code: Code, detail: str, **extra: Any) -> None:
        super().__init__(f"{code}: {detail}")
        self.code: Code = code
        self.detail = detail
        self.extra: dict[str, Any] = extra
