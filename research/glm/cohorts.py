"""Cohorts with known coefficients, on which regressions under noise are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Columns = dict[str, Any]
Draw = Callable[[np.random.Generator, int], tuple[Columns, Floats]]
"""generator, patients -> columns, and the (n, p + 1) rows of the design in own units, intercept last."""

_SLOPES = np.array([0.5, -0.4, 0.3, 0.0, 0.2])
_NUMBERS = [f"x{place}" for place in range(5)]


@dataclass(frozen=True)
class KnownCohort:
    """predictors, interactions: of the question. slopes: the true ones, in the order of the design."""

    draw: Draw
    predictors: list[dict[str, Any]]
    slopes: Floats
    interactions: list[list[str]]


def _normal(generator: np.random.Generator, count: int, correlation: float = 0.0, limit: float = 3.0) -> Floats:
    common, single = generator.standard_normal((count, 1)), generator.standard_normal((count, 5))
    return np.clip(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * single, -limit, limit)


def _skewed(generator: np.random.Generator, count: int) -> Floats:
    return np.clip(generator.exponential(size=(count, 5)), 0.0, 6.0)


def _heavy(generator: np.random.Generator, count: int) -> Floats:
    return np.clip(generator.standard_t(3, (count, 5)), -10.0, 10.0)


def _half_yes(generator: np.random.Generator, count: int) -> Floats:
    return (generator.random((count, 5)) < np.array([0.5, 0.3, 0.5, 0.2, 0.6])).astype(float)


def _numbers(values: Callable[[np.random.Generator, int], Floats]) -> Draw:
    def draw(generator: np.random.Generator, count: int) -> tuple[Columns, Floats]:
        x = values(generator, count)
        return dict(zip(_NUMBERS, x.T, strict=True)), np.column_stack([x, np.ones(count)])

    return draw


def _mixed(generator: np.random.Generator, count: int) -> tuple[Columns, Floats]:
    """Two correlated numbers, a category of 30 %, and one of three levels of which one has 3 %."""
    x = _normal(generator, count, 0.3)[:, :2]
    sex, level = generator.random(count) < 0.3, generator.choice(3, count, p=[0.67, 0.3, 0.03])
    columns = {"x0": x[:, 0], "x1": x[:, 1], "sex": np.where(sex, "f", "m"), "site": np.array(list("abc"))[level]}
    return columns, np.column_stack([x, sex, level == 1, level == 2, np.ones(count)]).astype(float)


def _crossed(generator: np.random.Generator, count: int) -> tuple[Columns, Floats]:
    x = _normal(generator, count, 0.2)[:, :2]
    sex = generator.random(count) < 0.4
    columns = {"x0": x[:, 0], "x1": x[:, 1], "sex": np.where(sex, "f", "m")}
    products = [x[:, 0] * x[:, 1], x[:, 0] * sex]
    return columns, np.column_stack([x, sex, *products, np.ones(count)]).astype(float)


def _ranges(low: float, high: float) -> list[dict[str, Any]]:
    return [{"column": name, "low": low, "high": high} for name in _NUMBERS]


_FEMALE: dict[str, Any] = {"column": "sex", "categories": ["f"]}
_SITE: dict[str, Any] = {"column": "site", "categories": ["a", "b", "c"], "reference": "a"}
COHORTS: dict[str, KnownCohort] = {
    "normal": KnownCohort(_numbers(_normal), _ranges(-3.0, 3.0), _SLOPES, []),
    # Equal correlations of 29/34 give the correlation matrix the condition number 30.
    "correlated": KnownCohort(_numbers(partial(_normal, correlation=29 / 34)), _ranges(-3.0, 3.0), _SLOPES / 2, []),
    "wide": KnownCohort(_numbers(partial(_normal, limit=10.0)), _ranges(-10.0, 10.0), _SLOPES, []),
    "strong": KnownCohort(_numbers(_normal), _ranges(-3.0, 3.0), _SLOPES * 3, []),
    "skewed": KnownCohort(_numbers(_skewed), _ranges(0.0, 6.0), _SLOPES, []),
    "heavy": KnownCohort(_numbers(_heavy), _ranges(-10.0, 10.0), _SLOPES / 2, []),
    "binary": KnownCohort(
        _numbers(_half_yes), [{"column": name, "categories": ["1.0"]} for name in _NUMBERS], _SLOPES, []
    ),
    "mixed": KnownCohort(_mixed, [*_ranges(-3.0, 3.0)[:2], _FEMALE, _SITE], np.array([0.5, -0.3, 0.4, -0.3, 0.5]), []),
    "crossed": KnownCohort(
        _crossed,
        [*_ranges(-3.0, 3.0)[:2], _FEMALE],
        np.array([0.4, -0.3, 0.3, 0.2, -0.2]),
        [["x0", "x1"], ["x0", "sex"]],
    ),
}
