"""A regression in steps, and hospitals that answer it in the clear, through the use cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.services.coordinator import Coordinator
from server.services.queries import ask
from study_protocol.queries.answer import NoisedSum
from study_protocol.study.queries import Consent, Query, QueryDocument
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.asked_studies import STUDY, shown
from tests.factories.hospital_double import Hospital
from tests.factories.questions import AGE, FEMALE, PRESSURE, exact, patients
from tests.factories.studies import work

REGRESSION: dict[str, Any] = {
    "kind": "glm",
    "family": "logistic",
    "outcome": FEMALE,
    "predictors": [AGE, PRESSURE],
    "noise_multiplier": 4.0,
    "steps": 3,
}


def regression(**entries: Any) -> QueryDocument:
    return QueryDocument.model_validate({"question": REGRESSION | entries})


def send_sum(hospital: Hospital, query: Query, place: int = 0, count: int = 800) -> None:
    """The sum of a hospital's own patients, without noise. place: of the hospital, so that each has other patients."""
    assert query.round is not None
    question = query.document.question
    total = question.at_hospital(hospital.name).total(patients(count, seed=place), question.grid().spacing)
    sums = question.placed(total, hospital.name).astype(np.float64)
    hospital.send(query.round, encode({ANSWER_TENSOR: sums}))


def allow(coordinator: Coordinator, hospitals: Sequence[Hospital], number: int, *, allowed: bool = True) -> None:
    for hospital in hospitals:
        ask.consent(coordinator, STUDY, number, hospital.name, Consent(allowed=allowed))


def answer_step(coordinator: Coordinator, hospitals: Sequence[Hospital], number: int) -> None:
    allow(coordinator, hospitals, number)
    work(coordinator)
    query = shown(coordinator, number)
    for place, hospital in enumerate(hospitals):
        send_sum(hospital, query, place)
    work(coordinator)


def later_steps(document: QueryDocument, columns: Mapping[str, NDArray[Any]] | None = None) -> list[QueryDocument]:
    """Every step of a question, from the exact sums of these patients. None: of 500."""
    asked_of, steps = patients(500) if columns is None else columns, [document]
    while True:
        question = steps[-1].question
        following = steps[-1].next_step(question.answer(NoisedSum(exact(question, asked_of), 1e-9, 1)))
        if following is None:
            return steps
        steps.append(following)
