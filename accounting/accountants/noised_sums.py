"""Running sums of a fixed accounting sample, reported through noised histograms alone.

A hospital keeps G_i = Σ_t φ_t(λ, d_{t,i}) for the m records of an accounting sample of public size. At a few declared
checkpoints it counts them into bins of rounded-up sums, adds discrete Gaussian noise to every count, and estimates from
the noised counts. Every report, at any time, is computed from noised counts and public numbers. Once the histograms are
charged, reporting has no further cost.

The cost of a histogram (√2, not 1). The accounting sample is m of the n records, drawn uniformly. A smaller data set
is padded in the top bin. Let D' be D with one more record r, and couple the draws: where the accounting sample of D'
lacks r, the accounting sample of D is the same. If it holds r, the accounting sample of D has another record in r's
place, uniform over the rest, or a pad. Both are uniform draws. So one count may leave a bin and enter another, e_a −
e_b: at most √2 in the L2 norm. Given what was released, the sums of all other records do not depend on r. Rényi
divergence is jointly quasi-convex (van Erven & Harremoës 2014, Theorem 13), so the secret draw adds no loss, and one
histogram with discrete Gaussian noise costs λ(λ+1)·2/2z² (Canonne, Kamath & Steinke 2020, Proposition 5). If the
accounting sample is held out of training, the training records differ in one record in both cases, r or the one in its
place, which the steps' own charge covers at the clip norm. A Bayesian or certified number, which charges x′ its own
norms, is read with the slot of x′ left empty: a pad, or one record less to train on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from accounting.accountants.bayesian_spec import BayesianSpec
from accounting.accountants.composition import Step
from accounting.errors import InvalidArgument
from accounting.estimation.histograms import IntArray, count_values, release_charge, running_sum_bins
from accounting.estimation.upper_mean import lower_counts, upper_mean
from accounting.mechanisms.divergence import Values
from accounting.plan.limits import MONOTONE
from accounting.units import Relation
from accounting.values import FloatArray, array_from_json, array_to_json, check_array, check_count

# Noise hides about z·√(2·bins·ln(bins/γ)) records: more bins round less and hide more.
BINS = 16
# Mass that the noise leaves in the top bin anyway. Bins finer than this share of it would be wasted.
_FLOOR = 0.02
_SUM_INFLATION = 1 + 1e-12
# What changes from step to step, by attribute.
_ARRAYS = ("sums", "ceiling", "reported", "cap", "known", "known_ceiling")


class NoisedSums:
    """Bounds on log E e^{λL} of a record drawn from the population, moved by noised histograms alone.

    spec       composition running with a filter_order λ*, at which the histograms are taken, and checkpoints, the most
               histograms that are ever estimated from. All of them hold together, so the least bound counts. Half of
               its failure probability covers the noise of the counts, half the estimates
    records    m, the public size of the accounting sample
    noise_std  z of every count

    At an order below λ* the same histogram serves, since φ(λ, d)/λ never falls in λ (Rényi divergence grows with its
    order): G(λ) ≤ (λ/λ*)·G(λ*). Above it the clip norm counts. Adaptive: sums are kept at 2λ+1, and half of the bound
    is read (`accounting.accountants.bayesian`). Raises InvalidArgument.
    """

    def __init__(self, spec: BayesianSpec, *, records: int, noise_std: float) -> None:
        if spec.composition != "running" or spec.filter_order is None or spec.checkpoints is None:
            raise InvalidArgument("spec", "must be of composition running, with filter_order and checkpoints")
        if spec.estimator not in MONOTONE:
            raise InvalidArgument("estimator", f"{spec.estimator} may fall when a count moves up")
        self.spec, self._noise, self._used = spec, noise_std, 0
        self._max_checkpoints = len(spec.checkpoints) if isinstance(spec.checkpoints, Sequence) else spec.checkpoints
        self._adaptive = spec.adversary == "adaptive"
        # The filter's row first: the histograms are taken there.
        self._orders = np.array([spec.filter_order, *spec.orders])
        self._ledger_orders = 2 * self._orders + 1 if self._adaptive else self._orders
        self._release = self._released(self._ledger_orders)
        self._sums: FloatArray = np.zeros(check_count("records", records, minimum=3))
        # Σφ at the clip norm. What the published histograms cost. And the classical moments that cap both.
        self._ceiling, self._reported, self._cap = (np.zeros(self._orders.size) for _ in range(3))
        self._known, self._known_ceiling = np.zeros(self._orders.size), np.zeros(self._orders.size)

    @property
    def exhausted(self) -> bool:
        """Return whether every declared checkpoint is used up. A further histogram would not be read."""
        return self._used >= self._max_checkpoints

    def step(
        self, distances: Values | None = None, *, noise_std: float, sampling_rate: float, max_distance: float
    ) -> None:
        """One noised step. Distances (records,), None: every record at max_distance. Raises InvalidArgument."""
        step = Step(noise_std=noise_std, sampling_rate=sampling_rate, max_distance=max_distance)
        ceiling = step.ceiling(self._ledger_orders)
        added: FloatArray | float = float(ceiling[0])
        if distances is not None:
            checked_distances = check_array("distances", distances)
            if checked_distances.size != self._sums.size or float(checked_distances.max()) > max_distance:
                raise InvalidArgument("distances", f"must be {self._sums.size}, none above max_distance")
            # A table may read a distance a little above the exact cost of the clip norm.
            added = np.minimum(step.costs(self._ledger_orders[:1], checked_distances)[0], ceiling[0])
        self._sums = self._sums + added
        self._ceiling = self._ceiling + ceiling
        self._cap = self._cap + step.ceiling(self._orders)

    def histogram(self) -> IntArray:
        """(BINS,) true counts of the sums, rounded up to their edges. They must not be shown before their noise is
        on."""
        edges = self._edges()
        return count_values(np.minimum(self._sums, edges[-1]), edges)

    def publish(self, noised: IntArray | None) -> None:
        """Charge a histogram, and estimate from its noised counts. None: it was lost, and is only charged.

        Raises:
            InvalidArgument: not BINS integers, or more histograms than checkpoints.
        """
        if self.exhausted:
            raise InvalidArgument("noised", f"is one histogram more than the {self._max_checkpoints} declared")
        # First, for it may refuse: nothing has changed then.
        estimates = None if noised is None else self._estimates(noised)
        self._used += 1
        self._reported = self._reported + self._release
        self._cap = self._cap + self._released(self._orders)
        if estimates is not None:
            self._known, self._known_ceiling = np.minimum(estimates, self._since()), self._ceiling

    def filter_moment(self) -> float:
        """Nats at λ*, rounded up."""
        return float(self._moments()[0])

    def log_moments(self) -> FloatArray:
        """Nats at every order of the statement, shape (orders,), rounded up."""
        return self._moments()[1:]

    def state(self) -> dict[str, Any]:
        """Everything that changes, JSON-safe and exact."""
        return {"used": self._used} | {name: array_to_json(getattr(self, f"_{name}")) for name in _ARRAYS}

    def restore(self, state: dict[str, Any]) -> None:
        """Undo `state` on an account of the same settings."""
        arrays = {name: array_from_json(state[name]) for name in _ARRAYS}
        if any(array.shape != getattr(self, f"_{name}").shape for name, array in arrays.items()):
            raise InvalidArgument("state", "was saved with another accounting sample or other orders")
        self._used = int(state["used"])
        for name, array in arrays.items():
            setattr(self, f"_{name}", array)

    def _released(self, orders: FloatArray) -> FloatArray:
        distinct, inverse = np.unique(orders, return_inverse=True)
        return release_charge(distinct, noise_std=self._noise, relation=Relation.REPLACE_ONE)[inverse]

    def _edges(self) -> FloatArray:
        if self._ceiling[0] == 0:
            raise InvalidArgument("noised", "there is no step to publish a histogram of")
        return running_sum_bins(float(self._ceiling[0]), BINS, floor=_FLOOR).edges

    def _estimates(self, noised: IntArray) -> FloatArray:
        """Bounds on log E e^G at every ledger order up to the filter's. The ceiling elsewhere."""
        edges, share = self._edges(), self.spec.estimator_failure_probability / (2 * self._max_checkpoints)
        reported = check_array("noised", noised, low=-math.inf)
        if reported.size != edges.size:
            raise InvalidArgument("noised", f"must be {edges.size} counts")
        counts = lower_counts(reported, self._noise, share, sample_size=self._sums.size).astype(np.float64)
        estimates = self._ceiling.copy()
        for row in np.flatnonzero(self._ledger_orders <= self._ledger_orders[0]):
            ceiling, ratio = float(self._ceiling[row]), float(self._ledger_orders[row] / self._ledger_orders[0])
            # The filter's certificate and the statement's are two. The statement splits its share over its orders.
            mine = share if row == 0 else share / (self._orders.size - 1)
            values = np.minimum(edges * ratio * _SUM_INFLATION, ceiling)
            estimates[row] = upper_mean(values, mine, method=self.spec.estimator, log_max=ceiling, counts=counts)
        return estimates

    def _since(self) -> FloatArray:
        """The last estimate and the worst case of every step after it."""
        return self._known + (self._ceiling - self._known_ceiling) * _SUM_INFLATION

    def _moments(self) -> FloatArray:
        rows = self._since() + self._reported
        return np.minimum(rows / 2 if self._adaptive else rows, self._cap) * _SUM_INFLATION
