"""The frozen settings of the demonstration's studies."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from accounting.budget.budget import Budget
from accounting.plan.schemes import SchemeName
from study_protocol.study.plan_of import plan_of
from tests.factories.demonstration import scenario_or_skip
from wardround.demo import scenarios
from wardround.demo.scenarios import Scenario
from wardround.demo.settings import SETTINGS_BY_SCHEME, settings


@pytest.fixture(params=["breast-cancer", "heart-disease", "mnist"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return scenario_or_skip(request.param)


@pytest.mark.slow_cases(
    "mnist-both definitions-parallel",
    "mnist-both definitions-sequential",
    "mnist-classical-parallel",
    "mnist-classical-sequential",
)
@pytest.mark.parametrize("scheme", ["parallel", "sequential", "joint", "client"])
@pytest.mark.parametrize("bayesian", [False, True], ids=["classical", "both definitions"])
def test_the_first_round_of_every_study_fits_its_budget(scenario: Scenario, scheme: SchemeName, bayesian: bool):
    chosen = settings(scenario, scheme, bayesian=bayesian)
    assert Budget.open(plan_of(chosen)).authorise().is_allowed
    assert settings(scenario, scheme, epsilon=5.5, bayesian=bayesian).privacy.limits[0].epsilon == 5.5


@pytest.mark.parametrize("scheme", ["parallel", "sequential"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 5.0])
def test_the_budget_ends_the_study_after_the_rounds_that_were_planned(scheme: SchemeName, epsilon: float):
    scenario = scenarios.breast_cancer()
    study = settings(scenario, scheme, epsilon, bayesian=True)
    budget = Budget.open(plan_of(study))
    number = 0
    while budget.authorise().is_allowed:
        number += 1
        budget.reserve(number)
        budget.settle(number, None)
    assert number == SETTINGS_BY_SCHEME["breast-cancer"].rounds
    assert budget.authorise().reason == "budget-exhausted"
    assert all(account.epsilon() <= epsilon for account in budget.accounts)


def test_the_noise_agrees_with_the_closed_form():
    """Balle & Wang 2018, theorem 8: δ of a Gaussian mechanism with ratio μ = √T/σ."""
    study = settings(scenarios.breast_cancer(), "parallel", 2.0)
    (limit,), rounds = study.privacy.limits, SETTINGS_BY_SCHEME["breast-cancer"].rounds
    assert limit.enforcement == "gaussian-filter"
    normal = NormalDist()

    def delta(steps: int) -> float:
        ratio = math.sqrt(steps) / study.privacy.noise_multiplier
        left, right = (normal.cdf(sign * ratio / 2 - limit.epsilon / ratio) for sign in (1, -1))
        return left - math.exp(limit.epsilon) * right

    assert delta(rounds) <= limit.delta < delta(rounds + 1)
    # 10.43 before, at one Rényi order.
    assert study.privacy.noise_multiplier <= 9.5


def test_a_sampled_study_is_a_fixed_plan_that_its_steps_end():
    plan = plan_of(settings(scenario_or_skip("mnist"), "parallel"))
    assert [limit.enforcement for limit in plan.limits] == ["fixed-plan"]
    assert plan.rounds == SETTINGS_BY_SCHEME["mnist"].rounds
    Budget.open(plan)


def test_no_hospital_is_cut_short_for_its_size():
    scenario = scenarios.breast_cancer()
    study = settings(scenario, "parallel")
    assert study.sum_radius is not None
    for records in scenario.hospitals.values():
        assert study.sum_radius >= len(records) * study.privacy.clip_norm
    # Announced, not counted: tens only.
    assert study.privacy.expected_batch_size % 10 == 0


@pytest.mark.parametrize(("hospitals", "least"), [(4, 4), (5, 4), (8, 7)])
def test_five_hospitals_bear_the_loss_of_one(hospitals: int, least: int) -> None:
    study = settings(scenarios.breast_cancer(hospitals=hospitals), "parallel")
    assert study.schedule.min_clients == least
