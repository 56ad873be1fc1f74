"""Questions, patients and their sums, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds import QUESTION, Question

AGE = {"column": "age", "low": 0, "high": 100}
FEMALE = {"column": "sex", "categories": ["f"]}
PRESSURE = {"column": "pressure", "low": 50, "high": 250}
SEX = {"column": "sex", "categories": ["f", "m"]}
AGES = {"column": "age", "edges": [40, 60, 80]}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "count": {"kind": "count"},
    "table": {"kind": "table", "variables": [SEX, AGES]},
    "tables": {"kind": "tables", "tables": [[SEX], [AGES], [{"column": "pressure", "presence": True}]]},
    "marginals": {
        "kind": "marginals",
        "variables": [SEX, AGES, {"column": "pressure", "edges": [90, 120, 150]}],
        "cliques": [[0], [0, 1], [1, 2]],
        "groups": [[], [0, 0, 1, 1, 2], []],
        "weights": [1, 3, 2],
    },
    "moments": {"kind": "moments", "numbers": [AGE, PRESSURE, FEMALE]},
    "covariance": {"kind": "covariance", "numbers": [AGE, PRESSURE, FEMALE]},
    "linear-regression": {"kind": "linear-regression", "predictors": [AGE, FEMALE], "outcome": PRESSURE},
    "quantiles": {"kind": "quantiles", "number": PRESSURE | {"high": 300}, "leaves": 40, "by": SEX},
    "sites": {"kind": "sites", "variables": [AGE, SEX, {"column": "pressure", "edges": [90, 120, 150]}]},
    "survival": {
        "kind": "survival",
        "time": {"column": "age", "edges": [18, 40, 60, 80]},
        "event": {"column": "sex", "categories": ["f"]},
        "by": {"column": "pressure", "edges": [140]},
    },
}

# One of every kind: a new kind is tested over HTTP, and for what is kept of it, by a line here.
EXAMPLES: dict[str, dict[str, Any]] = DOCUMENTS | {
    "glm": {"kind": "glm", "family": "logistic", "outcome": FEMALE, "predictors": [AGE, PRESSURE]},
    "quantiles": {"kind": "quantiles", "number": AGE},
    "survival": {"kind": "survival", "time": {"column": "age", "edges": [0, 20, 40, 60, 80, 100]}, "event": FEMALE},
    "evaluation": {"kind": "evaluation", "model": 1, "prediction": "binary"},
    "distances": {"kind": "distances"},
}


def question(document: Mapping[str, Any], **entries: Any) -> Question:
    return QUESTION.validate_python({"noise_multiplier": 4.0} | document | entries)


def patients(count: int, seed: int = 0, missing: float = 0.1) -> dict[str, NDArray[Any]]:
    """age, pressure: numbers, some missing, some outside the ranges; sex: f, m, x or missing."""
    source = np.random.default_rng(seed)
    age = source.normal(62, 14, count)
    sex = source.choice(np.array(["f", "m", "x", None], object), count, p=[0.48, 0.44, 0.03, 0.05])
    pressure = 100 + 0.6 * age + 6 * (sex == "f") + source.normal(0, 25, count)
    for column in (age, pressure):
        column[source.uniform(size=count) < missing] = np.nan
    return {"age": age, "sex": sex, "pressure": pressure}


def exact(asked: Question, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """The sum of the rounded vectors, on their own scale."""
    spacing = asked.grid().spacing
    return asked.total(columns, spacing) * spacing


def answer_without_noise(asked: Question, columns: Mapping[str, NDArray[Any]]) -> Answer:
    return asked.answer(NoisedSum(exact(asked, columns), 0.0, 1))


def column(answer: Answer, table: str, name: str = "estimate") -> NDArray[np.float64]:
    """One column of numbers, None as NaN."""
    found = next(one for one in answer.tables if one.name == table)
    place = found.columns.index(name)
    return np.array([np.nan if row[place] is None else row[place] for row in found.rows], np.float64)


def clipped(columns: dict[str, NDArray[Any]]) -> pd.DataFrame:
    """As the questions of DOCUMENTS read them."""
    sex = pd.Series(columns["sex"])
    return pd.DataFrame(
        {
            "age": np.clip(columns["age"], 0, 100),
            "pressure": np.clip(columns["pressure"], 50, 250),
            "f": np.where(sex.isna(), np.nan, sex == "f"),
        }
    )


def kinds() -> set[str]:
    """Every kind that a question can be of."""
    return set(QUESTION.json_schema()["discriminator"]["mapping"])
