"""Queries in a budget: the Gaussian filter, mixed studies, two totals; against dp-accounting and mpmath."""

import math

import mpmath as mp
import pytest

from accounting.budget.budget import Budget, OutOfOrder
from accounting.budget.forecast import forecast
from accounting.budget.ledger import LedgerError
from accounting.errors import InvalidArgument
from accounting.plan.limits import LimitPlan, PlanError
from accounting.plan.plan import Plan
from accounting.plan.queries import EvaluationPlan, QueryPlan
from accounting.plan.statistics import StatisticsPlan, plan_from_dict
from accounting.units import Definition, Level, Observer
from tests.accounting.budget.plans import ask, cost, in_turn, mixed, plan, split, statistics

# -- studies that train, too


def test_an_evaluation_may_not_pass_the_limit_although_training_has_room():
    budget = Budget(split())
    found = [budget.authorise_query(cost(m, bears="evaluated")).is_allowed for m in (0.05, 50.0)]
    assert found == [False, True]
    assert budget.authorise().is_allowed


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


def test_a_larger_query_than_the_study_allows_is_refused():
    with pytest.raises(InvalidArgument):
        Budget(statistics(max_cells=10)).authorise_query(cost(9.0, cells=11))
    with pytest.raises(LedgerError):
        Budget(statistics(max_cells=10)).happen(
            2, "asked", 1, {"query": "a" * 64, "cost": cost(9.0, cells=11).to_dict()}
        )
    with pytest.raises(InvalidArgument):
        Budget(plan()).authorise_query(cost(9.0))
