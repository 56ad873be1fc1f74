"""The schemes that count on a secure sum, and noised histograms, against formulas written down here."""

import json
import math
from dataclasses import replace

import mpmath as mp
import pytest

from accounting.budget.budget import Budget, replay
from accounting.plan.limits import BayesianPlan, HistogramRelease, LimitPlan, PlanError
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryPlan
from accounting.plan.report import (
    CumulativeMoments,
    DistanceHistogram,
    JointReport,
    distance_edges,
    report_from_dict,
    report_to_dict,
)
from accounting.units import Definition, Level, Observer
from tests.factories.ledgers import after, opened

DELTA, FAILURE = 1e-5, 1e-6
SIGMA, RATE, CLIP, HONEST, ORDER = 2.0, 0.1, 0.5, 4, 8


def limits(*levels, bayesian=True):
    kept = [LimitPlan(level, Definition.CLASSICAL, 40.0, DELTA, None) for level in levels]
    return tuple(kept + [LimitPlan(level, Definition.BAYESIAN, 30.0, DELTA, FAILURE) for level in levels if bayesian])


def plan(scheme, **changes):
    levels = {"joint": (Level.INSTANCE, Level.CLIENT), "client": (Level.CLIENT,)}.get(scheme, (Level.INSTANCE,))
    composition = "holder" if scheme == "client" else "running"
    defaults = {
        "scheme": scheme,
        "limits": limits(*levels),
        "clip_norm": CLIP,
        "client_clip_norm": 3.0 if scheme == "joint" else None,
        "noise_multiplier": SIGMA,
        "honest_survivors": HONEST if scheme in ("sequential", "joint") else 1,
        "sampling_rate": RATE,
        "steps_per_round": 1,
        "max_steps": 40,
        "classical_order": float(ORDER),
        "bayesian": BayesianPlan((4.0, 8.0), float(ORDER), "betting", composition, "path", "improved"),
        "disclosure": "plain",
        "release": None,
        "observer": Observer.RELEASES,
    }
    return Plan(**{**defaults, **changes})


HOLDER = BayesianPlan((4.0, 8.0), float(ORDER), "betting", "holder", "path", "improved")


def phi(sigma, q, order=ORDER):
    with mp.workdps(40):
        q = mp.mpf(q)
        return mp.log(
            mp.fsum(
                mp.binomial(order + 1, k) * q**k * (1 - q) ** (order + 1 - k)
                * mp.exp(mp.mpf(k * k - k) / (2 * mp.mpf(sigma) ** 2))
                for k in range(order + 2)
            )
        )  # fmt: skip


def epsilon(moment, beta=DELTA, order=ORDER):
    with mp.workdps(40):
        order = mp.mpf(order)
        constant = order * mp.log(order / (order + 1)) - mp.log(order + 1)
        return max(mp.mpf(0), (moment + constant - mp.log(mp.mpf(beta))) / order)


def account(budget, level, definition):
    return next(a for a in budget.accounts if (a.limit.level, a.limit.definition) == (level, definition))


def run(study, reports):
    budget, entries = Budget(study), opened(study)
    for number, report in enumerate(reports, start=1):
        budget.reserve(number)
        worst = [
            a.epsilon_after_worst_round(publishes=budget.plan.publishes(budget.pending or budget.last_round + 1))
            for a in budget.accounts
        ]
        budget.settle(number, report)
        for kept, most in zip(budget.accounts, worst, strict=True):
            assert kept.epsilon() <= most
        body = json.loads(json.dumps({"report": report_to_dict(report)}))
        entries += [after(entries, "reserved", number)]
        entries += [after(entries, "settled", number, **body)]
    assert replay(entries).statements() == budget.statements()
    assert Budget.restore(study, json.loads(json.dumps(budget.state()))).statements() == budget.statements()
    return budget


def close(found, exact):
    return exact <= found <= exact * (1 + mp.mpf("1e-6"))


def test_sequential_counts_the_noise_of_the_honest_survivors_and_no_more():
    budget = run(plan("sequential"), [None] * 3)
    exact = epsilon(3 * phi(SIGMA * math.sqrt(HONEST), RATE))
    assert close(account(budget, Level.INSTANCE, Definition.CLASSICAL).epsilon(), exact)
    assert "4 honest clients" in budget.statements()[0]["certificate"]["assumption"]


