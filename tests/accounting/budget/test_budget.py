import json
import math
import random
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.budget import Budget, BudgetExceeded, OutOfOrder, replay
from accounting.budget.ledger import LedgerError
from accounting.plan.limits import BayesianPlan, LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryCost, QueryPlan
from accounting.plan.report import CumulativeMoments, report_to_dict
from accounting.units import Definition, Level
from tests.accounting.budget.plans import DELTA, FAILURE, exact_epsilon, exact_moment, fixed, plan
from tests.factories.ledgers import after, opened


@st.composite
def studies(draw):
    return plan(
        noise_multiplier=draw(st.floats(0.8, 8)),
        sampling_rate=draw(st.floats(0.01, 1)),
        steps_per_round=draw(st.integers(1, 4)),
        max_steps=draw(st.integers(4, 60)),
        epsilon={"bayesian": draw(st.floats(0.5, 6)), "classical": draw(st.floats(1.2, 12))},
        disclosure=draw(st.sampled_from(["plain", "at-end"])),
        bayesian=BayesianPlan(
            (4.0, 8.0), float(draw(st.integers(8, 40))), "betting", "running",
            draw(st.sampled_from(["path", "adaptive"])), "improved",
        ),
        classical_order=float(draw(st.integers(8, 30))),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(studies(), st.data())
def test_no_round_begins_that_could_pass_a_limit_and_none_is_refused_without_need(study, data):
    budget = Budget(study)
    entries = opened(study)
    true_worst = float(exact_moment(int(study.bayesian.filter_order), study.noise_multiplier, study.sampling_rate))
    cumulative, rounds = 0.0, 0
    while budget.authorise().is_allowed:
        rounds += 1
        budget.reserve(rounds)
        entries.append(after(entries, "reserved", rounds))
        reserved = [
            a.epsilon_after_worst_round(publishes=budget.plan.publishes(budget.pending or budget.last_round + 1))
            for a in budget.accounts
        ]
        cost = data.draw(st.floats(0, 1.5)) * study.steps_per_round * true_worst
        kind = data.draw(st.sampled_from(["settled", "settled", "charged-in-full", "cancelled"]))
        if kind == "settled":
            cumulative += cost
            report = CumulativeMoments(cumulative, (cumulative,) * 2)
            budget.settle(rounds, report)
            entries.append(after(entries, "settled", rounds, report=report_to_dict(report)))
        else:
            getattr(budget, {"charged-in-full": "charge_in_full", "cancelled": "cancel"}[kind])(rounds, "because")
            entries.append(after(entries, kind, rounds, reason="because"))
        for account, worst in zip(budget.accounts, reserved, strict=True):
            assert account.epsilon() <= worst <= account.limit.epsilon
        assert rounds < 200 or kind == "cancelled"
        if rounds >= 200:
            return
    reason = budget.authorise().reason
    charged = budget.charged_rounds * study.steps_per_round
    if reason == "max-steps-reached":
        assert charged + study.steps_per_round > study.max_steps
    else:
        assert any(
            a.epsilon_after_worst_round(publishes=budget.plan.publishes(budget.pending or budget.last_round + 1))
            > a.limit.epsilon
            for a in budget.accounts
        )
    spent = exact_epsilon(
        study.classical_order,
        charged * exact_moment(int(study.classical_order), study.noise_multiplier, study.sampling_rate),
        DELTA,
    )
    classical = next(a for a in budget.accounts if a.limit.definition is Definition.CLASSICAL)
    if charged:
        assert spent <= classical.epsilon() <= spent * (1 + mp.mpf("1e-6"))
    assert spent <= classical.limit.epsilon
    with pytest.raises(BudgetExceeded):
        budget.reserve(rounds + 1)
    live = budget.statements()
    assert replay(entries).statements() == live
    assert Budget.restore(study, json.loads(json.dumps(budget.state()))).statements() == live


def test_public_disclosure_acts_on_worst_cases_and_tells_the_rest_at_the_end():
    budget = Budget(plan(disclosure="at-end"))
    budget.reserve(1)
    budget.settle(1, CumulativeMoments(0.001, (0.001, 0.001, 0.001)))
    worst = float(exact_epsilon(12, 2 * exact_moment(12, 2.0, 0.1), DELTA - FAILURE))
    reported = budget.statements()[0]
    assert reported["spent"] == pytest.approx(worst, rel=1e-9)
    assert reported["certificate"]["epsilon"] == pytest.approx(worst, rel=1e-9)
    assert reported["reports"] == []
    budget.finish("stopped")
    reported = budget.statements()[0]
    assert reported["certificate"]["epsilon"] == pytest.approx(
        float(exact_epsilon(12, mp.mpf(0.001), DELTA - FAILURE)), rel=1e-9
    )


def test_the_level_that_nothing_protects_is_unbounded_not_absent():
    other = Budget(plan()).statements()[-1]
    assert (other["level"], other["state"], other["epsilon"]) == ("client", "unbounded", None)


def test_percentiles_are_markovs():
    budget = Budget(plan())
    budget.reserve(1)
    budget.settle(1, None)
    for line in budget.percentiles():
        # The share as it is read, not the binary fraction next to it.
        exact = Fraction(DELTA) / (1 - Fraction(str(line["population"])))
        assert exact <= Fraction(line["delta"]) <= exact * (1 + Fraction(1, 10**15))
        assert line["epsilon"] == budget.accounts[0].epsilon()


def test_what_cannot_have_happened_is_refused_and_changes_nothing():
    budget = Budget(plan())
    before = budget.state()
    for wrong in (lambda: budget.settle(1, None), lambda: budget.cancel(1, ""), lambda: budget.charge_in_full(2, "")):
        with pytest.raises(OutOfOrder):
            wrong()
    assert budget.state() == before
    budget.reserve(3)
    for wrong in (lambda: budget.reserve(4), lambda: budget.settle(2, None), lambda: budget.finish("stopped")):
        with pytest.raises(OutOfOrder):
            wrong()
    budget.cancel(3, "nobody came")
    with pytest.raises(OutOfOrder):
        budget.reserve(3)


def test_replay_refuses_a_ledger_that_overspends():
    tiny = plan(definitions=("classical",), epsilon={"classical": 1.9}, sampling_rate=1.0, classical_order=8.0)
    entries = opened(tiny)
    for number in range(1, 50):
        entries.append(after(entries, "reserved", number))
        entries.append(after(entries, "charged-in-full", number, reason="x"))
    with pytest.raises(LedgerError, match="no further round"):
        replay(entries)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, -1.0])
