"""The frozen settings of the demonstration's studies."""

from __future__ import annotations

import math

import pytest

from accounting.budget.budget import Budget
from accounting.plan.schemes import SchemeName
from study_protocol.study.plan_of import plan_of
from tests.factories.demonstration import scenario_or_skip
from wardround.demo import scenarios
from wardround.demo.scenarios import Scenario
from wardround.demo.settings import CHOSEN, settings


@pytest.fixture(params=["breast-cancer", "heart-disease", "mnist"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return scenario_or_skip(request.param)


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
    assert number == CHOSEN["breast-cancer"].rounds
    assert budget.authorise().reason == "budget-exhausted"
    assert all(account.epsilon() <= epsilon for account in budget.accounts)


def test_the_noise_agrees_with_the_closed_form():
    """Rényi divergence of Gaussians at order λ: T (λ+1) / 2σ², then Canonne, Kamath & Steinke's Proposition 12."""
    privacy = settings(scenarios.breast_cancer(), "parallel", 2.0).privacy
    order, rounds = privacy.classical_order, CHOSEN["breast-cancer"].rounds
    constant = order * math.log(order / (order + 1)) - math.log(order + 1) - math.log(privacy.limits[0].delta)

    def epsilon(steps: int) -> float:
        return steps * (order + 1) / (2 * privacy.noise_multiplier**2) + constant / order

    assert epsilon(rounds) <= 2.0 < epsilon(rounds + 1)


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