def test_the_papers_sequential_sum_stands_beside_and_is_named_so():
    reported = CumulativeMoments(0.01, (0.004, 0.01), papers=(0.002, 0.003))
    budget = run(plan("sequential"), [reported, reported])
    reports = account(budget, Level.INSTANCE, Definition.BAYESIAN).reports(finished=False)
    paper = dict(reports)["sequential, as in the papers"]
    beta = mp.mpf(DELTA) - mp.mpf(FAILURE)
    assert close(paper.epsilon, min(epsilon(mp.mpf(0.004), beta, 4), epsilon(mp.mpf(0.006), beta, 8)))
    assert "none of it holds against the coordinator" in paper.assumption
    # One round that does not tell its part ends the papers' sum; nothing is made up.
    silent = run(plan("sequential"), [reported, None])
    assert "sequential, as in the papers" not in dict(silent.accounts[1].reports(finished=False))


def test_the_papers_sum_counts_queries_too():
    reported = CumulativeMoments(0.01, (0.004, 0.01), papers=(0.002, 0.003))
    budget = run(plan("sequential", queries=QueryPlan(5, 10, allowance=0.1)), [reported, reported])
    paper = dict(account(budget, Level.INSTANCE, Definition.BAYESIAN).reports(finished=False))[
        "sequential, as in the papers"
    ]
    beta = mp.mpf(DELTA) - mp.mpf(FAILURE)
    # The whole allowance Σ Δ²/s² = 1/10 counts from round 1: λ(λ + 1)/20 at every order.
    exact = min(epsilon(mp.mpf(moment) + order * (order + 1) / mp.mpf(20), beta, order)
                for moment, order in ((0.004, 4), (0.006, 8)))  # fmt: skip
    assert close(paper.epsilon, exact)


def test_joint_reads_both_levels_from_one_noise():
    study = plan("joint")
    std = SIGMA * CLIP * math.sqrt(HONEST)
    budget = run(study, [None] * 2)
    assert close(account(budget, Level.CLIENT, Definition.CLASSICAL).epsilon(), epsilon(2 * phi(std / 3.0, 1.0)))
    assert close(account(budget, Level.INSTANCE, Definition.CLASSICAL).epsilon(), epsilon(2 * phi(std / CLIP, RATE)))
    relations = {s["level"]: s["certificate"]["relation"] for s in budget.statements()}
    assert relations == {"instance": "add-remove", "client": "zero-out"}
    assert distance_edges(study.mechanism(Level.CLIENT).clip_norm)[-1] == 3.0
    counts = (10,) + (0,) * 63
    reported = run(study, [JointReport(DistanceHistogram(counts), CumulativeMoments(0.01, (0.01, 0.01)))] * 2)
    for level in (Level.CLIENT, Level.INSTANCE):
        assert (
            account(reported, level, Definition.BAYESIAN).epsilon()
            <= account(budget, level, Definition.BAYESIAN).epsilon()
        )
    assert account(reported, Level.INSTANCE, Definition.BAYESIAN).epsilon() == pytest.approx(
        float(epsilon(mp.mpf(0.01), DELTA - FAILURE))
    )


def test_every_published_histogram_is_charged_in_both_notions():
    z = 5.0
    study = plan("parallel", disclosure="noised", release=HistogramRelease(z, 2))
    budget = run(study, [None] * 5)
    # A record of an accounting sample moves one count to another bin: Δ² = 2.
    published = 2 * mp.mpf(ORDER) * (ORDER + 1) * 2 / (2 * mp.mpf(z) ** 2)
    moment = 5 * phi(SIGMA, RATE) + published
    assert close(account(budget, Level.INSTANCE, Definition.CLASSICAL).epsilon(), epsilon(moment))
    assert close(
        account(budget, Level.INSTANCE, Definition.BAYESIAN).epsilon(), epsilon(moment, mp.mpf(DELTA) - mp.mpf(FAILURE))
    )


