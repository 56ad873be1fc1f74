"""The demonstration's study in scheme parallel after one round, without a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from accounting.budget.budget import Budget
from study_protocol.study.messages import BudgetStatement
from study_protocol.study.plan_of import plan_of
from wardround.demo import scenarios
from wardround.demo.scenarios import DataMissing, Scenario
from wardround.demo.settings import settings

SCENARIO = scenarios.breast_cancer()
STUDY = settings(SCENARIO, "parallel")
BASELINES: dict[str, Any] = {
    "alone": dict.fromkeys(SCENARIO.hospitals, 0.9),
    "private": dict.fromkeys(SCENARIO.hospitals, 0.8),
    "pooled": 0.97,
    "majority": 0.63,
}


def budget() -> BudgetStatement:
    """After one round of the study."""
    spent = Budget.open(plan_of(STUDY))
    spent.reserve(1)
    spent.settle(1, None)
    return BudgetStatement.model_validate(
        {
            "study": "demo",
            "state": "finished",
            "round": 1,
            "max_steps": spent.plan.max_steps,
            "can_continue": False,
            "pause_reason": None,
            "stop_reason": "budget-exhausted",
            "limits": spent.statements(),
            "percentiles": [],
            "ledger": {"entries": 3, "head": f"sha256:{'ab' * 32}", "signature": "A" * 86},
        }
    )


@cache
def scenario_or_skip(which: str) -> Scenario:
    """A data set of the demonstration. The test is skipped where its files are missing."""
    makers: dict[str, Callable[[], Scenario]] = {
        "breast-cancer": scenarios.breast_cancer,
        "heart-disease": scenarios.heart_disease,
        "mnist": lambda: scenarios.mnist(4, 40),
    }
    try:
        return makers[which]()
    except DataMissing as error:
        pytest.skip(str(error))
