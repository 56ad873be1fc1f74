"""The goldens' own names of what a study shows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

Json = dict[str, Any]

VECTORS = {
    "update": "updates",
    "terms": "costs",
    "client-terms": "clients",
    "papers": "papers",
    "metrics": "records",
}
ENTRIES = {
    "opened": "opened",
    "reserved": "reserved",
    "settled": "settled",
    "charged-in-full": "charged",
    "cancelled": "cancelled",
    "finished": "finished",
}
ENDS = {
    "max-steps-reached": "horizon-reached",
    "budget-exhausted": "budget-exhausted",
    "stopped": "stopped",
    None: None,
}
_REPORT = {
    "counts": "counts",
    "sample_size": "size",
    "count_noise": "noise",
    "filter": "at λ",
    "moments": "at λs",
    "complete": "complete",
    "papers": "papers",
    "records": "records",
    "clients": "clients",
}


def report_of(reported: Any) -> Any:
    """The same numbers under names of their own."""
    if isinstance(reported, dict):
        return {_REPORT[name]: report_of(value) for name, value in reported.items()}
    return [report_of(value) for value in reported] if isinstance(reported, list) else reported


def limit_of(limit: Json) -> Json:
    certificate = None if limit["certificate"] is None else _certificate(limit["certificate"])
    return {
        "who": f"{limit['level']} {limit['definition']} {limit['state']}",
        "ε δ": [limit["epsilon"], limit["delta"]],
        "spent": limit["spent"],
        "reserved": limit["reserved"],
        "remaining": limit["remaining"],
        "left": limit["rounds_left_estimate"],
        "certificate": certificate,
        "reports": [[report["epsilon"], *_certificate(report["certificate"])] for report in limit["reports"]],
    }


def _certificate(value: Json) -> list[Any]:
    """ε, δ, β, γ, λ, all λ, rates, steps, horizon, and whether a classical number caps it; then its words."""
    numbers = ("epsilon", "delta", "beta", "gamma", "order", "orders", "sampling_rate", "steps", "max_steps", "capped")
    words = ("definition", "relation", "observer")
    return [*(value[name] for name in numbers), " ".join(value[name] for name in words)]


def fingerprint(exact: bytes, values: np.ndarray[Any, Any]) -> Json:
    return {"sha256": hashlib.sha256(exact).hexdigest()[:32], "values": rounded(values)}


def rounded(values: np.ndarray[Any, Any]) -> list[float]:
    """To five digits."""
    return [float(f"{value:.5g}") for value in values]
