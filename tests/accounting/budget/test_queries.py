"""Queries in a budget: the Gaussian filter, mixed studies, two totals; against dp-accounting and mpmath."""

import math
import random

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.budget import Budget, BudgetExceeded, OutOfOrder
from accounting.budget.forecast import forecast
from accounting.budget.ledger import LedgerError
from accounting.errors import InvalidArgument
from accounting.plan.limits import LimitPlan, PlanError
from accounting.plan.plan import Plan
from accounting.plan.queries import EvaluationPlan, QueryCost, QueryPlan
from accounting.plan.statistics import StatisticsPlan, plan_from_dict
from accounting.units import Definition, Level, Observer
from tests.accounting.budget.plans import plan

STEPS = 2.0**20


def cost(noise_multiplier, *, sensitivity=1.0, cells=1, bears="all"):
    """Noise in grid steps: the ratio alone counts."""
    moved = STEPS / noise_multiplier * sensitivity
    return QueryCost(STEPS * sensitivity, moved, cells, bears)


def statistics(epsilon=1.0, delta=1e-5, max_queries=100, max_cells=1000):
    limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, delta, None)
    return StatisticsPlan((limit,), QueryPlan(max_queries, max_cells), Observer.COORDINATOR)


def ask(budget, *costs):
    for one in costs:
        number = budget.last_round + 1
        budget.reserve_query(number, one)
        budget.settle(number, None)


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


# -- studies that train, too


def mixed(order=8.0, definitions=("classical",), **changes):
    queries = changes.pop("queries", QueryPlan(50, 100))
    return plan(definitions=definitions, epsilon={"bayesian": 15.0, "classical": 20.0}, classical_order=order,
                queries=queries, **changes)  # fmt: skip


def in_turn(budget, queries):
    for one in queries:
        number = budget.last_round + 1
        budget.reserve(number)
        budget.settle(number, None)
        ask(budget, one)


