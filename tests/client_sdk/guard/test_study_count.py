"""The hospital's own count of a study: it stops where the budget stops, and counts what left whatever became of it."""

from __future__ import annotations

import pytest

from accounting.budget.budget import Budget
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.study_count import require_within_study
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.client_sdk.guard.test_charges import STUDIES


def rounds_within_budget(study: StudySettings) -> int:
    budget = Budget(plan_of(study))
    while budget.authorise().is_allowed:
        budget.reserve(budget.last_round + 1)
        budget.settle(budget.last_round, None)
    assert budget.authorise().reason == "budget-exhausted"
    return budget.charged_rounds


@pytest.mark.parametrize("scheme", sorted(STUDIES))
def test_the_hospital_stops_where_the_budget_stops(scheme: str) -> None:
    study = STUDIES[scheme]
    rounds = rounds_within_budget(study)
    assert rounds > 1
    once = Charge.of(study)
    require_within_study(plan_of(study), [once] * (rounds - 1), once, range(1, rounds + 1))
    with pytest.raises(OwnBudgetExceeded) as refused:
        require_within_study(plan_of(study), [once] * rounds, once, range(1, rounds + 2))
    assert refused.value.code == "study-limit-exceeded"
