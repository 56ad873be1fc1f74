"""A study that evaluates its models on a schedule, and what people at a hospital decided about its questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.study.permission import Permission
from study_protocol.study.queries import QueryDocument
from tests.factories.hospitals import plain_policy
from tests.factories.settings import limit, settings

QUESTION: dict[str, Any] = {"prediction": "binary", "noise_multiplier": 3.0, "edges": [0.4]}
# Three rounds: one evaluation after the second, one after the last.
STUDY = settings(
    statistics={"max_queries": 9, "max_cells": 100},
    evaluation={"share": 0.4, "every": 2, "question": QUESTION},
    limits=[limit("instance", epsilon=1e6)],
    max_steps=3,
)


def document(model: int = 2, version: str = "1", **entries: Any) -> QueryDocument:
    asked = {"kind": "evaluation", "model": model} | QUESTION | entries
    return QueryDocument.model_validate({"question": asked, "data_version": version})


def permission(directory: Path, ledger: HospitalLedger, queries: str = "ask") -> Permission:
    """What was decided in `directory`, under a policy that asks people unless `queries` says otherwise."""
    policy = plain_policy(statistics={"queries": queries})
    return Permission("sepsis", STUDY, policy, Approvals(directory, "sepsis"), ledger)