def test_a_samples_histogram_stays_charged_when_its_round_is_void():
    z = 5.0
    budget = Budget(plan("parallel", disclosure="noised", release=HistogramRelease(z, 2)))
    entries = opened(budget.plan)
    for number in (1, 2, 3):
        budget.reserve(number)
        worst = [one.epsilon_after_worst_round(publishes=number == 2) for one in budget.accounts]
        budget.cancel(number, "nobody came")
        assert all(one.epsilon() <= most for one, most in zip(budget.accounts, worst, strict=True))
        entries += [after(entries, "reserved", number)]
        entries += [after(entries, "cancelled", number, reason="nobody came")]
    moment = mp.mpf(ORDER) * (ORDER + 1) * 2 / (2 * mp.mpf(z) ** 2)
    assert close(account(budget, Level.INSTANCE, Definition.CLASSICAL).epsilon(), epsilon(moment))
    assert close(
        account(budget, Level.INSTANCE, Definition.BAYESIAN).epsilon(), epsilon(moment, DELTA - mp.mpf(FAILURE))
    )
    assert replay(entries).statements() == budget.statements()
    # A histogram of clients is drawn anew in every round, and nobody saw this one.
    central = Budget(plan("client", disclosure="noised", release=HistogramRelease(z, 1)))
    central.reserve(1)
    central.cancel(1, "nobody came")
    assert central.accounts[0].epsilon() == 0


def test_a_report_of_all_clients_may_bring_the_bound_down_a_partial_one_not():
    study = plan("parallel", disclosure="noised", release=HistogramRelease(20.0, 2))
    for complete in (False, True):
        reported = CumulativeMoments(0.001, (0.001, 0.001), complete=complete)
        budget = run(study, [None, reported])
        found = account(budget, Level.INSTANCE, Definition.BAYESIAN).epsilon()
        first_alone = float(epsilon(phi(SIGMA, RATE), DELTA - FAILURE))
        assert found == pytest.approx(float(epsilon(mp.mpf(0.001), DELTA - FAILURE)) if complete else first_alone)


def test_noise_on_counts_never_lowers_the_clients_bound():
    quiet = [0] * 64
    quiet[2] = 5000
    clean = plan("client", noise_multiplier=4.0, max_steps=4)
    noised = plan("client", noise_multiplier=4.0, max_steps=4, disclosure="noised", release=HistogramRelease(3.0, 1))
    exact = run(clean, [DistanceHistogram(tuple(quiet))]).accounts[1].epsilon()
    shaken = [count + (-1) ** i * 4 for i, count in enumerate(quiet)]
    reported = DistanceHistogram(tuple(shaken), sample_size=5000, count_noise=4.0)
    assert run(noised, [reported]).accounts[1].epsilon() >= exact
    # Counts without their noise, or of another size, are no report under this plan.
    worst = run(noised, [None]).accounts[1].epsilon()
    assert run(noised, [DistanceHistogram(tuple(quiet))]).accounts[1].epsilon() == worst
    assert run(noised, [DistanceHistogram((1,), sample_size=1, count_noise=4.0)]).accounts[1].epsilon() == worst


@pytest.mark.parametrize("scheme", ["parallel", "sequential"])
def test_noised_bounds_settle_below_their_reservation_whatever_is_told(scheme):
    study = plan(scheme, disclosure="noised", release=HistogramRelease(20.0, 2))
    reported = [CumulativeMoments(0.01, (0.01, 0.01)), CumulativeMoments(50.0, (50.0, 50.0), complete=True), None]
    budget = run(study, [*reported, *reported])
    most = 6 * phi(SIGMA * math.sqrt(HONEST if scheme == "sequential" else 1), RATE) + 3 * 72 / mp.mpf(20) ** 2
    assert account(budget, Level.INSTANCE, Definition.BAYESIAN).epsilon() <= epsilon(most, DELTA - FAILURE) * (1 + 1e-6)
    resolution = budget.statements()[1]["certificate"]["resolution"]
    assert "noise 20.0 on the counts" in resolution


