"""How good the last model is on the hospitals' own patients: a fifth is set aside, and one query counts them.

A table of two outcomes by two predictions: with some ninety patients more cells would be noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.budget.budget import Budget
from client_sdk.api.client import Client
from study_protocol.queries.answer import AnswerTable
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from study_protocol.study.settings import StudySettings

SHARE = 0.2
MEASURE = "accuracy at 0.5"
# Two by two, and those whose prediction or outcome cannot be used.
_CELLS = 5
_MOST_NOISE = 100.0


@dataclass(frozen=True)
class OwnPatients:
    """accuracy: with noise, low to high its 95 % interval, of noise and of chance. patients: about so many, noised."""

    accuracy: float
    low: float
    high: float
    patients: float

    def in_words(self) -> str:
        return f"95 %: {self.low:.2f} to {self.high:.2f}, about {self.patients:.0f} set aside, by a query"


def with_evaluation(study: StudySettings) -> StudySettings:
    """The same study with a fifth set aside, and its last model evaluated: scheme parallel on two classes."""
    rules = study.privacy.rules
    if rules.central or rules.pooled or study.privacy.bayesian is not None:
        return study
    if study.training.task != "logistic-regression":
        return study
    low, high = 0.3, _MOST_NOISE
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _fits(_with(study, middle)) else (middle, high)
    return _with(study, math.ceil(100 * high) / 100)


def answer(operator: Client, study: str) -> OwnPatients | None:
    """The answer of the query; None: there was none, or it was not answered."""
    for query in operator.queries(study).queries:
        answered = operator.query(study, query.number).answered
        if answered is None:
            continue
        tables = answered.published.answer.tables
        table = next((table for table in tables if table.name == "performance"), None)
        if table is not None:
            return _measured(table)
    return None


def _measured(table: AnswerTable) -> OwnPatients | None:
    place = table.columns.index("measure")
    measured = next(row for row in table.rows if row[place] == MEASURE)
    row = dict(zip(table.columns, measured, strict=True))
    names = ("estimate", "low", "high", "patients")
    numbers = [float(value) for name in names if (value := row[name]) is not None]
    return OwnPatients(*numbers) if len(numbers) == len(names) else None


def _with(study: StudySettings, noise: float) -> StudySettings:
    question = {"prediction": "binary", "noise_multiplier": noise}
    return StudySettings.model_validate(
        study.as_json()
        | {
            "statistics": {"max_queries": 1, "max_cells": _CELLS},
            # After more models than there are rounds: the last one alone.
            "evaluation": {"share": SHARE, "every": study.rounds, "question": question},
        }
    )


def _fits(study: StudySettings) -> bool:
    question = None if study.evaluation is None else study.evaluation.question
    assert question is not None, "the demonstration's own settings"
    return Budget(plan_of(study)).authorise_query(QueryDocument(question=question.of(1)).cost()).is_allowed
