"""ε from the budget endpoint, computed again from the ledger's raw events by an implementation that shares no code.

Extended precision (mpmath, 50 digits) from the published formulas: the moments of the subsampled Gaussian mechanism
(Triastcyn & Faltings 2020, Theorem 3), Student's t bound (their eq. 14), Hölder composition, the conversion of
Canonne, Kamath & Steinke 2020. The coordinator's numbers may be above, by less than 1e-6 relative, and never below.
The loss distributions are held against Opacus's PRV accountant.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution
from mpmath import betainc, binomial, exp, findroot, log, mp, mpf, ncdf, sqrt

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = pytest.mark.timeout(900)

mp.dps = 50
RELATIVE = mpf("1e-6")


def gaussian_moment(order: float, distance: Any, rate: float, noise: float) -> Any:
    """log E_k exp((k² − k) d²/2s²), k ~ Bin(λ+1, q)."""
    r2 = (mpf(distance) / mpf(noise)) ** 2
    if rate == 1:
        return mpf(order) * (mpf(order) + 1) * r2 / 2
    assert float(order).is_integer(), "the study enforces at an integer order where records are sampled"
    n, q = int(order) + 1, mpf(rate)
    return log(sum(binomial(n, k) * q**k * (1 - q) ** (n - k) * exp((k * k - k) * r2 / 2) for k in range(n + 1)))


def epsilon(order: float, moment: Any, beta: Any) -> Any:
    lam = mpf(order)
    return max(mpf(0), (moment - log(lam + 1) + lam * log(lam / (lam + 1)) - log(beta)) / lam)


def gaussian_delta(mu: Any, target: Any) -> Any:
    """δ(ε) of μ-Gaussian differential privacy (Balle & Wang 2018, Theorem 8)."""
    return ncdf(mu / 2 - target / mu) - exp(target) * ncdf(-mu / 2 - target / mu)


def classical_epsilon(plan: Mapping[str, Any], limit: Mapping[str, Any], steps: int, noise: Any) -> tuple[Any, Any]:
    """Return ε that holds for every stop after so many steps, and the share by which the coordinator may be above."""
    delta, rule = mpf(limit["delta"]), limit.get("enforcement")
    if rule == "gaussian-filter":
        # The limit from the first step on, and the squares of all steps are within it.
        mu = sqrt(mpf(steps)) * mpf(plan["clip_norm"]) / noise
        assert gaussian_delta(mu, mpf(limit["epsilon"])) <= delta
        return mpf(limit["epsilon"]), mpf(0)
    if rule == "fixed-plan":
        step = privacy_loss_distribution.from_gaussian_mechanism(
            float(noise) / plan["clip_norm"], sampling_prob=plan["sampling_rate"], value_discretization_interval=1e-3
        )
        # Their discretised losses are an upper bound as ours are: by less than a thousandth.
        whole = mpf(step.self_compose(plan["max_steps"]).get_epsilon_for_delta(limit["delta"])) * (1 - mpf("1e-3"))
        return whole, mpf("2e-3")
    at = plan["classical_order"]
    return epsilon(at, steps * gaussian_moment(at, plan["clip_norm"], plan["sampling_rate"], noise), delta), RELATIVE


def student_quantile(tail: Any, freedom: int) -> Any:
    """t with P(T > t) = tail, from the regularised incomplete beta function."""

    def excess(x: Any) -> Any:
        return betainc(mpf(freedom) / 2, mpf(1) / 2, 0, freedom / (freedom + x * x), regularized=True) / 2 - tail

    low, high = mpf(0), mpf(1)
    while excess(high) > 0:
        high *= 2
    return findroot(excess, (low, high), solver="anderson", tol=mpf("1e-40"))


def holder_cost(plan: Mapping[str, Any], counts: Sequence[int], order: float, failure: Any, noise: Any) -> Any:
    """One round's c_t: w log of Student's bound on E e^{φ/w}, at most φ at the clip norm."""
    top = gaussian_moment(order, plan["clip_norm"], plan["sampling_rate"], noise)
    weight = mpf(1) / plan["max_steps"]
    values = [
        exp(
            gaussian_moment(order, mpf(plan["clip_norm"]) * (i + 1) / len(counts), plan["sampling_rate"], noise)
            / weight
        )
        for i, count in enumerate(counts)
        for _ in range(count)
    ]
    m = len(values)
    mean = sum(values) / m
    variance = sum((value - mean) ** 2 for value in values) / m
    if m < 3 or variance == 0:
        return top
    bound = mean + student_quantile(failure * weight, m - 1) * sqrt(variance / (m - 1))
    return min(top, weight * log(bound))


def recomputed(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """definition -> ε at its enforcing order, after the whole ledger."""
    plan = entries[0]["body"]["plan"]
    bayesian, noise = plan["bayesian"], mpf(plan["noise_multiplier"]) * mpf(plan["clip_norm"])
    limits = {limit["definition"]: limit for limit in plan["limits"]}
    # A question of the demonstration is borne by patients who are never trained on, and costs them less than training.
    asked = {entry["round"] for entry in entries if entry["kind"] == "asked"}
    entries = [entry for entry in entries if entry["round"] not in asked]
    rounds = sum(entry["kind"] in ("settled", "charged-in-full") for entry in entries)
    steps = rounds * plan["steps_per_round"]
    classical, above = classical_epsilon(plan, limits["classical"], steps, noise)
    found = {
        "classical": classical,
        "above": {"classical": above, "bayesian": RELATIVE},
        "steps": steps,
        # Σ C²/s² of the steps: what a limit kept by counting squares has used.
        "squares": steps * (mpf(plan["clip_norm"]) / noise) ** 2,
        "plan": plan,
    }
    if bayesian is None:
        return found
    order, failure = bayesian["filter_order"], mpf(limits["bayesian"]["estimator_failure_probability"])
    worst = plan["steps_per_round"] * gaussian_moment(order, plan["clip_norm"], plan["sampling_rate"], noise)
    spent = mpf(0)
    for entry in entries:
        if entry["kind"] not in ("settled", "charged-in-full"):
            continue
        report = entry["body"].get("report")
        if report is None:
            spent += worst
        elif "counts" in report:
            spent += holder_cost(plan, report["counts"], order, failure, noise)
        else:
            floor = mpf(0) if report["complete"] else spent
            spent = min(max(floor, mpf(report["filter"])), spent + worst)
    beta = mpf(limits["bayesian"]["delta"]) - failure
    # What holds for every record holds for the typical one, at a δ that is no larger: of few, dear records estimates
    # may come out above it.
    assert limits["classical"]["delta"] <= limits["bayesian"]["delta"]
    return {**found, "bayesian": min(epsilon(order, spent, beta), found["classical"])}


@pytest.mark.slow
def test_the_endpoint_states_what_the_events_cost(demonstration):
    entries, budget = demonstration.read("ledger.json"), demonstration.read("budget.json")
    expected = recomputed(entries)
    assert expected["steps"] >= 3
    for limit in budget["limits"]:
        if limit["epsilon"] is None:
            continue
        stated, exact = mpf(limit["spent"]), expected[limit["definition"]]
        assert exact > 0
        assert stated >= exact
        assert stated <= exact * (1 + expected["above"][limit["definition"]])
        if limit["certificate"]["composition"] == "gaussian-filter":
            used = mpf(limit["certificate"]["used"])
            assert expected["squares"] <= used <= expected["squares"] * (1 + RELATIVE)


@pytest.mark.slow
def test_the_loss_distribution_lies_inside_the_bounds_of_opacus(demonstration):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant
    budget, expected = demonstration.read("budget.json"), recomputed(demonstration.read("ledger.json"))
    plan = expected["plan"]
    classical = next(limit for limit in budget["limits"] if limit["definition"] == "classical" and limit["epsilon"])
    stated = next(r["epsilon"] for r in classical["reports"] if r["name"] == "privacy-loss distribution")
    account = PRVAccountant()
    account.history = [(plan["noise_multiplier"], plan["sampling_rate"], expected["steps"])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dprv = account._get_dprv(eps_error=0.01, delta_error=classical["delta"] / 1000)
        low, _, high = dprv.compute_epsilon(classical["delta"], classical["delta"] / 1000, 0.01)
    assert low <= stated <= high


@pytest.mark.slow
def test_the_recomputation_notices_a_changed_event(demonstration):
    """The comparison above could not pass by accident: one round less, or a cheaper one, is seen."""
    entries = demonstration.read("ledger.json")
    whole = recomputed(entries)
    asked = {entry["round"] for entry in entries if entry["kind"] == "asked"}
    last = max(i for i, one in enumerate(entries) if one["kind"] == "settled" and one["round"] not in asked)
    shorter = recomputed(entries[:last])
    counted = {limit.get("enforcement") for limit in whole["plan"]["limits"]} & {"fixed-plan", "gaussian-filter"}
    seen = "squares" if counted else "classical"
    assert shorter[seen] < whole[seen] * (1 - 100 * RELATIVE)
    assert all(shorter[name] < whole[name] * (1 - 100 * RELATIVE) for name in whole.keys() & {"bayesian"})


@pytest.mark.parametrize(
    ("tail", "freedom", "table"), [("0.05", 10, "1.8124611228107"), ("0.001", 3, "10.214531852407")]
)
def test_the_quantile_used_here_agrees_with_the_printed_tables(tail: str, freedom: int, table: str):
    assert abs(student_quantile(mpf(tail), freedom) - mpf(table)) < mpf("1e-11")