@pytest.mark.parametrize("scheme", ["parallel", "sequential", "joint"])
@pytest.mark.parametrize("sample", ["members", "held-out"])
@pytest.mark.parametrize("adversary", ["path", "adaptive"])
@pytest.mark.parametrize("estimator", ["betting", "student-t"])
@pytest.mark.parametrize("hidden", [True, False])
def test_certified_needs_a_held_out_sample_that_is_not_shown_no_model_and_an_adaptive_adversary(
    scheme, sample, adversary, estimator, hidden
):
    bayesian = BayesianPlan((4.0, 8.0), float(ORDER), estimator, "running", adversary, "improved", sample)
    if scheme == "joint":
        bayesian = replace(bayesian, composition="holder")
    disclosure, observer = ("at-end", Observer.RELEASES) if hidden else ("plain", Observer.COORDINATOR)
    budget = Budget(plan(scheme, bayesian=bayesian, disclosure=disclosure, observer=observer))
    certificate = account(budget, Level.INSTANCE, Definition.BAYESIAN).certificate(finished=False)
    certified = (sample, adversary, estimator) == ("held-out", "adaptive", "betting") and hidden
    assert certificate.definition is (Definition.CERTIFIED if certified else Definition.BAYESIAN)
    assert certificate.sample == sample
    measured = sample == "held-out" and estimator == "betting" and not hidden
    # Under at-end the bounds are read when the study has finished.
    assert ("never trained on" in certificate.assumption) == measured


def test_a_limit_too_large_for_the_samplers_error_says_so():
    for epsilon, said in ((40.0, False), (90.0, True)):
        kept = [replace(limit, epsilon=epsilon) for limit in limits(Level.INSTANCE)]
        budget = run(plan("parallel", limits=tuple(kept)), [None])
        for shown in budget.statements()[:2]:
            assert ("taken to be exact" in shown["certificate"]["assumption"]) == said
            assert shown["certificate"]["delta"] == DELTA


def test_a_plan_written_before_samples_had_names_measured_members():
    written = plan("parallel").to_dict()
    del written["bayesian"]["sample"]
    assert Plan.from_dict(written) == plan("parallel")


def test_an_adaptive_certificate_of_clients_states_the_limit_that_was_kept():
    adaptive = replace(HOLDER, adversary="adaptive")
    for bayesian, states_limit in ((adaptive, True), (HOLDER, False)):
        budget = run(plan("client", bayesian=bayesian, noise_multiplier=8.0), [None])
        certificate = account(budget, Level.CLIENT, Definition.BAYESIAN).certificate(finished=False)
        spent = account(budget, Level.CLIENT, Definition.BAYESIAN).epsilon()
        assert certificate.epsilon == (30.0 if states_limit else spent)
        assert spent < 30.0
        assert "enforced no limit" not in certificate.assumption


@pytest.mark.parametrize(
    ("scheme", "changes", "field"),
    [
        ("joint", {"client_clip_norm": None}, "client_clip_norm"),
        ("parallel", {"client_clip_norm": 1.0}, "client_clip_norm"),
        ("parallel", {"honest_survivors": 2}, "honest_survivors"),
        ("sequential", {"steps_per_round": 2}, "steps_per_round"),
        ("parallel", {"disclosure": "noised"}, "release"),
        ("joint", {"disclosure": "noised", "release": HistogramRelease(3.0, 1)}, "release"),
        ("parallel", {"disclosure": "noised", "release": HistogramRelease(3.0, 1), "bayesian": HOLDER}, "composition"),
        ("client", {"bayesian": replace(HOLDER, sample="held-out")}, "sample"),
        ("parallel", {"limits": limits(Level.CLIENT)}, "limits"),
        ("joint", {"limits": limits(Level.CLIENT)[1:]}, "limits"),
    ],
)
def test_plans_that_promise_nothing_name_what_to_change(scheme, changes, field):
    with pytest.raises(PlanError) as refused:
        plan(scheme, **changes)
    assert refused.value.field == field


def test_evidence_survives_json():
    for report in (
        None,
        DistanceHistogram((1, 2)),
        DistanceHistogram((-1, 2), 3, 1.5),
        CumulativeMoments(0.5, (0.1, 0.2), True, (0.3, 0.4)),
        JointReport(DistanceHistogram((1,)), None),
        JointReport(None, CumulativeMoments(0.5, (0.1,))),
    ):
        assert report_from_dict(json.loads(json.dumps(report_to_dict(report)))) == report


@pytest.mark.parametrize(
    "arguments", [((-1, 2),), ((1,), None, 2.0), ((1,), 0, 2.0), ((1,), 3, 0.0), ((1,), 3, float("nan")), ((),)]
)
def test_counts_that_are_none_are_refused(arguments):
    with pytest.raises(ValueError, match=r"counts|sample_size|count_noise"):
        DistanceHistogram(*arguments)
