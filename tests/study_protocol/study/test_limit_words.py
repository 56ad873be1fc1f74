"""The guarantee stands first, and ε so far never without its condition."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from accounting.budget.budget import Budget
from accounting.plan.plan import Plan
from accounting.plan.queries import EvaluationPlan, QueryPlan
from accounting.plan.schedule import NoiseStage
from accounting.plan.statistics import StatisticsPlan
from study_protocol.study.limit_statement import LimitStatement, Spent, SumOfSquares
from study_protocol.study.limit_words import (
    guarantee_in_words,
    limit_in_words,
    progress_in_words,
    running_in_words,
    spent_in_words,
    squares_in_words,
)
from study_protocol.study.messages import BudgetLedger, BudgetStatement
from tests.accounting.budget.plans import ask, cost, fixed, full, mixed, statistics

CONDITION = "if the study ended here for reasons that do not depend on its results"


def stated(budget: Budget, place: int = 0) -> LimitStatement:
    return LimitStatement.model_validate(budget.statements()[place])


def whole(budget: Budget) -> BudgetStatement:
    ledger = BudgetLedger(entries=1, head="sha256:" + "0" * 64, signature="s" * 86)
    return BudgetStatement(
        study="sepsis",
        state="running",
        round=budget.last_round,
        max_steps=4,
        can_continue=budget.can_continue,
        pause_reason=None,
        stop_reason=None,
        limits=[LimitStatement.model_validate(statement) for statement in budget.statements()],
        percentiles=[],
        ledger=ledger,
    )


def after(plan: Plan | StatisticsPlan, rounds: int) -> Budget:
    budget = Budget.open(plan)
    for number in range(1, rounds + 1):
        budget.reserve(number)
        budget.settle(number, None)
    return budget


def test_a_plan_is_guaranteed_as_a_whole_and_says_its_step() -> None:
    budget = after(fixed(70), 12)
    assert guarantee_in_words(stated(budget)).endswith(
        "at δ = 1e-5, of the whole plan of 70 steps, whenever the study stops"
    )
    assert progress_in_words(stated(budget)) == "step 12 of 70"
    running = running_in_words(stated(budget))
    assert running is not None
    assert running.endswith(CONDITION)
    # ε so far is below the guarantee, and the words say so.
    assert float(running.split()[3].rstrip(",")) < float(guarantee_in_words(stated(budget)).split()[1])
    budget.reserve(13)
    assert progress_in_words(stated(budget)) == "step 12 of 70, step 13 is under way"
    budget.cancel(13, "too-few-clients")
    budget.finish("stopped")
    assert limit_in_words(stated(budget)).endswith("whenever the study stops: step 12 of 70")


def test_steps_that_abandoned_rounds_lost_are_named() -> None:
    stages = (NoiseStage(40, 1.2), NoiseStage(30, 1.0))
    budget = after(replace(fixed(70), noise_schedule=stages), 3)
    for number, words in ((4, "step 3 of 70, 1 is lost with abandoned rounds"), (5, "step 3 of 70, 2 are lost with")):
        budget.reserve(number)
        budget.cancel(number, "too-few-clients")
        assert (progress_in_words(stated(budget)) or "").startswith(words)


def test_lost_steps_count_where_only_questions_may_follow() -> None:
    budget = after(replace(fixed(4, share=0.2), noise_schedule=(NoiseStage(2, 2.0), NoiseStage(2, 1.0))), 3)
    assert not stated(budget).takes_questions
    budget.reserve(4)
    budget.cancel(4, "too-few-clients")
    assert stated(budget).takes_questions


@pytest.mark.parametrize("queries", [None, QueryPlan(50, 100, None, None, 0.2)], ids=["no questions", "questions"])
def test_a_study_takes_questions_alone_once_its_last_round_is_over(queries: QueryPlan | None) -> None:
    """A round that begins uses up its entry of a noise schedule: none is left, and this one is under way."""
    stages = (NoiseStage(2, 2.0), NoiseStage(2, 1.0))
    budget = after(replace(fixed(4, queries=queries), noise_schedule=stages), 3)
    budget.reserve(4)
    assert not whole(budget).takes_questions
    budget.settle(4, None)
    assert whole(budget).takes_questions == (queries is not None)


def test_several_steps_of_a_round_are_under_way_together() -> None:
    budget = Budget.open(fixed(10, steps_per_round=2, max_steps=20))
    budget.reserve(1)
    assert progress_in_words(stated(budget)) == "step 0 of 20, steps to 2 are under way"


def test_a_plan_with_a_share_says_that_its_guarantee_counts_it() -> None:
    """Two numbers for the same steps: without the words the share looks like a loss of the training."""
    budget = after(fixed(20, share=0.2), 20)
    guarantee, running = guarantee_in_words(stated(budget)), running_in_words(stated(budget))
    assert guarantee.endswith(
        "of the whole plan of 20 steps and its whole share for questions, whenever the study stops"
    )
    assert running is not None
    assert float(running.split()[3].rstrip(",")) < float(guarantee.split()[1])
    assert stated(budget).takes_questions
    assert not stated(after(fixed(20, share=0.2), 19)).takes_questions
    assert not stated(after(fixed(20), 20)).takes_questions


def test_the_limit_that_evaluations_may_use_up_is_not_called_the_plan_s() -> None:
    budget = after(fixed(20, queries=QueryPlan(50, 100, None, EvaluationPlan(), None)), 1)
    assert guarantee_in_words(stated(budget)) == (
        "ε 2.000 at δ = 1e-5, which evaluations of patients who are set aside may use up, whenever the study stops"
    )


def test_nothing_is_guaranteed_beyond_the_limit_before_the_first_charge() -> None:
    before = stated(Budget.open(fixed(70)))
    assert guarantee_in_words(before) == "ε 2 at δ = 1e-5 at most, nothing is charged yet"
    assert running_in_words(before) is None


def test_the_share_of_questions_is_rounded_to_the_side_of_less() -> None:
    budget = Budget.open(fixed(20, share=0.2))
    ask(budget, cost(20.0))
    words = progress_in_words(stated(budget))
    assert words is not None
    assert words.startswith("step 0 of 20; questions: used 0.002501 of μ² = 0.0")
    running = running_in_words(stated(budget))
    assert running is not None
    assert running.endswith(f"{CONDITION}, and if the questions did not depend on them either")


def test_a_sum_of_squares_guarantees_the_limit() -> None:
    budget = after(full(queries=QueryPlan(9, 100)), 2)
    assert guarantee_in_words(stated(budget)) == "ε 2.000 at δ = 1e-5, whenever the study stops"
    words = progress_in_words(stated(budget))
    assert words is not None
    assert words.startswith("used 0.01389 of μ² = 0.2")
    budget.reserve(3)
    words = progress_in_words(stated(budget))
    assert words is not None
    assert words.endswith("0.006945 is reserved")


@pytest.mark.parametrize("used", [0.33245, 0.3324499999999, 0.332444])
def test_what_is_used_is_not_shown_above_what_is_allowed(used: float) -> None:
    words = squares_in_words(SumOfSquares(used=used, reserved=0.0, allowed=0.33245)).removesuffix(", 100.0 %")
    shown, allowed = (float(number) for number in re.findall(r"\d\.\d+", words)[:2])
    assert used <= shown <= allowed <= 0.33245


def test_questions_alone_have_the_same_words_and_their_own_condition() -> None:
    budget = Budget.open(statistics())
    ask(budget, cost(20.0))
    limit = stated(budget)
    assert guarantee_in_words(limit) == "ε 1.000 at δ = 1e-5, whenever the study stops"
    assert (progress_in_words(limit) or "").startswith("used 0.002501 of μ² = ")
    assert "and if the questions did not depend on them either" in (running_in_words(limit) or "")


def test_a_limit_in_epsilon_has_one_number() -> None:
    limit = stated(after(mixed(), 2))
    assert guarantee_in_words(limit) == limit_in_words(limit)
    assert "of at most 20 at δ = 1e-5" in limit_in_words(limit)
    assert (progress_in_words(limit), running_in_words(limit)) == (None, None)


def test_an_unprotected_level_guarantees_nothing() -> None:
    with pytest.raises(ValueError, match="level client is not protected"):
        guarantee_in_words(stated(Budget.open(mixed()), place=1))


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({}, "instance classical 2.000"),
        ({"steps": 3}, "instance classical 2.000, step 3"),
        (
            {"steps": 3, "squares": 0.00250001},
            "instance classical 2.000, step 3, share for questions: μ² used 0.002501",
        ),
        ({"squares": 0.00250001}, "instance classical 2.000, μ² used 0.002501"),
    ],
)
def test_a_round_says_at_which_step_it_was(used: dict[str, Any], expected: str) -> None:
    spent = Spent(level="instance", definition="classical", epsilon=2.0, spent=2.0, **used)
    assert spent_in_words(spent) == expected
    assert set(spent.model_dump()) == {"level", "definition", "epsilon", "spent", *used}


def test_an_abandoned_round_says_where_it_was_not_charged() -> None:
    third = Spent(level="instance", definition="classical", epsilon=2.0, spent=2.0, steps=3)
    assert spent_in_words(third, third, is_abandoned=True) == "instance classical not charged"
    assert spent_in_words(third, third.model_copy(update={"steps": 2}), is_abandoned=True).endswith("step 3")
    first = third.model_copy(update={"steps": 0, "spent": 0.0})
    assert spent_in_words(first, is_abandoned=True) == "instance classical not charged"
    # With questions alone ε is the same after every question, charged or not.
    alone = third.model_copy(update={"steps": None})
    assert spent_in_words(alone, alone, is_abandoned=True) == "instance classical 2.000"
