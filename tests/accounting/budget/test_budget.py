import dataclasses
import json
import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.accounts import distance_edges
from accounting.budget.budget import Budget, BudgetExceeded, OutOfOrder, replay
from accounting.budget.ledger import LedgerError, append
from accounting.plan.plan import BayesianPlan, FirstRoundOverspends, LimitPlan, Plan, PlanError
from accounting.plan.report import CumulativeMoments, DistanceHistogram, report_to_dict
from accounting.units import Definition, Level, Observer

DELTA, FAILURE = 1e-5, 1e-6


def plan(**changes):
    definition = changes.pop("definitions", ("bayesian", "classical"))
    epsilon = changes.pop("epsilon", {"bayesian": 2.0, "classical": 6.0})
    defaults = {
        "scheme": "parallel",
        "limits": tuple(
            LimitPlan(Level.INSTANCE, Definition(name), epsilon[name], DELTA, FAILURE if name == "bayesian" else None)
            for name in definition
        ),
        "clip_norm": 0.5,
        "client_clip_norm": None,
        "honest_survivors": 1,
        "release": None,
        "noise_multiplier": 2.0,
        "sampling_rate": 0.1,
        "steps_per_round": 2,
        "max_steps": 300,
        "classical_order": 8.0,
        "bayesian": BayesianPlan((4.0, 8.0, 16.0), 12.0, "betting", "running", "path", "improved")
        if "bayesian" in definition
        else None,
        "disclosure": "plain",
        "observer": Observer.RELEASES,
    }
    return Plan(**{**defaults, **changes})


def exact_moment(order, sigma, q):
    """φ by the definition, 40 digits; independent of the package."""
    with mp.workdps(40):
        terms = (
            mp.binomial(order + 1, k) * mp.mpf(q) ** k * (1 - mp.mpf(q)) ** (order + 1 - k)
            * mp.exp(mp.mpf(k * k - k) / (2 * mp.mpf(sigma) ** 2))
            for k in range(order + 2)
        )  # fmt: skip
        return mp.log(mp.fsum(terms))


def exact_epsilon(order, moment, beta):
    with mp.workdps(40):
        order = mp.mpf(order)
        constant = order * mp.log(order / (order + 1)) - mp.log(order + 1)
        return max(mp.mpf(0), (moment + constant - mp.log(beta)) / order)


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
    entries = [append(None, "opened", None, {"study": "s", "plan": study.to_dict()})]
    true_worst = float(exact_moment(int(study.bayesian.filter_order), study.noise_multiplier, study.sampling_rate))
    cumulative, rounds = 0.0, 0
    while budget.authorise().allowed:
        rounds += 1
        budget.reserve(rounds)
        entries.append(append(entries[-1], "reserved", rounds, {}))
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
            entries.append(append(entries[-1], "settled", rounds, {"report": report_to_dict(report)}))
        else:
            getattr(budget, {"charged-in-full": "charge_in_full", "cancelled": "cancel"}[kind])(rounds, "because")
            entries.append(append(entries[-1], kind, rounds, {"reason": "because"}))
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


def test_a_study_whose_first_round_would_overspend_says_so_with_the_noise_that_would_fit():
    tight = plan(noise_multiplier=0.3, sampling_rate=0.5)
    with pytest.raises(FirstRoundOverspends) as refused:
        Budget.open(tight)
    one, whole = refused.value.noise_one_round, refused.value.noise_max_steps
    assert 0.3 < one < whole
    Budget.open(dataclasses.replace(tight, noise_multiplier=one))
    with pytest.raises(FirstRoundOverspends):
        Budget.open(dataclasses.replace(tight, noise_multiplier=one * 0.98))
    roomy = Budget.open(dataclasses.replace(tight, noise_multiplier=whole))
    while roomy.authorise().allowed:
        roomy.reserve(roomy.last_round + 1)
        roomy.settle(roomy.pending, None)
    assert roomy.authorise().reason == "max-steps-reached"


def test_an_order_at_which_no_noise_would_do_is_named():
    with pytest.raises(PlanError, match="larger order"):
        Budget.open(plan(classical_order=0.5))


def test_rounds_left_is_what_then_happens_when_every_round_costs_its_worst():
    budget = Budget(plan(definitions=("classical",), epsilon={"classical": 2.0}))
    reported = budget.statements()[0]["rounds_left_estimate"]
    begun = 0
    while budget.authorise().allowed:
        begun += 1
        budget.reserve(begun)
        budget.settle(begun, None)
    assert reported == begun


def test_the_level_that_nothing_protects_is_unbounded_not_absent():
    other = Budget(plan()).statements()[-1]
    assert (other["level"], other["state"], other["epsilon"]) == ("client", "unbounded", None)


