"""The Gaussian filter of questions alone: against mpmath and dp-accounting."""

import math
import random
from dataclasses import replace

import dp_accounting
import mpmath as mp
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.accounts.gaussian import GaussianLimit
from accounting.budget.budget import Budget, BudgetExceeded
from accounting.errors import InvalidArgument
from accounting.plan.limits import PlanError
from tests.accounting.budget.plans import ask, cost, statistics


def gaussian_delta(mu, epsilon):
    """Balle & Wang 2018, Theorem 8, in 50 digits."""
    with mp.workdps(50):
        mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", [36.0, 38.0, 45.0, 600.0, 1e6])
def test_a_limit_whose_delta_the_lattice_uses_up_opens_no_study(epsilon):
    """1 + e^ε times the error of 10⁵ numbers, 8e-23: from ε = 39 on more than δ = 1e-5. Its budget still answers."""
    plan, lost = statistics(epsilon), epsilon > 39
    if lost:
        with pytest.raises(PlanError, match="no query could ever be asked"):
            Budget.open(plan)
    budget = Budget(plan) if lost else Budget.open(plan)
    assert budget.authorise_query(cost(1e6)).is_allowed != lost
    assert [limit["reports"] == [] for limit in budget.statements()[:1]] == [lost]


@pytest.mark.parametrize(("epsilon", "least"), [(0.1, 30.750), (0.5, 7.0318), (1.0, 3.7306), (2.0, 1.9938)])
def test_one_query_costs_what_the_analytic_gaussian_does(epsilon, least):
    budget = Budget(statistics(epsilon))
    assert budget.authorise_query(cost(least * 1.0005)).is_allowed
    assert not budget.authorise_query(cost(least * 0.9995)).is_allowed


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(3.0, 300.0), min_size=1, max_size=30))
def test_the_filter_reads_the_sum_of_squares_never_below_the_exact_law(multipliers):
    budget = Budget(statistics(epsilon=20.0))
    ask(budget, *(cost(m) for m in multipliers))
    account = budget.accounts[0]
    mu = mp.sqrt(mp.fsum(1 / mp.mpf(m) ** 2 for m in multipliers))
    exact = gaussian_delta(mu, account.epsilon())
    assert exact <= 1e-5
    # And not wasteful: a little less ε would not do.
    if account.epsilon() > 1e-3:
        assert gaussian_delta(mu, account.epsilon() * 0.999) > 1e-5 * 0.99


def test_the_filter_does_not_depend_on_the_order_of_questions():
    multipliers = [3.0, 5.0, 7.0, 11.0, 13.0] * 3
    found = set()
    for seed in range(5):
        budget = Budget(statistics(epsilon=20.0))
        ask(budget, *(cost(m) for m in random.Random(seed).sample(multipliers, len(multipliers))))
        found.add(budget.accounts[0].epsilon())
    assert len(found) == 1


def test_adaptive_questions_never_pass_the_filter():
    """Each question's noise is chosen from what is left, as greedily as it goes; the sum of squares stays within μ²."""
    limit = 1.0
    budget = Budget(statistics(epsilon=limit))
    for attempt in range(60):
        wanted = 4.0 + attempt % 7
        if budget.authorise_query(cost(wanted)).is_allowed:
            ask(budget, cost(wanted))
    spent = budget.accounts[0].queries.precision("all")
    assert gaussian_delta(mp.sqrt(spent), limit) <= 1e-5
    with pytest.raises(BudgetExceeded):
        budget.reserve_query(budget.last_round + 1, cost(4.0))


def test_the_loss_distribution_beside_the_filter_is_never_below_dp_accounting_and_close():
    budget = Budget(statistics(epsilon=20.0))
    multipliers = [4.0, 6.0, 9.0, 20.0]
    ask(budget, *(cost(m) for m in multipliers))
    (name, stated), *_ = budget.accounts[0].reports(finished=False)
    other = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for m in multipliers:
        other.compose(dp_accounting.GaussianDpEvent(m))
    assert name == "privacy-loss distribution"
    with_mp = mp.sqrt(mp.fsum(1 / mp.mpf(m) ** 2 for m in multipliers))
    assert gaussian_delta(with_mp, stated.epsilon) <= 1e-5
    assert stated.epsilon == pytest.approx(other.get_epsilon(1e-5), rel=5e-3)
    assert budget.accounts[0].epsilon() == pytest.approx(stated.epsilon, rel=1e-6)


def test_the_discrete_law_costs_delta_beforehand():
    """All cells of all queries: (1 + e^ε) · cells · lattice error come off δ, before any ε is read."""
    small, large = (Budget(statistics(20.0, 1e-8, queries, 100_000)).accounts[0] for queries in (1, 100_000))
    assert small.delta > large.delta > 0
    per_cell = 1e-3 / (2.0**20 - 1) ** 4
    assert 1e-8 - large.delta >= (1 + math.exp(20)) * 1e10 * per_cell
    assert large.epsilon_after_query(cost(20.0)) > small.epsilon_after_query(cost(20.0))


def test_where_so_many_cells_take_all_of_delta_nothing_is_allowed():
    budget = Budget(statistics(60.0, 1e-10, 100_000, 100_000))
    assert budget.accounts[0].delta <= 0
    assert not budget.authorise_query(cost(1e6)).is_allowed


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_largest_sum_of_squares_is_where_the_exact_law_reaches_delta(epsilon):
    study = statistics(epsilon)
    account = GaussianLimit(study, study.limits[0])
    mu = mp.sqrt(account.max_squares)
    assert (
        gaussian_delta(mu * (1 - mp.mpf("1e-6")), epsilon) < 1e-5 < gaussian_delta(mu * (1 + mp.mpf("1e-6")), epsilon)
    )
    assert account.fits(account.max_squares * (1 - 1e-8))
    assert not account.fits(account.max_squares)


def test_nothing_trains_and_charges_are_taken_up_again():
    study = statistics(4.0)
    account, again = (GaussianLimit(study, study.limits[0]) for _ in range(2))
    with pytest.raises(InvalidArgument, match="no rounds of training"):
        account.charge(None, publishes=False)
    assert account.rounds_left() == 0
    account.charge_query(cost(12.0))
    again.restore(account.state())
    assert again.epsilon() == account.epsilon() > 0
    assert again.used == pytest.approx(1 / 144, rel=1e-9)


@pytest.mark.parametrize(("enforcement", "stated"), [("gaussian-filter", 1.0), (None, 0.0)])
def test_a_named_rule_states_the_limit_from_the_first_question_on(enforcement, stated):
    """The first answer moves by less than δ in total variation, so that its own ε is 0."""
    study = statistics(delta=1e-2)
    study = replace(study, limits=(replace(study.limits[0], enforcement=enforcement),))
    budget = Budget.open(study)
    ask(budget, cost(100.0))
    assert budget.statements()[0]["spent"] == stated
