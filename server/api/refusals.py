"""The errors of the catalogue that each operation can answer with, beside those that follow from its input.

Tests compare this with every problem that they are answered: a code that is missing here fails them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Unsigned requests: monitors have no key, and an enrolling hospital or a person who logs in is about to get one.
OPEN = frozenset({"/version", "/livez", "/readyz", "/v1/enrolments", "/v1/logins", "/v1/logins/poll"})
_WITHOUT_A_STORE = ("/version", "/livez")
_TENSORS = ("malformed-tensors", "wrong-names", "wrong-shape", "wrong-dtype", "not-finite")
_IN_ROUND = ("round-unknown", "not-sampled", "round-closed", "unknown-head", "different-update")
_OF_OPERATION: Mapping[str, tuple[str, ...]] = {
    "create_study": ("study-exists", "first-round-overspends", "whole-plan-overspends", "beyond-bounds"),
    "start_study": ("model-missing", "study-not-running", "too-few-enrolled", "no-queries", "study-begun"),
    "train_study": ("model-missing", "study-not-running", "too-few-enrolled"),
    "pause_study": ("model-missing", "study-not-running"),
    "resume_study": ("model-missing", "study-not-running"),
    "delete_study": ("study-begun",),
    "stop_study": ("study-not-running",),
    "invite": ("frozen",),
    "enrol": (
        *("bad-signature", "invitation-unknown", "invitation-used", "invitation-expired"),
        *("frozen", "revoked", "study-finished", "client-too-old"),
    ),
    "show_roster": ("round-unknown",),
    "rotate_key": ("bad-signature", "frozen", "unknown-client", "not-enrolled"),
    "put_lacking_columns": ("unknown-client", "not-enrolled"),
    "revoke": ("unknown-client", "not-enrolled"),
    "withdraw": ("unknown-client", "not-enrolled"),
    "put_initial_model": ("frozen", "weights-out-of-bounds", "wrong-metadata", *_TENSORS),
    "get_model": ("unknown-model", "range-not-satisfiable"),
    "put_metrics": ("unknown-model",),
    "read_certificate": ("unknown-model",),
    "put_witness": ("unknown-head", "not-enrolled"),
    "put_outside_witness": ("unknown-head", "unknown-witness"),
    "next_assignment": ("not-enrolled", "round-unknown"),
    "put_update": (*_IN_ROUND, *_TENSORS, "clip-exceeded", "norm-exceeded", "log-moments-missing"),
    "put_refusal": _IN_ROUND,
    "show_round": ("round-unknown",),
    "ask_query": ("no-queries", "no-evaluation", "unknown-model", "query-overspends", "query-opened"),
    "forecast_query": ("no-queries", "no-evaluation"),
    "synthesis_json": ("no-queries",),
    "synthesis_shares_json": ("no-queries",),
    "show_query": ("unknown-query",),
    "query_json": ("unknown-query",),
    "put_consent": ("unknown-query", "query-closed", "not-enrolled"),
    "revoke_key": ("unknown-key",),
    "begin_login": ("no-single-sign-on", "login-refused", "too-many-logins", "too-many-requests"),
    "poll_login": ("no-single-sign-on", "login-refused", "unknown-login", "too-many-requests", "forbidden"),
}
_OF_SESSIONS = (
    *("round-unknown", "no-session", "not-sampled", "too-early", "different-message", "unknown-head"),
    *("session-failed", "round-closed"),
)


def refusals_of(path: str, method: str, operation: Mapping[str, Any]) -> frozenset[str]:
    """Return the codes of one operation of the OpenAPI document. `path` is a template, `method` is in small letters."""
    codes = {"internal", "unavailable"} if path not in _WITHOUT_A_STORE else {"internal"}
    if path not in OPEN:
        codes |= {"bad-token", "bad-signature", "wrong-target", "clock-skew", "revoked", "forbidden", "digest-mismatch"}
        codes |= {"client-too-old"}
        if method == "post" or operation["operationId"] == "rotate_key":
            # Its token is used once.
            codes |= {"replayed"}
        codes |= {"too-many-requests"}
    if {"parameters", "requestBody"} & set(operation):
        codes |= {"invalid-request"}
    # Any request may carry a body, and what is signed is read to its end.
    if path not in (*_WITHOUT_A_STORE, "/readyz"):
        codes |= {"body-too-slow", "body-too-large", "body-truncated"}
    if "{study}" in path:
        codes |= {"unknown-study", "study-finished"}
    if "/secure-sum" in path:
        codes |= set(_OF_SESSIONS)
    return frozenset(codes | set(_OF_OPERATION.get(str(operation["operationId"]), ())))
