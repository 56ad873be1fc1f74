"""What all accounts of a limit share: rounds left, wording, refusals."""

import json
import math

import pytest

from accounting.budget.accounts.base import growth_from_json, growth_to_json
from accounting.budget.accounts.classical import ClassicalLimit
from accounting.budget.budget import Budget
from accounting.errors import InvalidArgument
from accounting.plan.limits import HistogramRelease
from accounting.plan.report import CumulativeMoments
from tests.accounting.budget.plans import cost, plan


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


def test_growth_survives_json_and_infinity_stands_for_no_round():
    for growth in (math.inf, 0.0, 0.1):
        assert growth_from_json(json.loads(json.dumps(growth_to_json(growth)))) == growth
    assert growth_to_json(math.inf) is None


def test_an_epsilon_that_is_no_number_fits_no_limit(monkeypatch):
    study = plan(definitions=("classical",))
    account = ClassicalLimit(study, study.limits[0])
    assert account.fits_worst_round(publishes=False)
    assert account.fits_query(cost(1e6))
    monkeypatch.setattr(account, "epsilon_after_worst_round", lambda publishes, stage: math.nan)
    monkeypatch.setattr(account, "epsilon_after_query", lambda query: math.nan)
    assert not account.fits_worst_round(publishes=False)
    assert not account.fits_query(cost(1e6))


def test_a_classical_account_has_no_bayesian_settings():
    study = plan(definitions=("classical",))
    account = ClassicalLimit(study, study.limits[0])
    with pytest.raises(InvalidArgument, match="no Bayesian settings"):
        _ = account.bayesian
