"""How each limit of a plan is kept: the account for it, and the tightest sound rule for a classical limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from accounting.budget.accounts import (
    Account,
    ClassicalLimit,
    CumulativeLimit,
    FixedPlanLimit,
    GaussianLimit,
    GaussianRoundsLimit,
    HistogramLimit,
    LimitAccount,
)
from accounting.budget.accounts.worst_case import WorstCaseLimit
from accounting.plan.limits import LEAST_HISTOGRAM_STD, Enforcement, LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryPlan, check_share
from accounting.plan.schemes import Tells
from accounting.plan.statistics import AnyPlan, StatisticsPlan
from accounting.units import Definition
from accounting.values import check_instance

_CLASSICAL: Mapping[Enforcement, type[WorstCaseLimit]] = MappingProxyType(
    {"fixed-plan": FixedPlanLimit, "gaussian-filter": GaussianRoundsLimit, "renyi-order": ClassicalLimit}
)
_BAYESIAN = MappingProxyType({Tells.HISTOGRAM: HistogramLimit, Tells.CUMULATIVE: CumulativeLimit})


def account_of(plan: Plan, limit: LimitPlan) -> LimitAccount:
    """The kind of account that keeps this limit under this plan."""
    if limit.definition is Definition.CLASSICAL:
        return _CLASSICAL[limit.enforcement or "renyi-order"](plan, limit)
    return _BAYESIAN[plan.protection(limit.level).tells](plan, limit)


def accounts_of(plan: AnyPlan) -> list[Account]:
    """The accounts that keep the limits of this plan, in their order."""
    if isinstance(plan, StatisticsPlan):
        return [GaussianLimit(plan, limit) for limit in plan.limits]
    return [account_of(plan, limit) for limit in plan.limits]


def tightest_rule(plan: Plan, limit: LimitPlan, share: float | None = None) -> tuple[Enforcement, str]:
    """Return the tightest sound rule for a classical limit of this plan, and why it is that one.

    share  for questions on all patients beside a fixed plan, where the plan names none

    The rule follows from the form of the plan alone, not from its noise: a search for noise or rounds never
    changes the rule on its way.
    """
    if plan.release is not None and plan.release.std < LEAST_HISTOGRAM_STD:
        return "renyi-order", f"published histograms have noise below {LEAST_HISTOGRAM_STD:g}, whose loss is not known"
    if not _has_delta(plan, limit):
        return "renyi-order", "at so large an ε the rounding of the noise would take all of δ"
    if plan.mechanism(limit.level).sampling_rate == 1:
        return "gaussian-filter", "all records are in every round, so that no number of steps has to be fixed"
    queries = plan.queries
    if queries is not None and _share_of(queries, share) is None and queries.evaluation is None:
        return (
            "renyi-order",
            "questions have no share of the budget (statistics.share), so that they are no part of a plan",
        )
    return "fixed-plan", "all steps are planned, so that their whole loss is known beforehand"


def tightest(plan: Plan, share: float | None = None) -> Plan:
    """The plan with the tightest sound rule for each classical limit that names none. A rule that is named stays.

    share  as of `tightest_rule`. None: a fixed plan is chosen only where questions need no share

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=200, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> tightest(plan).limits[0].enforcement
    'fixed-plan'
    """
    check_instance("plan", Plan, plan)
    if share is not None:
        check_share(share)
    limits = tuple(
        replace(limit, enforcement=tightest_rule(plan, limit, share)[0]) if names_no_rule(limit) else limit
        for limit in plan.limits
    )
    queries = plan.queries
    if queries is not None:
        against_a_path = plan.bayesian is not None and plan.bayesian.adversary == "path"
        needs_share = against_a_path or any(limit.enforcement == "fixed-plan" for limit in limits)
        queries = replace(queries, share=_share_of(queries, share) if needs_share else None)
    return replace(plan, limits=limits, queries=queries)


def _share_of(queries: QueryPlan, share: float | None) -> float | None:
    # An allowance stands in its place, and does not say what a fixed plan has left.
    return queries.share or (share if queries.allowance is None else None)


def names_no_rule(limit: LimitPlan) -> bool:
    """Whether it is a classical limit without a rule, which is then kept at one Rényi order."""
    return limit.definition is Definition.CLASSICAL and limit.enforcement is None


def _has_delta(plan: Plan, limit: LimitPlan) -> bool:
    """Whether most of δ is left after the rounding of all noise."""
    rule = _CLASSICAL["gaussian-filter" if plan.mechanism(limit.level).sampling_rate == 1 else "fixed-plan"]
    return rule(plan, limit).delta > limit.delta / 2
