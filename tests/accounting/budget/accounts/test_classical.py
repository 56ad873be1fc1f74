"""The classical limit of a study that trains and asks: against dp-accounting and closed forms."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp

from accounting.budget.budget import Budget
from tests.accounting.budget.plans import ask, cost, in_turn, mixed, split


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


def test_moments_of_a_query_are_the_closed_form():
    budget = Budget(mixed(8.0))
    ask(budget, cost(3.0))
    moment = 8.0 * 9.0 / 2 / 9.0
    expected = (moment + 8 * math.log(8 / 9) - math.log(9) - math.log(1e-5)) / 8
    assert budget.accounts[0].epsilon() == pytest.approx(expected, rel=1e-9)
    assert np.isfinite(expected)
