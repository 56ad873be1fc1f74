"""The Bayesian limit of clients: histograms settle below their reservation."""

import json
import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.accounts.histogram import HistogramLimit
from accounting.budget.budget import Budget, replay
from accounting.plan.limits import BayesianPlan
from accounting.plan.report import DistanceHistogram, distance_edges, report_to_dict
from tests.accounting.budget.plans import (
    DELTA,
    FAILURE,
    client_plan,
    exact_epsilon,
    exact_moment,
    exact_moment_at,
)
from tests.factories.ledgers import after, opened


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
    entries = opened(study)
    for number, counts in enumerate(rounds, start=1):
        report = DistanceHistogram(tuple(counts))
        budget.reserve(number)
        worst = budget.accounts[0].epsilon_after_worst_round(publishes=False)
        budget.settle(number, report)
        assert budget.accounts[0].epsilon() <= worst
        entries.append(after(entries, "reserved", number))
        entries.append(after(entries, "settled", number, report=report_to_dict(report)))
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
    edges = distance_edges(budget.plan.clip_norm)
    # The mean of e^(Tφ) over the same sample is below any upper bound on it.
    mean = mp.fsum(n * mp.exp(300 * exact_moment_at(8, 2.0, 0.1, d / 0.5)) for n, d in zip(counts, edges, strict=True))
    least = exact_epsilon(8, mp.log(mean / 100) / 300, DELTA - FAILURE)
    assert least <= budget.accounts[0].epsilon() < worst


def test_a_round_without_a_report_costs_the_worst_case_and_none_begins_after_the_last():
    study = client_plan(noise_multiplier=4.0, max_steps=2)
    account = HistogramLimit(study, study.limits[0])
    for rounds in (1, 2):
        account.charge(None, publishes=False)
        worst = exact_epsilon(8, rounds * exact_moment(8, 4.0, 0.1), DELTA - FAILURE)
        assert account.epsilon() == pytest.approx(float(worst), rel=1e-6)
    assert account.epsilon_after_worst_round(publishes=False) == math.inf
