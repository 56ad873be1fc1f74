"""The hospital's own count of a study: it stops where the budget stops, and counts what left whatever became of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from accounting.budget.accounts import GaussianLimit
from accounting.budget.budget import Budget
from accounting.plan.queries import QueryCost
from accounting.plan.schedule import NoiseStage
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.planned import PlannedStudy
from client_sdk.guard.study_count import require_within_study
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.client_sdk.guard.test_charges import STUDIES
from tests.factories.settings import limit, settings, statistics_settings


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


def fixed_plan(**more: Any) -> StudySettings:
    plan = [limit("instance", epsilon=8.0, enforcement="fixed-plan")]
    asked = {"max_queries": 50, "max_cells": 100, "share": 0.1}
    return settings(max_steps=12, sampling_rate=0.1, noise_multiplier=2.0, limits=plan, statistics=asked, **more)


def test_a_fixed_plan_counts_every_vector_that_left_to_its_last_step() -> None:
    """Whatever the coordinator says became of their rounds: the thirteenth is never sent."""
    study, once = fixed_plan(), Charge.of(fixed_plan())
    for left in range(12):
        require_within_study(plan_of(study), [once] * left, once)
    with pytest.raises(OwnBudgetExceeded) as refused:
        require_within_study(plan_of(study), [once] * 12, once)
    assert refused.value.code == "max-steps-exceeded"
    # Lost rounds are one charge of many steps.
    with pytest.raises(OwnBudgetExceeded):
        require_within_study(plan_of(study), [replace(once, steps=12)], once)


@given(st.lists(st.floats(3.0, 60.0), min_size=1, max_size=40))
@hypothesis_settings(max_examples=25, deadline=None)
def test_questions_of_a_fixed_plan_stay_within_their_share_in_any_order(noises: list[float]) -> None:
    study, sent = fixed_plan(), list[Charge]()
    plan, allowed = plan_of(study), PlannedStudy.of(study).question_squares
    for noise in noises:
        question = Charge("instance", noise, 1.0, 1, asks=True)
        try:
            require_within_study(plan, sent, question)
        except OwnBudgetExceeded:
            assert sum(1 / c.noise_multiplier**2 for c in [*sent, question]) > allowed * (1 - 1e-9)
            continue
        sent.append(question)
    assert sum(1 / charge.noise_multiplier**2 for charge in sent) <= allowed
    # Questions take no step: the training is still whole.
    once = Charge.of(study)
    require_within_study(plan, [*sent, *[once] * 11], once)


def test_the_gaussian_filter_sums_rounds_and_questions() -> None:
    """Against the closed form: Σ 1/σ² ≤ μ² of (2, 1e-5), which is 0.2515."""
    gaussian = [limit("instance", epsilon=2.0, enforcement="gaussian-filter")]
    asked = {"max_queries": 50, "max_cells": 100}
    study = settings(max_steps=200, sampling_rate=1.0, noise_multiplier=20.0, limits=gaussian, statistics=asked)
    once, plan = Charge.of(study), plan_of(study)
    require_within_study(plan, [once] * 99, once)
    with pytest.raises(OwnBudgetExceeded):
        require_within_study(plan, [once] * 100, once)
    question = Charge("instance", 4.0, 1.0, 1, asks=True)
    require_within_study(plan, [question, *[once] * 74], once)
    with pytest.raises(OwnBudgetExceeded):
        require_within_study(plan, [question, *[once] * 75], once)


def test_a_schedule_counts_rounds_by_the_noise_that_they_had() -> None:
    gaussian = [limit("instance", epsilon=2.0, enforcement="gaussian-filter")]
    study = settings(max_steps=150, sampling_rate=1.0, noise_multiplier=20.0, limits=gaussian)
    plan = replace(plan_of(study), noise_schedule=(NoiseStage(50, 2.0), NoiseStage(100, 1.0)))
    late, early = Charge.of(study), replace(Charge.of(study), noise_multiplier=40.0)
    require_within_study(plan, [late] * 99, late)
    with pytest.raises(OwnBudgetExceeded):
        require_within_study(plan, [late] * 100, late)
    require_within_study(plan, [*[early] * 50, *[late] * 87], late)
    with pytest.raises(OwnBudgetExceeded):
        require_within_study(plan, [*[early] * 50, *[late] * 88], late)


def test_settings_without_the_field_count_rounds_of_training_as_before() -> None:
    """Questions are the coordinator's to count there, as in studies that are under way."""
    study = settings(statistics={"max_queries": 50, "max_cells": 100})
    dear = Charge("instance", 0.01, 1.0, 1, asks=True)
    require_within_study(plan_of(study), [dear] * 9, Charge.of(study))
    require_within_study(plan_of(study), [Charge.of(study)] * 3, dear)


def test_questions_alone_are_counted_to_the_limit() -> None:
    """Against the closed form: Σ Δ²/s² ≤ μ² of (2, 1e-5), which is 0.2515, whatever became of their rounds."""
    plan = plan_of(statistics_settings(epsilon=2.0))
    question = Charge("instance", 20.0, 1.0, 1, asks=True)
    require_within_study(plan, [question] * 99, question)
    with pytest.raises(OwnBudgetExceeded, match="the question would pass") as refused:
        require_within_study(plan, [question] * 100, question)
    assert refused.value.code == "study-limit-exceeded"


def test_a_question_that_just_fits_the_budget_fits_the_own_count() -> None:
    plan = plan_of(statistics_settings(epsilon=2.0))
    (account,) = Budget(plan).accounts
    assert isinstance(account, GaussianLimit)
    allowed, cost = account.max_squares * (1 - 1e-8), QueryCost(2.0**20, 2.0**20 * 0.05, 1)
    once = cost.noise_multiplier**-2
    many = int(allowed / once)
    rest = QueryCost(2.0**20, 2.0**20 * math.sqrt(allowed - many * once), 1)
    for _ in range(many):
        account.charge_query(cost)
    assert account.fits_query(rest)
    require_within_study(plan, [Charge.of_query(cost)] * many, Charge.of_query(rest))
