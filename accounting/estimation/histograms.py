"""Histograms of distances: small integer counts that serve every order, estimator and definition at once.

Distances are rounded up to bin edges, so every estimator that does not fall when its sample rises reads the counts as
it would read the rounded distances. The cost of the noise on counts is here. The one-sided correction of noised
counts is `accounting.estimation.upper_mean.lower_counts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import Values, log_expm1, log_moment
from accounting.units import Relation
from accounting.values import FloatArray, check_array, check_count, check_nonnegative, check_positive

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bins:
    """Edges, strictly increasing, the last one the largest value. Every value is rounded up to its edge.

    loss  rounding raises the cost c = log E e^X of any sample law by at most the share `loss` of it, if the estimator
          keeps at least the share `floor` of the mass at the largest value, as distribution-free bounds from m
          samples at failure γ do (about ln(1/γ)/m)
    """

    edges: FloatArray
    loss: float
    floor: float


def running_sum_bins(log_max: float, bins: int, *, floor: float = 1e-4) -> Bins:
    """Bins over [0, log_max] for clients' running sums at one order.

    On Y = e^sum − 1 the mean is linear: neighbouring edges within a factor 1 + loss/2 of Y + floor·Y(log_max) raise E Y
    and the part at the ceiling by at most loss/2 each, and log(1 + (1 + a)z) ≤ (1 + a) log(1 + z). So edges stand at
    equal steps of log(Y + floor·Y(log_max)). Raises InvalidArgument.
    """
    ceiling, share = check_positive("log_max", log_max), check_positive("floor", floor)
    if share > 1:
        raise InvalidArgument("floor", f"must be ≤ 1, not {share!r}")
    top = float(log_expm1(np.array([ceiling]))[0])
    climb, count = math.log1p(1 / share), check_count("bins", bins)
    logs = top + math.log(share) + log_expm1(climb * np.arange(1, count + 1) / count)
    edges = np.logaddexp(0.0, logs)
    # Exactly: rounding must not leave the largest sum without a bin.
    edges[-1] = ceiling
    return Bins(edges, 2 * math.expm1(climb / count), share)


def count_values(values: Values, edges: Values) -> IntArray:
    """How many values lie in each bin, every value rounded up to its bin's edge. Shape like `edges`.

    Raises InvalidArgument for a value above the last edge: no bin bounds it.
    """
    grid = _check_edges(edges)
    checked_values = check_array("values", values)
    if checked_values.max() > grid[-1]:
        raise InvalidArgument(
            "values", f"holds {float(checked_values.max())!r}, above the last edge {float(grid[-1])!r}"
        )
    return np.bincount(np.searchsorted(grid, checked_values, side="left"), minlength=grid.size).astype(np.int64)


def release_charge(
    orders: Values, *, noise_std: float, max_counts: int = 1, relation: Relation = Relation.ADD_REMOVE
) -> FloatArray:
    """Return the cost of publishing one histogram when each count carries discrete Gaussian noise: λ(λ+1)Δ²/2z².

    noise_std    z, in counts. The discrete Gaussian is no worse than the continuous one for integer shifts
                 (Canonne, Kamath & Steinke 2020, Proposition 5)
    max_counts   M: the most counts one record (1) or one client (its accounting sample) holds
    relation     add-remove: M counts vanish from one bin, Δ = M. zero-out and replace-one: they move to another bin,
                 Δ = √2·M

    Shape (orders,). To be charged to the classical and the Bayesian ledger, and reserved beforehand.
    """
    sensitivity = check_count("max_counts", max_counts)
    # √2 rounded up: a smaller shift would cost less than the true one.
    shift = (
        float(sensitivity)
        if relation is Relation.ADD_REMOVE
        else math.nextafter(math.sqrt(2.0) * sensitivity, math.inf)
    )
    return log_moment(
        np.atleast_1d(np.asarray(orders)), shift, noise_std=check_positive("noise_std", noise_std), sampling_rate=1.0
    )


def _check_edges(edges: Values) -> FloatArray:
    grid = check_array("edges", edges)
    if bool((np.diff(grid) <= 0).any()):
        raise InvalidArgument("edges", "must be strictly increasing")
    check_nonnegative("edges", float(grid[0]))
    return grid
