"""Plans of queries and their costs: numbers, schedules and JSON."""

import json
import math
from dataclasses import asdict
from fractions import Fraction

import pytest

from accounting.errors import InvalidArgument
from accounting.plan.queries import EvaluationPlan, QueryCost, QueryPlan
from tests.accounting.budget.plans import STEPS


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_std": 1e6}, {"noise_std": math.nan}, {"noise_std": math.inf}, {"noise_std": 2.0**41},
        {"sensitivity": 0.0}, {"sensitivity": -1.0}, {"sensitivity": math.nan}, {"cells": 0}, {"cells": 1.5},
        {"cells": True}, {"cells": 1 << 18}, {"bears": "nobody"},
    ],
)  # fmt: skip
def test_a_cost_that_cannot_be_is_refused(changes):
    given = {"noise_std": STEPS, "sensitivity": 1.0, "cells": 1, "bears": "all"} | changes
    with pytest.raises(InvalidArgument):
        QueryCost.from_dict(given)


@pytest.mark.parametrize("every", [1, 3, 10])
def test_a_schedule_counts_every_so_many_rounds_and_the_last_model(every):
    schedule = EvaluationPlan(every, QueryCost(STEPS, 1.0, 1, "evaluated"))
    for rounds in range(25):
        asked = {number for number in range(1, rounds + 1) if number % every == 0 or number == rounds}
        assert schedule.due_by(rounds) == len(asked)
    assert EvaluationPlan().due_by(100) == 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"every": 2}, "every"),
        ({"cost": QueryCost(STEPS, 1.0, 1, "evaluated")}, "every"),
        ({"every": 0, "cost": QueryCost(STEPS, 1.0, 1, "evaluated")}, "every"),
        ({"every": 2, "cost": QueryCost(STEPS, 1.0, 1)}, "cost"),
    ],
    ids=["no-cost", "no-schedule", "never", "borne-by-all"],
)
def test_a_schedule_that_cannot_be_is_refused(arguments, field):
    with pytest.raises(InvalidArgument, match=field):
        EvaluationPlan(**arguments)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((0, 1), "max_queries"), ((100_001, 1), "max_queries"), ((1, 0), "max_cells"), ((1, 1, 0.0), "allowance")],
)
def test_a_plan_of_queries_that_cannot_be_is_refused(arguments, field):
    with pytest.raises(InvalidArgument, match=field):
        QueryPlan(*arguments)


def test_plans_and_costs_survive_json():
    query = QueryCost(STEPS, 3.0, 7, "evaluated")
    assert QueryCost.from_dict(json.loads(json.dumps(query.to_dict()))) == query
    for queries in (QueryPlan(5, 10, 0.1), QueryPlan(5, 10, None, EvaluationPlan(3, query)), QueryPlan(5, 10)):
        assert QueryPlan.from_dict(json.loads(json.dumps(asdict(queries)))) == queries
        assert queries.cells == 50


@pytest.mark.parametrize("read", [QueryCost.from_dict, QueryPlan.from_dict, EvaluationPlan.from_dict])
@pytest.mark.parametrize("value", [{}, {"colour": 1}])
def test_what_is_no_plan_is_an_invalid_argument(read, value):
    with pytest.raises(InvalidArgument):
        read(value)


def test_the_noise_multiplier_is_rounded_down():
    query = QueryCost(STEPS + 0.3, 3.0, 1)
    exact = Fraction(query.noise_std) / 3
    assert exact * (1 - Fraction(1, 2**51)) <= Fraction(query.noise_multiplier) < exact
