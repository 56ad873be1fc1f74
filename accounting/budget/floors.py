"""The least that a hospital can report of its records' cost, for any records: less is no estimate."""

from __future__ import annotations

import math

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import log_moment
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.values import FloatArray, check_count

# Covers the roundings of the estimators, which are other computations than this one.
_SLACK = 1 - 1e-6


def min_bounds(plan: Plan, limit: LimitPlan, records: int) -> FloatArray:
    """Return nats at the filter order and at every order of the statement, (1 + orders,): less cannot be reported.

    limit    the Bayesian limit at instance level
    records  size of the accounting sample

    An upper bound on E e^X for 0 ≤ X ≤ L that fails with probability at most γ under every law must, where all of n
    samples are 0, be at least 1 + p (e^L − 1) with (1 − p)^n = γ: among the laws with P(X = L) = p this very sample has
    probability γ. One step of the first round is the least that was measured. Against an adaptive adversary the ledger
    is kept at 2λ + 1 and halved, and is never above what it is at λ at the clip norm.

    Raises:
        InvalidArgument: no records, or the limit is not Bayesian.
    """
    n, bayesian, step = check_count("records", records), plan.bayesian, plan.mechanism(limit.level)
    failure = limit.estimator_failure_probability
    if bayesian is None or failure is None:
        raise InvalidArgument("limit", "is not Bayesian")
    log_all_missed = math.log(failure) / n
    log_hit = math.log(-math.expm1(log_all_missed))

    def lower_bound(orders: FloatArray) -> FloatArray:
        worst = log_moment(orders, step.clip_norm, noise_std=step.noise_std, sampling_rate=step.sampling_rate)
        return np.logaddexp(log_all_missed, log_hit + worst)

    orders = np.array([bayesian.filter_order, *bayesian.orders])
    # Each row by itself: the orders of a moment must increase.
    bounds = np.array([float(lower_bound(np.array([order]))[0]) for order in orders])
    if bayesian.adversary == "adaptive":
        halved = np.array([float(lower_bound(np.array([2 * order + 1]))[0]) / 2 for order in orders])
        bounds = np.minimum(bounds, halved)
    return np.maximum(bounds, 0.0) * _SLACK
