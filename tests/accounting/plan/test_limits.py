"""Limits of a plan: which ones there can be, and which field a refusal names."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from accounting.errors import InvalidArgument
from accounting.plan.limits import (
    BayesianPlan,
    FirstRoundOverspends,
    HistogramRelease,
    LimitPlan,
    PlanError,
    limit_among,
    require_limits,
    require_queries,
    require_release,
)
from accounting.plan.queries import QueryPlan
from accounting.plan.schemes import SCHEMES
from accounting.units import Definition, Level

INSTANCE = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 2.0, 1e-5, None)
INSTANCE_AVERAGE = LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 1.0, 1e-5, 1e-6)
CLIENT = LimitPlan(Level.CLIENT, Definition.CLASSICAL, 2.0, 1e-5, None)
CLIENT_AVERAGE = LimitPlan(Level.CLIENT, Definition.BAYESIAN, 1.0, 1e-5, 1e-6)
RUNNING = BayesianPlan((4.0, 8.0), 8.0, "betting", "running", "path", "improved")
HOLDER = dataclasses.replace(RUNNING, composition="holder")


def changed(base: Any, **values: Any) -> Any:
    return dataclasses.replace(base, **values)


@pytest.mark.parametrize(
    ("limit", "changes", "field"),
    [
        (INSTANCE, {"epsilon": 0.0}, "epsilon"),
        (INSTANCE, {"epsilon": float("nan")}, "epsilon"),
        (INSTANCE, {"delta": 1.0}, "delta"),
        (INSTANCE, {"definition": Definition.CERTIFIED, "estimator_failure_probability": 1e-6}, "definition"),
        (INSTANCE, {"estimator_failure_probability": 1e-6}, "estimator_failure_probability"),
        (INSTANCE_AVERAGE, {"estimator_failure_probability": None}, "estimator_failure_probability"),
        (INSTANCE_AVERAGE, {"estimator_failure_probability": 1e-5}, "estimator_failure_probability"),
        (RUNNING, {"estimator": "median"}, "estimator"),
        (RUNNING, {"composition": "sum"}, "composition"),
        (RUNNING, {"adversary": "weak"}, "adversary"),
        (RUNNING, {"sample": "all"}, "sample"),
        (RUNNING, {"orders": ()}, "orders"),
        (RUNNING, {"filter_order": 0.0}, "filter_order"),
        (HistogramRelease(2.0, 3), {"std": 0.0}, "std"),
        (HistogramRelease(2.0, 3), {"every": 0}, "every"),
    ],
)
def test_a_wrong_field_is_named(limit: Any, changes: dict[str, Any], field: str) -> None:
    with pytest.raises((PlanError, InvalidArgument), match=field):
        changed(limit, **changes)


@pytest.mark.parametrize("limit", [INSTANCE, CLIENT_AVERAGE])
def test_a_limit_survives_json(limit: LimitPlan) -> None:
    assert LimitPlan.from_dict(json.loads(json.dumps(dataclasses.asdict(limit)))) == limit
    for wrong in ({"level": "ward"}, {"colour": 1}):
        with pytest.raises((TypeError, ValueError)):
            LimitPlan.from_dict(dataclasses.asdict(limit) | wrong)


@pytest.mark.parametrize(
    ("scheme", "limits", "bayesian", "field"),
    [
        ("parallel", [INSTANCE, INSTANCE], None, "limits"),
        ("parallel", [CLIENT], None, "limits"),
        ("client", [INSTANCE], None, "limits"),
        ("parallel", [], None, "limits"),
        ("parallel", [INSTANCE_AVERAGE], RUNNING, "limits"),
        ("joint", [INSTANCE, CLIENT_AVERAGE], RUNNING, "limits"),
        ("parallel", [INSTANCE], RUNNING, "bayesian"),
        ("parallel", [INSTANCE, INSTANCE_AVERAGE], None, "bayesian"),
        ("client", [CLIENT, CLIENT_AVERAGE], RUNNING, "composition"),
        ("client", [CLIENT, CLIENT_AVERAGE], changed(HOLDER, sample="held-out"), "sample"),
        ("parallel", [INSTANCE], None, None),
        ("parallel", [INSTANCE, INSTANCE_AVERAGE], changed(RUNNING, sample="held-out"), None),
        ("client", [CLIENT, CLIENT_AVERAGE], HOLDER, None),
        ("joint", [INSTANCE, INSTANCE_AVERAGE, CLIENT], RUNNING, None),
        ("statistics", [INSTANCE], None, None),
    ],
)
def test_a_scheme_keeps_the_limits_that_it_can(
    scheme: Any, limits: list[LimitPlan], bayesian: BayesianPlan | None, field: str | None
) -> None:
    if field is None:
        require_limits(SCHEMES[scheme], limits, bayesian)
        return
    with pytest.raises(PlanError) as refused:
        require_limits(SCHEMES[scheme], limits, bayesian)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("scheme", "limits", "bayesian", "field"),
    [
        ("parallel", [INSTANCE], None, "release"),
        ("joint", [INSTANCE, INSTANCE_AVERAGE], RUNNING, "release"),
        ("parallel", [INSTANCE, INSTANCE_AVERAGE], HOLDER, "composition"),
        ("parallel", [INSTANCE, INSTANCE_AVERAGE], RUNNING, None),
        ("client", [CLIENT, CLIENT_AVERAGE], HOLDER, None),
        ("joint", [CLIENT, CLIENT_AVERAGE], HOLDER, None),
    ],
)
def test_histograms_are_published_only_of_what_they_can_hide(
    scheme: Any, limits: list[LimitPlan], bayesian: BayesianPlan | None, field: str | None
) -> None:
    if field is None:
        require_release(SCHEMES[scheme], limits, bayesian)
        return
    with pytest.raises(PlanError) as refused:
        require_release(SCHEMES[scheme], limits, bayesian)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("scheme", "allowance", "bayesian", "field"),
    [
        ("client", None, None, "queries"),
        ("joint", None, None, "queries"),
        ("parallel", None, RUNNING, "share"),
        ("parallel", 0.1, None, "allowance"),
        ("parallel", 0.1, changed(RUNNING, adversary="adaptive"), "allowance"),
        ("parallel", 0.1, RUNNING, None),
        ("parallel", None, changed(RUNNING, adversary="adaptive"), None),
        ("sequential", None, None, None),
    ],
)
def test_queries_need_patients_as_the_level_and_an_allowance_against_a_path(
    scheme: Any, allowance: float | None, bayesian: BayesianPlan | None, field: str | None
) -> None:
    queries = QueryPlan(5, 10, allowance)
    if field is None:
        require_queries(SCHEMES[scheme], (), queries, bayesian)
        return
    with pytest.raises(PlanError) as refused:
        require_queries(SCHEMES[scheme], (), queries, bayesian)
    assert refused.value.field == field


def test_a_limit_is_looked_up_by_level_and_definition() -> None:
    limits = [INSTANCE, INSTANCE_AVERAGE]
    assert limit_among(limits, Level.INSTANCE, Definition.BAYESIAN) is INSTANCE_AVERAGE
    assert limit_among(limits, Level.CLIENT, Definition.BAYESIAN) is None


def test_histograms_are_due_in_multiples() -> None:
    assert [number for number in range(1, 13) if HistogramRelease(3.0, 4).due(number)] == [4, 8, 12]


def test_a_first_round_that_overspends_says_which_noise_is_enough() -> None:
    error = FirstRoundOverspends(INSTANCE, 1.25, None)
    assert error.field == "noise_multiplier"
    assert "1.25 is enough for one round" in str(error)
    assert "publish fewer histograms" in str(error)
    assert "3.5 for all steps" in str(FirstRoundOverspends(INSTANCE, 1.25, 3.5))
