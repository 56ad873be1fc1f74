"""The demonstration's last sentence says what the numbers say, whichever they are."""

from __future__ import annotations

import pytest

from accounting.budget.budget import Budget
from study_protocol.study.messages import LimitStatement
from study_protocol.study.plan_of import plan_of
from wardround.demo import scenarios
from wardround.demo.settings import settings
from wardround.demo.verdict import meaning, verdict

ALONE = {"university": 0.97, "city": 0.92, "county": 0.90, "rural": 0.70}


@pytest.fixture(scope="module")
def limits() -> list[LimitStatement]:
    budget = Budget.open(plan_of(settings(scenarios.breast_cancer(), "parallel", bayesian=True)))
    while budget.authorise().is_allowed:
        number = budget.last_round + 1
        budget.reserve(number)
        budget.settle(number, None)
    return [LimitStatement.model_validate(statement) for statement in budget.statements()]


@pytest.mark.parametrize(
    ("accuracy", "said", "not_said"),
    [
        (0.98, ["better than all 4 hospitals alone", "rural by 28.0 points"], ["does better"]),
        (0.95, ["better than 3 of 4 hospitals alone", "university alone does better (0.970)"], ["did not pay"]),
        (0.92, ["better than 2 of 4", "city alone does as well"], ["all 4"]),
        (0.70, ["no better than any hospital alone", "did not pay"], ["is better than"]),
        (0.10, ["no better than any hospital alone", "did not pay"], ["is better than"]),
        (None, ["no model was released"], ["is better than"]),
    ],
    ids=["all", "all but one", "a tie", "a tie with the last", "none", "no round"],
)
def test_the_sentence_is_true(
    accuracy: float | None, said: list[str], not_said: list[str], limits: list[LimitStatement]
) -> None:
    sentence = verdict(accuracy, ALONE, limits)
    for words in said:
        assert words in sentence
    for words in not_said:
        assert words not in sentence


def test_it_names_the_limits(limits: list[LimitStatement]) -> None:
    assert "bayesian ε ≤ 2, classical ε ≤ 2" in verdict(0.95, ALONE, limits)


def test_an_epsilon_is_an_attackers_best_guess(limits: list[LimitStatement]) -> None:
    classical = next(limit for limit in limits if limit.definition == "classical" and limit.epsilon is not None)
    # Thirty rounds at noise 10.43: Φ(√30/10.43/2), not e^ε/(1 + e^ε) = 88 %; shown no smaller than it is.
    said = meaning(classical)
    assert said is not None
    shown = float(said.split("at most ")[1].split(" %")[0]) / 100
    assert classical.attack_success is not None
    assert classical.attack_success <= shown < classical.attack_success + 0.0011
    unbounded = next(limit for limit in limits if limit.epsilon is None)
    assert meaning(unbounded) is None