def test_while_terms_are_shown_the_classical_certificate_says_against_whom_it_is_void():
    budget = Budget(plan())
    assert "does not hold against whoever sees" in budget.statements()[1]["certificate"]["assumption"]
    assert "cancel" not in Budget(plan(disclosure="at-end")).statements()[1]["certificate"]["assumption"]


def test_percentiles_are_markovs():
    budget = Budget(plan())
    budget.reserve(1)
    budget.settle(1, None)
    for line in budget.percentiles():
        assert line["delta"] >= mp.mpf(DELTA) / (1 - mp.mpf(line["population"]))
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
    entries = [append(None, "opened", None, {"study": "s", "plan": tiny.to_dict()})]
    for number in range(1, 50):
        entries.append(append(entries[-1], "reserved", number, {}))
        entries.append(append(entries[-1], "charged-in-full", number, {"reason": "x"}))
    with pytest.raises(LedgerError, match="no further round"):
        replay(entries)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, -1.0])
def test_no_evidence_holds_such_a_number(value):
    with pytest.raises(ValueError, match="filter"):
        CumulativeMoments(value, (1.0,))


def test_a_plan_survives_json():
    for study in (plan(), plan(definitions=("classical",))):
        assert Plan.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def client_plan(**changes):
    limits = (
        LimitPlan(Level.CLIENT, Definition.BAYESIAN, 3.0, DELTA, FAILURE),
        LimitPlan(Level.CLIENT, Definition.CLASSICAL, 8.0, DELTA, None),
    )
    bayesian = BayesianPlan((4.0, 8.0), 8.0, "student-t", "holder", "path", "improved")
    return plan(**{"scheme": "client", "limits": limits, "bayesian": bayesian, "steps_per_round": 1, **changes})


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=64, max_size=64), min_size=1, max_size=6),
    st.sampled_from(["student-t", "betting", "band", "bernstein"]),
    st.sampled_from(["path", "adaptive"]),
    st.sampled_from(["plain", "at-end"]),
)
def test_histograms_are_charged_at_most_at_the_reservation_and_replay_the_same(
    rounds, estimator, adversary, disclosure
):
    bayesian = BayesianPlan((4.0, 8.0), 8.0, estimator, "holder", adversary, "improved")
    study = client_plan(bayesian=bayesian, noise_multiplier=4.0, disclosure=disclosure, max_steps=20)
    budget = Budget(study)
    entries = [append(None, "opened", None, {"study": "s", "plan": study.to_dict()})]
    for number, counts in enumerate(rounds, start=1):
        report = DistanceHistogram(tuple(counts))
        budget.reserve(number)
        worst = budget.accounts[0].epsilon_after_worst_round(publishes=False)
        budget.settle(number, report)
        assert budget.accounts[0].epsilon() <= worst
        entries.append(append(entries[-1], "reserved", number, {}))
        entries.append(append(entries[-1], "settled", number, {"report": report_to_dict(report)}))
    cap = len(rounds) * exact_moment(8, 4.0, 0.1)
    assert budget.accounts[0].epsilon() <= exact_epsilon(8, cap, DELTA - FAILURE) * (1 + mp.mpf("1e-6"))
    assert replay(entries).statements() == budget.statements()
    assert Budget.restore(study, json.loads(json.dumps(budget.state()))).statements() == budget.statements()


def test_small_updates_cost_less_than_the_worst_case_under_the_model_based_estimator():
    budget = Budget(client_plan())
    counts = [0] * 64
    counts[9], counts[10] = 60, 40  # updates about a sixth of the clip norm
    budget.reserve(1)
    worst = budget.accounts[0].epsilon_after_worst_round(publishes=False)
    budget.settle(1, DistanceHistogram(tuple(counts)))
    edges = distance_edges(budget.plan)
    # The mean of e^(Tφ) over the same sample is below any upper bound on it.
    mean = mp.fsum(n * mp.exp(300 * exact_moment_at(8, 2.0, 0.1, d / 0.5)) for n, d in zip(counts, edges, strict=True))
    least = exact_epsilon(8, mp.log(mean / 100) / 300, DELTA - FAILURE)
    assert least <= budget.accounts[0].epsilon() < worst


def exact_moment_at(order, sigma, q, ratio):
    return exact_moment(order, sigma / float(ratio), q)


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
    budget = Budget.open(plan(definitions=("classical",), epsilon={"classical": 6.0}))
    assert [limit["attack_success"] > 0.5 for limit in budget.statements() if limit["epsilon"]] == [True]
    budget.reserve(1)
    budget.settle(1, None)
    (limit,) = (limit for limit in budget.statements() if limit["epsilon"])
    with mp.workdps(40):
        grown = mp.exp(mp.mpf(limit["spent"]))
        exact = (grown + mp.mpf(limit["delta"])) / (1 + grown)
    assert exact <= limit["attack_success"] <= exact * (1 + mp.mpf("1e-14"))