def test_no_evidence_holds_such_a_number(value):
    with pytest.raises(ValueError, match="filter"):
        CumulativeMoments(value, (1.0,))


def test_a_plan_survives_json():
    for study in (plan(), plan(definitions=("classical",))):
        assert Plan.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def test_a_bayesian_number_never_reads_above_the_classical_one():
    # So much of delta goes to the estimate that the Bayesian filter alone would read higher.
    limits = (
        LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 20.0, DELTA, 0.9999 * DELTA),
        LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 20.0, DELTA, None),
    )
    budget = Budget(plan(limits=limits, classical_order=12.0))
    budget.reserve(1)
    budget.settle(1, None)
    bayesian, classical = budget.statements()[:2]
    assert budget.accounts[0].epsilon() > classical["spent"]
    assert bayesian["spent"] == bayesian["certificate"]["epsilon"] == classical["spent"]
    assert bayesian["certificate"]["capped"]


def test_the_attackers_chance_counts_delta_too():
    budget = Budget.open(plan(epsilon={"bayesian": 6.0, "classical": 6.0}))
    budget.reserve(1)
    budget.settle(1, None)
    (limit,) = (limit for limit in budget.statements() if limit["definition"] == "bayesian")
    with mp.workdps(40):
        grown = mp.exp(mp.mpf(limit["spent"]))
        exact = (grown + mp.mpf(limit["delta"])) / (1 + grown)
    assert exact <= limit["attack_success"] <= exact * (1 + mp.mpf("1e-14"))


def test_a_supposed_budget_holds_what_is_under_way_and_what_is_kept():
    """Whatever becomes of them, what fits the supposed budget fits, and the budget itself stays as it is."""
    queries = QueryPlan(max_queries=3, max_cells=1)
    budget = Budget(plan(definitions=("classical",), queries=queries))
    budget.reserve(1)
    before, cost = budget.state(), QueryCost(noise_std=2.0**22, sensitivity=2.0**20, cells=1)
    supposed = budget.supposing([cost, cost])
    assert budget.state() == before
    assert (supposed.pending, supposed.charged_rounds, supposed.charged_queries) == (None, 1, 2)
    assert supposed.authorise_query(cost).is_allowed
    assert budget.supposing([cost] * 3).authorise_query(cost).reason == "max-queries-reached"
    budget.charge_in_full(1, "all of it")
    for number in (2, 3):
        budget.reserve_query(number, cost)
        budget.settle(number, None)
    assert [account.epsilon() for account in budget.accounts] == [account.epsilon() for account in supposed.accounts]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["fixed-plan", "renyi-order"])
def test_what_is_kept_fits_whatever_came_between(rule):
    """Questions are let in beside what is kept, rounds begin beside it, and each ends in any way, in 40 orders."""
    queries = QueryPlan(max_queries=6, max_cells=1, share=0.2 if rule == "fixed-plan" else None)
    study = fixed(8, queries=queries) if rule == "fixed-plan" else plan(definitions=("classical",), queries=queries)
    refused = 0
    for seed in range(40):
        draw, budget, kept = random.Random(seed), Budget(study), []
        for number in range(1, 25):
            cost = QueryCost(2.0**22, 2.0**22 / draw.choice([2.0, 4.0, 9.0]), 1)
            if budget.supposing(kept).authorise_query(cost).is_allowed:
                kept.append(cost)
            else:
                refused += 1
            if kept and draw.random() < 0.4:
                # None raises, though others were charged since it was let in.
                budget.reserve_query(number, kept.pop(draw.randrange(len(kept))))
            elif budget.supposing(kept).authorise().is_allowed:
                budget.reserve(number)
            if budget.pending is not None:
                budget.cancel(number, "none") if draw.random() < 0.3 else budget.charge_in_full(number, "all")
            assert all(account.epsilon() <= account.limit.epsilon for account in budget.accounts)
    assert refused > 0
