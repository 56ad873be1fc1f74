"""How far a limit is used up that is kept by counting: charged, under way, cancelled, and beyond one stage of noise."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from accounting.budget.accounts.progress import UsedPart
from accounting.budget.budget import Budget
from accounting.plan.queries import QueryPlan
from accounting.plan.schedule import NoiseStage
from tests.accounting.budget.plans import ask, cost, fixed, full, mixed, statistics


def stated(budget: Budget) -> dict[str, Any]:
    return json.loads(json.dumps(budget.statements(whole=False)[0]))


def used(budget: Budget, part: str) -> Any:
    return stated(budget)["progress"][part]


def test_a_plan_counts_steps_and_says_which_are_under_way() -> None:
    budget = Budget.open(fixed(10, steps_per_round=2, max_steps=20))
    assert stated(budget)["progress"] == {
        "enforcement": "fixed-plan",
        "steps": {"used": 0, "reserved": 0, "allowed": 20},
        "squares": None,
    }
    budget.reserve(1)
    assert used(budget, "steps") == {"used": 0, "reserved": 2, "allowed": 20}
    # The whole plan is reserved with its first round, and then nothing more.
    whole = stated(budget)["reserved"]
    budget.settle(1, None)
    budget.reserve(2)
    assert used(budget, "steps") == {"used": 2, "reserved": 2, "allowed": 20}
    assert (stated(budget)["spent"], stated(budget)["reserved"]) == (whole, 0.0)
    budget.cancel(2, "too-few-clients")
    assert used(budget, "steps") == {"used": 2, "reserved": 0, "allowed": 20}


def test_a_study_that_stopped_early_guarantees_the_whole_plan() -> None:
    budget = Budget.open(fixed(30))
    budget.reserve(1)
    budget.settle(1, None)
    budget.finish("stopped")
    limit = budget.statements()[0]
    assert limit["certificate"]["epsilon"] == limit["spent"]
    assert limit["spent"] > 3 * limit["reports"][0]["epsilon"]
    assert "if the study ended here" in limit["reports"][0]["certificate"]["assumption"]


def test_questions_alone_use_their_share_of_a_plan() -> None:
    budget = Budget.open(fixed(20, share=0.2))
    exact = Fraction(1, 400) / (1 - Fraction(1, 12) / Fraction(2) ** 40)
    budget.reserve_query(1, cost(20.0))
    waiting = used(budget, "squares")
    assert (waiting["used"], used(budget, "steps")["reserved"]) == (0.0, 0)
    assert exact <= Fraction(waiting["reserved"]) <= exact * Fraction(1 + 1e-9)
    budget.settle(1, None)
    charged = used(budget, "squares")
    assert exact <= Fraction(charged["used"]) <= exact * Fraction(1 + 1e-9)
    assert charged["reserved"] == 0.0
    assert used(budget, "steps") == {"used": 0, "reserved": 0, "allowed": 20}
    assert "questions did not depend on them" in budget.reports()[0][0]["certificate"]["assumption"]


def test_rounds_and_questions_of_all_records_add_up_to_one_sum() -> None:
    budget = Budget.open(full(queries=QueryPlan(9, 100)))
    budget.reserve(1)
    assert used(budget, "squares")["reserved"] == pytest.approx(1 / 144, rel=1e-9)
    budget.settle(1, None)
    ask(budget, cost(20.0))
    found = used(budget, "squares")
    assert found["used"] == pytest.approx(1 / 144 + 1 / 400, rel=1e-9)
    assert found["used"] > 1 / 144 + 1 / 400
    assert (stated(budget)["spent"], stated(budget)["progress"]["steps"]) == (stated(budget)["epsilon"], None)


def test_limits_in_epsilon_are_stated_as_they_were() -> None:
    for budget in (Budget.open(mixed()), Budget.open(statistics())):
        assert "progress" not in stated(budget)


def test_a_cancelled_entry_of_a_schedule_is_no_round_that_is_left() -> None:
    budget = Budget.open(fixed(6, noise_schedule=(NoiseStage(3, 1.5), NoiseStage(3, 1.0))))
    budget.reserve(1)
    budget.cancel(1, "too-few-clients")
    assert used(budget, "steps") == {"used": 0, "reserved": 0, "allowed": 6, "abandoned": 1}
    assert stated(budget)["rounds_left_estimate"] == 5


def test_what_is_reserved_is_rounded_up() -> None:
    part = UsedPart.between(1 / 3, 1 / 3 + 1 / 7, 1.0)
    assert Fraction(part.used) + Fraction(part.reserved) >= Fraction(1 / 3 + 1 / 7)
    assert math.isclose(part.reserved, 1 / 7, rel_tol=1e-15)
    assert UsedPart.between(0.5, 0.5, 1.0).reserved == 0.0
