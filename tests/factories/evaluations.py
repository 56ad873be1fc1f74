"""Questions of kind evaluation, and patients with predictions and outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.answer import Answer
from study_protocol.queries.groups import EVERYBODY
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from tests.factories.questions import AGES, SEX

Columns = dict[str, NDArray[Any]]
_KIND = {"kind": "evaluation", "model": 7}
EVALUATIONS: dict[str, dict[str, Any]] = {
    "threshold": _KIND | {"prediction": "binary", "edges": [0.4]},
    "bins": _KIND | {"prediction": "binary", "bins": 6, "groups": [SEX]},
    "tree": _KIND | {"prediction": "binary", "bins": 20, "groups": [SEX, AGES]},
    "apart": _KIND | {"prediction": "binary", "bins": 20, "groups": [SEX, AGES], "apart": True},
    "classes": _KIND | {"prediction": "classes", "classes": 3, "groups": [SEX]},
    "classes-apart": _KIND | {"prediction": "classes", "classes": 3, "groups": [SEX, AGES], "apart": True},
    "number": _KIND | {"prediction": "number", "low": -4.0, "high": 6.0, "largest_error": 3.0},
    "number-apart": _KIND
    | {"prediction": "number", "low": -4.0, "high": 6.0, "largest_error": 3.0, "groups": [SEX, AGES], "apart": True},
}
EVALUATIONS["number-centred"] = EVALUATIONS["number-apart"] | {"centred": True}
# One patient's greatest squared norm.
SQUARES = {
    "threshold": 1,
    "bins": 1,
    "tree": 2,
    "apart": 4,
    "classes": 1,
    "classes-apart": 2,
    "number": 4,
    "number-apart": 8,
    "number-centred": 6.5,
}


def binary(source: np.random.Generator, count: int) -> Columns:
    """Scores with ties, somewhat too low."""
    z = source.normal(0, 1.5, count)
    scores = np.round(1 / (1 + np.exp(-z)), 2)
    return _grouped(source, scores, source.uniform(size=count) < 1 / (1 + np.exp(-z - 0.3)))


def classes(source: np.random.Generator, count: int) -> Columns:
    outcome = source.choice(3, count, p=[0.5, 0.3, 0.2])
    return _grouped(source, np.where(source.uniform(size=count) < 0.6, outcome, source.integers(0, 3, count)), outcome)


def number(source: np.random.Generator, count: int) -> Columns:
    """A model that is right on average: R² is 9/13 but for clipping."""
    predicted = source.normal(0, 1.5, count)
    return _grouped(source, predicted, predicted + source.normal(0, 1, count))


def evaluated(form: str, count: int, seed: int = 0) -> Columns:
    """Patients for a question of EVALUATIONS."""
    drawn = {"binary": binary, "classes": classes, "number": number}[EVALUATIONS[form]["prediction"]]
    return drawn(np.random.default_rng(seed), count)


def rows(answer: Answer, table: str, group: str = EVERYBODY) -> list[dict[str, Any]]:
    found = next(one for one in answer.tables if one.name == table)
    cells = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    return [row for row in cells if row["group"] == group]


def estimates(answer: Answer, table: str, **wanted: Any) -> list[Any]:
    found = rows(answer, table, wanted.pop("group", EVERYBODY))
    return [row["estimate"] for row in found if all(row[name] == value for name, value in wanted.items())]


def figure(answer: Answer, measure: str, group: str = EVERYBODY) -> float:
    (found,) = estimates(answer, "performance", measure=measure, group=group)
    return found


def who(columns: Columns, group: str) -> NDArray[np.bool_]:
    """Of the groups by sex and age that are looked at below."""
    if group == EVERYBODY:
        return np.ones(len(columns["sex"]), bool)
    named = {"sex: f": columns["sex"] == "f", "age: 60 to 80": (columns["age"] >= 60) & (columns["age"] < 80)}
    return np.logical_and.reduce([named[part] for part in group.split(", ")])


def _grouped(source: np.random.Generator, predicted: NDArray[Any], outcome: NDArray[Any]) -> Columns:
    count = len(predicted)
    return {
        "sex": source.choice(np.array(["f", "m"], object), count, p=[0.5, 0.5]),
        "age": source.choice([30.0, 50.0, 70.0, 90.0, np.nan], count, p=[0.1, 0.3, 0.3, 0.2, 0.1]),
        PREDICTION: predicted.astype(np.float64),
        OUTCOME: outcome.astype(np.float64),
    }
