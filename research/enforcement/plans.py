"""Plans whose limits are kept by one rule or another, as a study's budget sees them."""

from __future__ import annotations

from accounting import Definition, Level, LimitPlan, Observer, Plan
from accounting.plan.limits import BayesianPlan, Enforcement, HistogramRelease
from accounting.plan.queries import QueryPlan

# Only a study with a Bayesian limit publishes histograms. Its numbers are not read here.
_BAYESIAN = BayesianPlan((4.0, 8.0), 8.0, "betting", "running", "path", "improved")
_QUERIES, _CELLS = 50, 100


def study_plan(
    *,
    noise: float,
    rate: float,
    count: int,
    epsilon: float,
    delta: float,
    enforcement: Enforcement | None = None,
    share: float | None = None,
    release: HistogramRelease | None = None,
) -> Plan:
    """One hospital's noise counts, and every round is one step.

    enforcement  None: the limit is kept at one order, and `tightest` may choose a rule
    share        of the limit that questions may use. None: there are none
    """
    limits = [LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, delta, None, enforcement=enforcement)]
    if release is not None:
        limits.append(LimitPlan(Level.INSTANCE, Definition.BAYESIAN, epsilon, delta, delta / 10))
    return Plan(
        scheme="parallel",
        limits=tuple(limits),
        clip_norm=1.0,
        client_clip_norm=None,
        noise_multiplier=noise,
        honest_survivors=1,
        sampling_rate=rate,
        steps_per_round=1,
        max_steps=count,
        classical_order=8.0,
        bayesian=None if release is None else _BAYESIAN,
        disclosure="at-end" if release is None else "noised",
        release=release,
        observer=Observer.RELEASES,
        queries=None if share is None else QueryPlan(_QUERIES, _CELLS, share=share),
    )
