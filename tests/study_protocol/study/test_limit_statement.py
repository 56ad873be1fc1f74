"""What a statement says of a limit that is kept by counting, and that others stay as they were."""

from __future__ import annotations

import json

import pytest

from accounting.budget.budget import Budget
from study_protocol.study.limit_statement import LimitStatement
from tests.accounting.budget.plans import ask, cost, fixed, mixed, statistics


def stated(budget: Budget) -> LimitStatement:
    return LimitStatement.model_validate(budget.statements()[0])


def test_the_used_share_of_a_plan_is_that_of_its_steps() -> None:
    budget = Budget.open(fixed(20, share=0.2))
    ask(budget, cost(30.0))
    budget.reserve(2)
    budget.settle(2, None)
    assert stated(budget).spent_share == 1 / 20


def test_the_used_share_of_questions_alone_is_that_of_their_squares() -> None:
    budget = Budget.open(statistics())
    ask(budget, cost(20.0))
    limit = stated(budget)
    assert limit.progress is None
    assert limit.counted is not None
    assert limit.certificate is not None
    assert limit.spent_share == pytest.approx(1 / 400 / limit.certificate["allowed"], rel=1e-9)


@pytest.mark.parametrize("budget", [Budget.open(mixed()), Budget.open(statistics())], ids=["in epsilon", "questions"])
def test_other_statements_are_written_as_before(budget: Budget) -> None:
    """Digests of them stand in ledgers."""
    told = json.loads(json.dumps(budget.statements()[0]))
    assert LimitStatement.model_validate(told).model_dump(mode="json") == told
    assert "progress" not in told


def test_a_statement_with_progress_is_read_back_as_it_was_written() -> None:
    budget = Budget.open(fixed(20, share=0.2))
    budget.reserve(1)
    told = json.loads(json.dumps(budget.statements()[0]))
    assert json.dumps(LimitStatement.model_validate(told).model_dump(mode="json"), sort_keys=True) == json.dumps(
        told, sort_keys=True
    )
