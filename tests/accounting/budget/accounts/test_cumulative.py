"""The Bayesian limit of records: formula, reservations, a bound that never falls."""

import mpmath as mp
import pytest

from accounting.budget.accounts.cumulative import CumulativeLimit
from accounting.budget.accounts.losses import squares_within
from accounting.budget.budget import Budget
from accounting.errors import InvalidArgument
from accounting.plan.limits import BayesianPlan, PlanError
from accounting.plan.queries import QueryPlan
from accounting.plan.report import CumulativeMoments, DistanceHistogram
from tests.accounting.budget.plans import DELTA, FAILURE, ask, cost, exact_epsilon, exact_moment, plan


def test_the_cumulative_account_reads_as_the_formula_says():
    budget = Budget(plan())
    budget.reserve(1)
    budget.settle(1, CumulativeMoments(0.05, (0.01, 0.02, 0.06)))
    bayesian = budget.accounts[0]
    assert bayesian.epsilon() == pytest.approx(float(exact_epsilon(12, mp.mpf(0.05), DELTA - FAILURE)), rel=1e-9)
    assert bayesian.epsilon() >= exact_epsilon(12, mp.mpf(0.05), mp.mpf(DELTA) - mp.mpf(FAILURE))


def test_a_report_above_the_reservation_or_none_is_charged_at_the_reservation():
    worst = 2 * exact_moment(12, 2.0, 0.1)
    for report in (None, CumulativeMoments(1e3, (1e3,) * 3), CumulativeMoments(0.0, (0.0,)), DistanceHistogram((1,))):
        budget = Budget(plan())
        budget.reserve(1)
        budget.settle(1, report)
        assert budget.accounts[0].epsilon() == pytest.approx(float(exact_epsilon(12, worst, DELTA - FAILURE)), rel=1e-9)


def test_the_bound_never_falls_when_a_later_report_is_smaller():
    budget = Budget(plan())
    for number, reported in enumerate((0.05, 0.02), start=1):
        budget.reserve(number)
        budget.settle(number, CumulativeMoments(reported, (0.01, 0.02, 0.03)))
    alone = exact_epsilon(12, mp.mpf(0.05), DELTA - FAILURE)
    assert budget.accounts[0].epsilon() == pytest.approx(float(alone), rel=1e-9)


def test_a_state_of_other_orders_is_refused():
    study, other = plan(), plan(bayesian=BayesianPlan((4.0, 8.0), 12.0, "betting", "running", "path", "improved"))
    state = CumulativeLimit(other, other.limits[0]).state()
    with pytest.raises(InvalidArgument, match="other orders"):
        CumulativeLimit(study, study.limits[0]).restore(state)


def test_rounds_at_their_worst_cost_the_classical_moment_of_all_steps():
    study = plan()
    account = CumulativeLimit(study, study.limits[0])
    for rounds in (1, 3):
        worst = float(exact_epsilon(12, 2 * rounds * exact_moment(12, 2.0, 0.1), DELTA - FAILURE))
        assert account.epsilon_at_worst(rounds, 0) == pytest.approx(worst, rel=1e-9)
    assert account.epsilon_at_worst(0, 0) == 0.0


def test_a_share_stands_in_place_of_an_allowance():
    """Of the Σ Δ²/s² that the classical limit (6, 1e-5) alone would allow, which is 1.67 (Balle & Wang 2018)."""
    allowed = squares_within(6.0, 1e-5)
    studies = [plan(queries=QueryPlan(50, 100, **given)) for given in ({"share": 0.1}, {"allowance": 0.1 * allowed})]
    budgets = [Budget(study) for study in studies]
    for budget in budgets:
        ask(budget, cost(10.0), cost(8.0))
    assert budgets[0].statements()[0] == budgets[1].statements()[0]
    assert all(not budget.authorise_query(cost(2.0)).is_allowed for budget in budgets)
    with pytest.raises(PlanError, match="share"):
        plan(queries=QueryPlan(50, 100))
    with pytest.raises(PlanError, match="share"):
        plan(queries=QueryPlan(50, 100, 0.1, None, 0.1))
