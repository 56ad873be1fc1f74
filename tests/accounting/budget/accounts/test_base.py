"""What all accounts of a limit share: rounds left."""

from accounting.budget.budget import Budget
from tests.accounting.budget.plans import plan


def test_rounds_left_is_what_then_happens_when_every_round_costs_its_worst():
    budget = Budget(plan(definitions=("classical",), epsilon={"classical": 2.0}))
    reported = budget.statements()[0]["rounds_left_estimate"]
    begun = 0
    while budget.authorise().allowed:
        begun += 1
        budget.reserve(begun)
        budget.settle(begun, None)
    assert reported == begun


def test_while_terms_are_shown_the_classical_certificate_says_against_whom_it_is_void():
    budget = Budget(plan())
    assert "does not hold against whoever sees" in budget.statements()[1]["certificate"]["assumption"]
    assert "does not hold against" not in Budget(plan(disclosure="at-end")).statements()[1]["certificate"]["assumption"]
