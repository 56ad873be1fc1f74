"""For whom the Bayesian number does not speak: one question at the end, and what the certificate says by hospital."""

from __future__ import annotations

import math
from typing import Any

from accounting.budget.budget import Budget
from client_sdk.api import calls
from client_sdk.api.client import Client
from study_protocol.queries.kinds.distances import EDGES, Distances
from study_protocol.study.certificate import SignedCertificate
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from study_protocol.study.settings import StudySettings

# Of the limit. More would not show more: what hides one patient hides the difference between these hospitals.
SHARE = 0.05
_MOST_NOISE = 1000.0


def statistics(hospitals: int) -> dict[str, Any]:
    """Return the section of the settings that allows the question."""
    return {"max_queries": 1, "max_cells": hospitals * len(EDGES), "share": SHARE}


def question(study: StudySettings) -> QueryDocument | None:
    """Return the question with the least noise that its share pays for, or None if the study does not allow one."""
    if study.privacy.bayesian is None or study.statistics is None:
        return None
    low, high = 0.3, _MOST_NOISE
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _fits(study, middle) else (middle, high)
    return _asking(math.ceil(100 * high) / 100)


def certified(operator: Client, study: str) -> tuple[bytes, list[str]]:
    """Return the signed certificate, and what it says by hospital: empty if the question was not answered."""
    raw = operator.send(calls.certificate(study))
    distances = SignedCertificate.model_validate_json(raw).certificate.distances
    return raw, [] if distances is None else distances.words


def _asking(noise: float) -> QueryDocument:
    return QueryDocument(question=Distances(kind="distances", by="hospital", noise_multiplier=noise))


def _fits(study: StudySettings, noise: float) -> bool:
    return Budget(plan_of(study)).authorise_query(_asking(noise).cost()).is_allowed
