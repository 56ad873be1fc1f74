"""The classical limit and what its certificate admits."""

from accounting.budget.budget import Budget
from tests.accounting.budget.plans import plan


def test_while_terms_are_shown_the_classical_certificate_says_against_whom_it_is_void():
    budget = Budget(plan())
    assert "does not hold against whoever sees" in budget.statements()[1]["certificate"]["assumption"]
    assert "does not hold against" not in Budget(plan(disclosure="at-end")).statements()[1]["certificate"]["assumption"]
