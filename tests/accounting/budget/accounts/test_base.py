"""What all accounts of a limit share: rounds left."""

from accounting.budget.budget import Budget
from accounting.plan.limits import HistogramRelease
from accounting.plan.report import CumulativeMoments
from tests.accounting.budget.plans import plan


def test_rounds_left_is_what_then_happens_when_every_round_costs_its_worst():
    budget = Budget(plan(definitions=("classical",), epsilon={"classical": 2.0}))
    reported = budget.statements()[0]["rounds_left_estimate"]
    begun = 0
    while budget.authorise().is_allowed:
        begun += 1
        budget.reserve(begun)
        budget.settle(begun, None)
    assert reported == begun


def words(budget):
    """What every certificate and every report beside it assumes."""
    limits = [limit for limit in budget.statements() if limit["certificate"] is not None]
    beside = [report["certificate"]["assumption"] for limit in limits for report in limit["reports"]]
    return [limit["certificate"]["assumption"] for limit in limits] + beside


def test_while_costs_are_shown_every_certificate_says_against_whom_it_is_void():
    assert all("does not hold against whoever sees" in said for said in words(Budget(plan())))
    assert not any("does not hold" in said for said in words(Budget(plan(definitions=("classical",)))))


def test_they_turn_void_against_whoever_reads_what_was_shown_at_the_end():
    budget = Budget(plan(disclosure="at-end"))
    budget.reserve(1)
    budget.settle(1, None)
    assert not any("does not hold" in said for said in words(budget))
    budget.finish("stopped", [CumulativeMoments(0.001, (0.001, 0.001, 0.001))])
    assert len(words(budget)) == 4
    assert all("does not hold against whoever reads" in said for said in words(budget))


def test_nothing_is_void_where_only_noised_histograms_are_shown():
    noised = Budget(plan(disclosure="noised", release=HistogramRelease(20.0, 2)))
    noised.finish("stopped")
    assert not any("does not hold" in said for said in words(noised))
