"""Whatever a sum says, a question that was charged for has an answer: hospitals may send any numbers."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries import second_moments
from study_protocol.queries.answer import AnswerTable, NoisedSum
from study_protocol.queries.evaluation import classes, numbers, scores
from tests.factories.evaluations import EVALUATIONS
from tests.factories.questions import DOCUMENTS, question

# Beyond what 64 bits count: without masks, the numbers of many hospitals are added up as floats.
SIZES = (1e-9, 1e-3, 1.0, 30.0, 1e6, 1e13, 9.3e18, 1e21)
NOISES = (0.0, 1e-9, 1.0, 5.0, 300.0, 1e6, 1e9)
_RANGE = {"low": -1e100, "high": 1e100}
_X, _Z = {"column": "x"} | _RANGE, {"column": "z", "low": 0, "high": 1e-100}
QUESTIONS = (
    DOCUMENTS
    | EVALUATIONS
    | {
        "wide regression": {"kind": "linear-regression", "predictors": [_X, _Z], "outcome": {"column": "y"} | _RANGE},
        "wide covariance": {"kind": "covariance", "numbers": [_X, _Z]},
        "wide quantiles": {"kind": "quantiles", "number": _X, "leaves": 33, "quantiles": [0.01, 0.99]},
        "one bin": {
            "kind": "survival",
            "time": {"column": "t", "edges": [0, 1]},
            "event": {"column": "e", "categories": ["1"]},
        },
    }
)


@pytest.fixture(autouse=True)
def _fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (second_moments, scores, classes, numbers):
        monkeypatch.setattr(module, "SIMULATIONS", 50)


@pytest.mark.slow_cases("apart", "bins", "classes-apart", "threshold", "tree")
@pytest.mark.parametrize("name", QUESTIONS)
def test_any_sum_has_a_sound_answer(name: str) -> None:
    """Errors are never negative, an interval's ends never change places, no count is below zero."""
    asked = question(QUESTIONS[name])
    for seed in range(40):
        source = np.random.default_rng(seed)
        total = np.rint(source.choice(SIZES) * _shape(source, asked.cells) * 64) / 64
        if seed % 2:
            # Many patients, so that something is said of them.
            total[0] = 5 * np.abs(total).max() + 1
        # At a coordinator NumPy only warns.
        with np.errstate(all="ignore"):
            answer = asked.answer(NoisedSum(total, float(source.choice(NOISES)), seed))
        for table in answer.tables:
            _require_sound(table)


def _shape(source: np.random.Generator, cells: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    shapes = (
        source.normal(0, 1, cells),
        np.abs(source.standard_cauchy(cells)),
        np.ones(cells),
        -np.ones(cells),
        np.zeros(cells),
        (source.uniform(size=cells) < 0.2).astype(np.float64),
        np.where(source.uniform(size=cells) < 0.3, -1.0, 1.0),
    )
    return shapes[int(source.integers(len(shapes)))]


def _require_sound(table: AnswerTable) -> None:
    for row in table.rows:
        values = dict(zip(table.columns, row, strict=True))
        numbers = {key: value for key, value in values.items() if isinstance(value, float)}
        assert min(numbers.get("dp_error", 0.0), numbers.get("sampling_error", 0.0)) >= 0
        assert numbers.get("low", -np.inf) <= numbers.get("high", np.inf)
        assert table.counts is None or numbers.get(table.counts, 0.0) >= 0