@pytest.mark.quick("16.0")
@pytest.mark.parametrize("order", [4.0, 8.0, 16.0])
def test_rounds_and_queries_in_turn_cost_what_dp_accounting_says(order):
    queries = [cost(3.0), cost(5.0, sensitivity=2.0), cost(12.0), cost(7.0)]
    budget = Budget(mixed(order))
    in_turn(budget, queries)
    other = rdp.RdpAccountant([order + 1], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    exact = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for one in queries:
        step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
        event = dp_accounting.GaussianDpEvent(one.noise_std / one.sensitivity)
        for account in (other, exact):
            account.compose(step, 2)
            account.compose(event)
    enforced = budget.accounts[0].epsilon()
    # The same Rényi divergence at the same integer α, converted by the same bound.
    assert enforced == pytest.approx(other.get_epsilon(1e-5), rel=1e-9)
    ((_, headline),) = budget.accounts[0].reports(finished=False)
    truth = exact.get_epsilon(1e-5)
    assert truth * (1 - 1e-4) <= headline.epsilon <= truth * 1.005
    assert headline.epsilon <= enforced


def split(every=None, scheduled=None, max_queries=50, allowance=None, **changes):
    """A study that sets patients aside."""
    evaluation = EvaluationPlan(every, scheduled)
    return mixed(queries=QueryPlan(max_queries, 100, allowance, evaluation), **changes)


def test_two_totals_are_kept_and_the_larger_one_is_shown():
    trained, evaluated, both = Budget(split()), Budget(split()), Budget(split())
    in_turn(trained, [cost(5.0)] * 3)
    ask(evaluated, *[cost(5.0)] * 3, *[cost(2.0, bears="evaluated")] * 4)
    in_turn(both, [cost(5.0)] * 3)
    ask(both, *[cost(2.0, bears="evaluated")] * 4)
    largest = max(trained.accounts[0].epsilon(), evaluated.accounts[0].epsilon())
    # What only the evaluated bear adds nothing to those who are trained on, and the other way round.
    assert both.accounts[0].epsilon() == largest
    assert evaluated.accounts[0].epsilon() > trained.accounts[0].epsilon()


def test_an_evaluation_may_not_pass_the_limit_although_training_has_room():
    budget = Budget(split())
    found = [budget.authorise_query(cost(m, bears="evaluated")).is_allowed for m in (0.05, 50.0)]
    assert found == [False, True]
    assert budget.authorise().is_allowed


@pytest.mark.parametrize("order", [4.0, 8.0, 16.0])
def test_each_side_of_the_split_costs_what_dp_accounting_says(order):
    """Everybody bears questions about all; who is set aside those about models, who is trained on the rounds."""
    budget = Budget(split(order=order))
    in_turn(budget, [cost(6.0)] * 2)
    sides = []
    for own in ([dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))] * 4, []):
        other = rdp.RdpAccountant([order + 1], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        for event in [*own, *[dp_accounting.GaussianDpEvent(6.0)] * 2]:
            other.compose(event)
        sides.append(other)
    # So long as the trained bear more, an evaluation adds nothing; then the evaluated are the ones that are shown.
    for _ in range(12):
        ask(budget, cost(4.0, bears="evaluated"))
        sides[1].compose(dp_accounting.GaussianDpEvent(4.0))
        expected = max(side.get_epsilon(1e-5) for side in sides)
        assert budget.accounts[0].epsilon() == pytest.approx(expected, rel=1e-9)


def test_training_goes_on_although_no_evaluation_fits_any_more():
    budget = Budget(split())
    while budget.authorise_query(cost(3.0, bears="evaluated")).is_allowed:
        ask(budget, cost(3.0, bears="evaluated"))
    assert budget.authorise_query(cost(3.0, bears="evaluated")).reason == "budget-exhausted"
    before = budget.accounts[0].epsilon()
    assert budget.authorise().is_allowed
    number = budget.last_round + 1
    budget.reserve(number)
    budget.settle(number, None)
    assert budget.accounts[0].epsilon() == before


def test_without_a_split_nobody_bears_an_evaluation():
    for made in (mixed(), statistics()):
        with pytest.raises(InvalidArgument, match="aside"):
            Budget(made).authorise_query(cost(9.0, bears="evaluated"))
        event = {"query": "a" * 64, "cost": cost(9.0, bears="evaluated").to_dict()}
        with pytest.raises(LedgerError, match="aside"):
            Budget(made).happen(2, "asked", 1, event)
    limits = statistics().limits
    with pytest.raises(PlanError, match="trains"):
        StatisticsPlan(limits, QueryPlan(5, 5, None, EvaluationPlan()), Observer.COORDINATOR)


def test_scheduled_evaluations_are_in_the_horizon_and_have_to_fit_when_the_study_opens():
    scheduled = cost(4.0, bears="evaluated")
    fits = Budget.open(split(every=50, scheduled=scheduled))
    assert fits.plan.queries.evaluation.due_by(150) == 3
    assert fits.plan.queries.evaluation.due_by(151) == 4
    with pytest.raises(PlanError, match="would fit") as refused:
        Budget.open(split(every=1, scheduled=scheduled))
    # The least noise that it names fits, and a little less does not: 150 rounds of two steps, all within the limit.
    least = float(str(refused.value).split("noise_multiplier of ")[1].split(" ")[0])
    Budget.open(split(every=1, scheduled=cost(least, bears="evaluated")))
    moment = 150 * 8.0 * 9.0 / 2 / least**2
    spent = (moment + 8 * math.log(8 / 9) - math.log(9) - math.log(1e-5)) / 8
    assert 20.0 * 0.99 <= spent <= 20.0
    found = forecast(split(every=1, scheduled=cost(least, bears="evaluated")), tight=False)
    assert found.limits[0].evaluated == pytest.approx(spent, rel=1e-6)
    assert forecast(split(), tight=False).limits[0].evaluated is None


def test_of_rounds_that_the_budget_never_allows_no_evaluation_has_to_fit():
    """Not all 150 rounds fit a limit of 2, and 15 evaluations would not either; those of the rounds that do, fit."""
    tight = {"definitions": ("classical",), "epsilon": {"classical": 2.0}, "classical_order": 10.0}

    def made(every):
        return plan(queries=QueryPlan(150, 10, None, EvaluationPlan(every, cost(6.0, bears="evaluated"))), **tight)

    assert 20 < forecast(made(10), tight=False).rounds < 60
    Budget.open(made(10))
    with pytest.raises(PlanError, match="would fit"):
        Budget.open(made(2))


def test_against_a_path_a_schedule_counts_as_it_comes_and_other_evaluations_within_the_allowance():
    scheduled = cost(5.0, bears="evaluated")
    both = ("bayesian", "classical")
    budget = Budget(split(every=1, scheduled=scheduled, allowance=0.1, definitions=both))
    account = next(one for one in budget.accounts if one.limit.definition is Definition.BAYESIAN)
    # Before a round nothing is due: 1/25 of the allowance of 1/10, twice and no more.
    ask(budget, scheduled, scheduled)
    assert not budget.authorise_query(scheduled).is_allowed
    in_turn(budget, [scheduled])
    in_turn(budget, [scheduled])
    # Two are due by now, and two were within the allowance.
    assert not budget.authorise_query(scheduled).is_allowed
    assert not budget.authorise_query(cost(4.0, bears="evaluated")).is_allowed
    assert budget.authorise_query(cost(8.0, bears="evaluated")).is_allowed
    order, precision = 12.0, 0.1 + 2 / 25
    moment = order * (order + 1) / 2 * precision
    constant = order * math.log(order / (order + 1)) - math.log(order + 1)
    expected = (moment + constant - math.log(1e-5 - 1e-6)) / order
    # Who is set aside has lost more than who was trained on twice two steps with little noise drawn rarely.
    assert account.epsilon() == pytest.approx(expected, rel=1e-6)
    again = Budget.restore(plan_from_dict(budget.plan.to_dict()), budget.state())
    assert [one.epsilon() for one in again.accounts] == [one.epsilon() for one in budget.accounts]


def test_a_round_of_training_is_refused_once_queries_have_taken_its_room():
    budget = Budget(plan(definitions=("classical",), epsilon={"classical": 3.0}, queries=QueryPlan(50, 10)))
    assert budget.authorise().is_allowed
    while budget.authorise_query(cost(3.0)).is_allowed:
        ask(budget, cost(3.0))
    asked = budget.authorise()
    assert (asked.is_allowed, asked.reason) == (False, "budget-exhausted") or budget.accounts[0].epsilon() < 3.0
    assert budget.can_continue


def test_a_bayesian_limit_against_an_adaptive_adversary_counts_queries_at_twice_the_order_halved():
    queries = QueryPlan(50, 10)
    base = plan(queries=None)
    adaptive = plan(bayesian=type(base.bayesian)(**{**vars(base.bayesian), "adversary": "adaptive"}), queries=queries,
                    epsilon={"bayesian": 15.0, "classical": 20.0})  # fmt: skip
    budget = Budget(adaptive)
    ask(budget, cost(4.0), cost(4.0))
    account = next(one for one in budget.accounts if one.limit.definition is Definition.BAYESIAN)
    order = 12.0
    moment = 2 * (2 * order + 1) * (2 * order + 2) / 2 / 16 / 2
    with mp.workdps(30):
        constant = order * mp.log(mp.mpf(order) / (order + 1)) - mp.log(order + 1)
        expected = (moment + constant - mp.log(1e-5 - 1e-6)) / order
    assert account.epsilon() == pytest.approx(float(expected), rel=1e-9)


def test_against_a_path_the_allowance_is_counted_whole_and_never_passed():
    budget = Budget(plan(epsilon={"bayesian": 15.0, "classical": 20.0}, queries=QueryPlan(50, 10, allowance=0.1)))
    account = next(one for one in budget.accounts if one.limit.definition is Definition.BAYESIAN)
    assert account.epsilon() == 0.0
    ask(budget, cost(100.0))
    once = account.epsilon()
    ask(budget, cost(100.0))
    # The whole allowance counts from the first charge on: a second question costs nothing more.
    assert account.epsilon() == once > 0
    assert not budget.authorise_query(cost(3.0)).is_allowed


def test_at_client_level_queries_are_refused_with_the_reason():
    limit = LimitPlan(Level.CLIENT, Definition.CLASSICAL, 8.0, 1e-5, None)
    with pytest.raises(PlanError, match="whole hospitals"):
        plan(scheme="client", limits=(limit,), bayesian=None, queries=QueryPlan(5, 5), disclosure="at-end",
             steps_per_round=1)  # fmt: skip


# -- order, replay, refusals


def test_state_and_restore_agree_to_the_last_bit():
    for made in (statistics(epsilon=20.0), mixed(), mixed(definitions=("bayesian", "classical"),
                 queries=QueryPlan(50, 10, allowance=1.0))):  # fmt: skip
        budget = Budget(made)
        ask(budget, cost(4.0), cost(9.0, sensitivity=math.sqrt(3)), cost(4.0))
        if isinstance(made, Plan):
            in_turn(budget, [cost(7.0)])
        budget.reserve_query(budget.last_round + 1, cost(8.0))
        again = Budget.restore(plan_from_dict(made.to_dict()), budget.state())
        assert again.state() == budget.state()
        assert [a.epsilon() for a in again.accounts] == [a.epsilon() for a in budget.accounts]
        assert again.statements() == budget.statements()


def test_a_query_under_way_shows_what_it_reserves():
    budget = Budget(statistics(epsilon=2.0))
    budget.reserve_query(1, cost(4.0))
    (shown, *_) = budget.statements()
    assert shown["spent"] == 0
    # From the first question on the limit is stated.
    assert budget.accounts[0].epsilon_after_query(cost(4.0)) < shown["reserved"] == 2.0
    budget.cancel(1, "too-few-clients")
    assert budget.statements()[0]["reserved"] == 0
    assert budget.charged_queries == 0


def test_queries_and_rounds_are_numbered_together_and_one_at_a_time():
    budget = Budget(mixed())
    budget.reserve_query(1, cost(9.0))
    for refused in (lambda: budget.reserve(2), lambda: budget.reserve_query(2, cost(9.0))):
        with pytest.raises(OutOfOrder):
            refused()
    budget.settle(1, None)
    with pytest.raises(OutOfOrder):
        budget.reserve(1)


def test_max_queries_is_kept_and_ends_a_study_of_queries_alone():
    budget = Budget(statistics(epsilon=20.0, max_queries=2))
    assert not budget.authorise().is_allowed
    ask(budget, cost(9.0), cost(9.0))
    assert budget.authorise_query(cost(9.0)).reason == "max-queries-reached"
    assert not budget.can_continue


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_std": 1e6}, {"noise_std": math.nan}, {"noise_std": math.inf}, {"noise_std": 2.0**41},
        {"sensitivity": 0.0}, {"sensitivity": -1.0}, {"sensitivity": math.nan}, {"cells": 0}, {"cells": 1.5},
        {"cells": True}, {"cells": 1 << 18}, {"bears": "nobody"},
    ],
)  # fmt: skip
def test_a_cost_that_cannot_be_is_refused(changes):
    given = {"noise_std": STEPS, "sensitivity": 1.0, "cells": 1, "bears": "all"} | changes
    with pytest.raises(InvalidArgument):
        QueryCost.from_dict(given)


def test_a_larger_query_than_the_study_allows_is_refused():
    with pytest.raises(InvalidArgument):
        Budget(statistics(max_cells=10)).authorise_query(cost(9.0, cells=11))
    with pytest.raises(LedgerError):
        Budget(statistics(max_cells=10)).happen(
            2, "asked", 1, {"query": "a" * 64, "cost": cost(9.0, cells=11).to_dict()}
        )
    with pytest.raises(InvalidArgument):
        Budget(plan()).authorise_query(cost(9.0))


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


def test_moments_of_a_query_are_the_closed_form():
    budget = Budget(mixed(8.0))
    ask(budget, cost(3.0))
    moment = 8.0 * 9.0 / 2 / 9.0
    expected = (moment + 8 * math.log(8 / 9) - math.log(9) - math.log(1e-5)) / 8
    assert budget.accounts[0].epsilon() == pytest.approx(expected, rel=1e-9)
    assert np.isfinite(expected)
