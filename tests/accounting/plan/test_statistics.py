"""The plan of a study of queries alone: JSON, and what such a study cannot have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accounting.errors import InvalidArgument
from accounting.plan.limits import LimitPlan, PlanError
from accounting.plan.plan import Plan
from accounting.plan.queries import EvaluationPlan, QueryPlan
from accounting.plan.statistics import StatisticsPlan, plan_from_dict
from accounting.units import Definition, Level, Observer
from tests.accounting.budget.plans import plan, statistics


def test_json_says_which_kind_of_plan_it_is() -> None:
    for study in (statistics(), plan()):
        restored = plan_from_dict(json.loads(json.dumps(study.to_dict())))
        assert type(restored) is type(study)
        assert restored == study
    assert isinstance(plan_from_dict(plan().to_dict()), Plan)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"scheme": "parallel"}, "scheme"),
        ({"observer": "nobody"}, "nobody"),
        ({"limits": None}, "plan"),
        ({"colour": 1}, "plan"),
        ({"queries": {"max_queries": 0, "max_cells": 1, "allowance": None, "evaluation": None}}, "max_queries"),
        ({"queries": {"max_queries": 1}}, "evaluation"),
    ],
    ids=["scheme", "observer", "no-limits", "unknown", "no-queries", "fields-missing"],
)
def test_what_is_no_such_plan_is_refused(change: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        StatisticsPlan.from_dict(statistics().to_dict() | change)


@pytest.mark.parametrize("missing", ["limits", "queries", "observer", "scheme"])
def test_every_field_is_needed(missing: str) -> None:
    fields = statistics().to_dict()
    del fields[missing]
    with pytest.raises(InvalidArgument, match=missing):
        StatisticsPlan.from_dict(fields)


def test_no_model_means_no_evaluation_no_bayesian_limit_and_no_clients_limit() -> None:
    limits, queries = statistics().limits, QueryPlan(5, 5)
    with pytest.raises(PlanError, match="no model to be evaluated"):
        StatisticsPlan(limits, QueryPlan(5, 5, None, EvaluationPlan()), Observer.COORDINATOR)
    with pytest.raises(PlanError) as refused:
        StatisticsPlan(
            (*limits, LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 1.0, 1e-5, 1e-6)), queries, Observer.COORDINATOR
        )
    assert refused.value.field == "bayesian"
    with pytest.raises(PlanError, match="instance"):
        StatisticsPlan((LimitPlan(Level.CLIENT, Definition.CLASSICAL, 1.0, 1e-5, None),), queries, Observer.COORDINATOR)


def test_nothing_is_trained_and_nothing_published() -> None:
    study = statistics()
    assert (study.rounds, study.max_steps, study.bayesian) == (0, 0, None)
    assert study.levels == (Level.INSTANCE,)
    assert not any(study.publishes(number) for number in range(5))
