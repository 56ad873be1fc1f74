"""Which account keeps a limit, and which rule is the tightest."""

from __future__ import annotations

import pytest

from accounting.budget.accounts import (
    ClassicalLimit,
    CumulativeLimit,
    FixedPlanLimit,
    GaussianLimit,
    GaussianRoundsLimit,
)
from accounting.budget.enforcement import account_of, accounts_of, tightest, tightest_rule
from accounting.budget.forecast import forecast
from accounting.budget.solve import best_orders, least_epsilon, least_noise, most_rounds
from accounting.errors import Unreachable
from accounting.plan.queries import EvaluationPlan, QueryPlan
from accounting.plan.schedule import NoiseStage
from tests.accounting.budget.plans import fixed, full, plan, statistics


@pytest.mark.parametrize(
    ("study", "kind"),
    [
        (fixed(), FixedPlanLimit),
        (full(), GaussianRoundsLimit),
        (fixed(enforcement="renyi-order"), ClassicalLimit),
        (fixed(enforcement=None), ClassicalLimit),
        (full(enforcement="fixed-plan"), FixedPlanLimit),
    ],
)
def test_a_limit_has_the_account_that_it_names(study, kind):
    assert type(account_of(study, study.limits[0])) is kind


def test_other_limits_have_theirs():
    assert [type(account) for account in accounts_of(plan())] == [CumulativeLimit, ClassicalLimit]
    assert [type(account) for account in accounts_of(statistics())] == [GaussianLimit]


@pytest.mark.parametrize(
    ("study", "rule"),
    [
        (fixed(enforcement=None), "fixed-plan"),
        (fixed(enforcement=None, sampling_rate=1.0), "gaussian-filter"),
        (fixed(share=0.2), "fixed-plan"),
        (fixed(enforcement=None, queries=QueryPlan(10, 10)), "renyi-order"),
        (fixed(enforcement=None, queries=QueryPlan(10, 10, None, EvaluationPlan())), "fixed-plan"),
        (fixed(enforcement=None, epsilon=60.0), "renyi-order"),
    ],
)
def test_the_tightest_rule_follows_from_the_form_of_the_plan(study, rule):
    chosen = tightest(study)
    assert chosen.limits[0].enforcement == rule
    assert tightest_rule(study, study.limits[0])[1]
    assert tightest(chosen) == chosen


@pytest.mark.quick("1.0-12.0")
@pytest.mark.parametrize(("sampling_rate", "sigma"), [(0.1, 2.0), (1.0, 12.0)])
def test_it_allows_more_rounds_with_less_noise_than_the_best_order(sampling_rate, sigma):
    old = best_orders(fixed(30, enforcement=None, sampling_rate=sampling_rate, noise_multiplier=sigma))
    new = tightest(old)
    assert most_rounds(new).max_steps > most_rounds(old).max_steps
    assert least_noise(new).noise_multiplier < least_noise(old).noise_multiplier
    tight, loose = least_epsilon(new).limits[0].epsilon, least_epsilon(old).limits[0].epsilon
    assert tight < loose
    for found in (most_rounds(new), least_noise(new), least_epsilon(new)):
        assert forecast(found).rounds == found.rounds


def test_a_schedule_says_how_many_rounds_there_are():
    study = fixed(noise_schedule=(NoiseStage(70, 1.0),))
    with pytest.raises(Unreachable, match="noise schedule"):
        most_rounds(study)
    scaled = least_noise(study)
    assert scaled.noise_schedule == study.noise_schedule
    assert scaled.noise_multiplier < study.noise_multiplier
