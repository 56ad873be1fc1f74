"""One noised step, what was seen of it, and how the costs of many steps compose.

Hölder: every step is bounded by itself, at a power fixed beforehand. c_t(λ) = w_t · log E_{x'} exp(φ_t/w_t) with
Σ w_t ≤ 1 fixed before the first step. Σ c_t bounds the log-moment of the whole run (Triastcyn 2020, Theorem 1, with its
exponents T generalised to 1/w_t). The same x' is in every step, so the product of plain expectations is no bound.

Running sums: G_i = Σ_t φ_t(λ, d_{t,i}) per record of a fixed sample, and one bound on E e^G. Exact where Hölder's
inequality is not: the same x' is in every step, and so is its sum. Holds for any number of steps. Every step adds to
every G_i, sampled or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from accounting.errors import EstimatorRefused, InvalidArgument, MaxStepsExceeded
from accounting.estimation.upper_mean import lower_counts, upper_mean
from accounting.mechanisms.divergence import Direction, Values, log_moment, replace_one_moment
from accounting.plan.limits import Estimator
from accounting.units import Relation
from accounting.values import (
    FloatArray,
    array_from_json,
    array_to_json,
    check_array,
    check_count,
    check_nonnegative,
    check_positive,
    check_rate,
)

BoolArray = npt.NDArray[np.bool_]

# A run repeats its noise and rate, so one table serves all its steps. Worth building from here.
_TABLE_FROM = 2048


@dataclass(frozen=True, kw_only=True)
class Step:
    """The public part: noise, sampling rate, clip norm (None: no bound is known)."""

    noise_std: float
    sampling_rate: float
    max_distance: float | None
    relation: Relation = Relation.ADD_REMOVE
    direction: Direction = "forward"

    def __post_init__(self) -> None:
        check_positive("noise_std", self.noise_std)
        check_rate("sampling_rate", self.sampling_rate)
        if self.max_distance is not None:
            check_nonnegative("max_distance", self.max_distance)

    def costs(self, orders: FloatArray, distances: FloatArray) -> FloatArray:
        """φ, shape (orders, distances)."""
        # Rows may repeat an order with another failure share. Each is computed once.
        distinct, inverse = np.unique(orders, return_inverse=True)
        std, rate, direction = self.noise_std, self.sampling_rate, self.direction
        if self.relation is Relation.REPLACE_ONE:
            return replace_one_moment(distinct, distances, noise_std=std, sampling_rate=rate)[inverse]
        method = "table" if direction == "forward" and distances.size > _TABLE_FROM else "exact"
        moments = log_moment(distinct, distances, noise_std=std, sampling_rate=rate, direction=direction, method=method)
        return moments[inverse]

    def ceiling(self, orders: FloatArray) -> FloatArray:
        """φ at the clip norm, shape (orders,)."""
        return _ceiling(self, tuple(orders.tolist())).copy()


def ceilings(orders: FloatArray, future: Iterable[tuple[Step, int]]) -> FloatArray:
    """Σ n·φ at the clip norm over kinds of steps, each n times, shape (orders,)."""
    return sum((steps * step.ceiling(orders) for step, steps in future), np.zeros_like(orders))


@lru_cache(maxsize=256)
def _ceiling(step: Step, orders: tuple[float, ...]) -> FloatArray:
    # A run repeats its step, and each step asks three times.
    if step.max_distance is None:
        raise InvalidArgument("max_distance", "is required: without it there is no worst case")
    return step.costs(np.array(orders), np.array([step.max_distance]))[:, 0]


@dataclass(frozen=True)
class Rows:
    """The rows of a ledger, each array of shape (rows,).

    orders  ledger orders
    shares  of the failure probability
    once    rows read at a fixed order by a filter: they need one failure share over all steps. A filter may read its
            row every step: it goes wrong only if it admits the first step whose true moment is too large, and that is
            one event at one step
    """

    orders: FloatArray
    shares: FloatArray
    once: BoolArray
    estimator: Estimator

    def bound(self, values: FloatArray, failure: float, top: float, counts: FloatArray | None = None) -> float:
        """log E e^X from a sample of X ≤ top, at one row's share of the failure, or inf where no estimate applies."""
        if not np.isfinite(values).all() or (self.estimator != "student-t" and math.isinf(top)):
            return math.inf
        # Rounding may carry a sample past its ceiling, which an estimator would refuse.
        values, log_max = np.minimum(values, top), top if math.isfinite(top) else None
        return upper_mean(values, failure, method=self.estimator, log_max=log_max, counts=counts)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The private part: distances of a sample, or a histogram of them over rounded-up bin edges."""

    distances: FloatArray
    counts: FloatArray | None = None
    count_noise: float = 0.0
    sample_size: int | None = None

    @classmethod
    def of(
        cls,
        distances: Values,
        counts: Values | None,
        count_noise: float,
        sample_size: int | None,
        *,
        max_distance: float | None,
    ) -> Measurement:
        """Checked. Distances above the clip norm are a clipping bug and are refused."""
        array = check_array("distances", distances)
        if max_distance is not None and bool((array > max_distance).any()):
            raise InvalidArgument("distances", f"holds {float(array.max())!r}, above max_distance {max_distance!r}")
        noise = check_nonnegative("count_noise", count_noise)
        if counts is None:
            if noise > 0:
                raise InvalidArgument("count_noise", "is the noise of counts, but there are none")
            return cls(distances=array)
        values = _checked_counts(counts, array, noise)
        if noise > 0:
            if sample_size is None:
                raise InvalidArgument("sample_size", "is required with count_noise: noised counts do not sum to it")
            if array[-1] != max_distance:
                raise InvalidArgument("distances", "end at max_distance when counts carry noise")
            check_count("sample_size", sample_size)
        elif sample_size is not None and values.sum() != check_count("sample_size", sample_size):
            raise InvalidArgument("sample_size", f"is {sample_size}, the counts sum to {int(values.sum())}")
        return cls(distances=array, counts=values, count_noise=noise, sample_size=sample_size)

    def settled_counts(self, estimator_failure_probability: float) -> FloatArray | None:
        """The counts to estimate from. With noise, moved up: too little with at most the failure probability."""
        if self.counts is None or self.count_noise == 0 or self.sample_size is None:
            return self.counts
        failure, size = estimator_failure_probability, self.sample_size
        return lower_counts(self.counts, self.count_noise, failure, sample_size=size).astype(np.float64)


def _checked_counts(counts: Values, edges: FloatArray, noise: float) -> FloatArray:
    values = check_array("counts", counts, low=-np.inf if noise > 0 else 0.0)
    if values.size != edges.size:
        raise InvalidArgument("counts", f"has {values.size} entries for {edges.size} bin edges")
    if bool((values != np.floor(values)).any()):
        raise InvalidArgument("counts", "must be integers")
    if bool((np.diff(edges) <= 0).any()):
        raise InvalidArgument("distances", "are bin edges beside counts: strictly increasing")
    if noise == 0 and values.sum() == 0:
        raise InvalidArgument("counts", "are all zero: an empty sample")
    return values


def _require_room(step: int, last: int | None) -> None:
    if last is not None and step > last:
        raise MaxStepsExceeded(f"step {step} lies past the last that max_steps allows, {last}")


class HolderWeights:
    """w_1, w_2, …: given, 1/max_steps each, or open-ended 1/(t(t+1))."""

    def __init__(self, max_steps: int | None, weights: Sequence[float] | None) -> None:
        self._weights: FloatArray | None = None
        self._max_steps = max_steps
        if weights is None:
            return
        self._weights = check_array("weights", weights)
        if bool((self._weights == 0).any()):
            raise InvalidArgument("weights", "every weight must be > 0")
        # math.fsum: ten thousand weights of 1/10000 must not be refused for their rounding.
        if math.fsum(self._weights.tolist()) > 1 + 1e-12:
            raise InvalidArgument("weights", "must sum to at most 1")
        if max_steps is not None and max_steps != self._weights.size:
            raise InvalidArgument("weights", f"are {self._weights.size}, but max_steps is {max_steps}")

    def __getitem__(self, step: int) -> float:
        """The weight of step 1, 2, …"""
        last = self._max_steps if self._weights is None else self._weights.size
        _require_room(step, last)
        if self._weights is not None:
            return float(self._weights[step - 1])
        return 1 / (step * (step + 1)) if self._max_steps is None else 1 / self._max_steps


class HolderComposition:
    """Σ c_t for every row. `failure_probability` is γ of the whole account."""

    def __init__(self, rows: Rows, weights: HolderWeights, failure_probability: float) -> None:
        self._rows, self._weights, self._failure_probability = rows, weights, failure_probability
        self._sums = np.zeros(rows.orders.size)
        self._steps = 0

    def check(self, steps: int = 1) -> None:
        """MaxStepsExceeded: so many more steps would pass the last weight."""
        # For its refusal alone.
        _ = self._weights[self._steps + steps]

    def moments(self) -> FloatArray:
        return self._sums.copy()

    def worst(self, *future: tuple[Step, int]) -> FloatArray:
        """The rows after these kinds of steps, each so many times, at the clip norm: a sure bound, no estimate."""
        self.check(sum(steps for _, steps in future))
        # At the clip norm w·log E e^{φ/w} is φ, whatever the weight.
        return self._sums + ceilings(self._rows.orders, future)

    def charge(self, step: Step, measured: Measurement | None, *, reserved: bool, cap: bool) -> bool:
        """Take one step. False when the estimator refused and the ceiling was charged. Raises before it changes."""
        weight = self._weights[self._steps + 1]
        ceiling = step.ceiling(self._rows.orders) if step.max_distance is not None else np.full_like(self._sums, np.inf)
        cost, estimated = ceiling, False
        if measured is not None:
            try:
                cost, estimated = self._estimate(step, measured, weight, ceiling), True
            except EstimatorRefused:
                if step.max_distance is None:
                    raise
        # Never above what was reserved, nor with a cap above the worst case: student-t may estimate more than either.
        self._sums = self._sums + (np.minimum(cost, ceiling) if reserved or cap else cost)
        self._steps += 1
        return estimated

    def _estimate(self, step: Step, measured: Measurement, weight: float, ceiling: FloatArray) -> FloatArray:
        share = weight / 2 if measured.count_noise > 0 else weight
        # Half for the noise of the counts, which is one event for all orders.
        counts = measured.settled_counts(self._failure_probability * weight / 2)
        costs = np.empty_like(ceiling)
        for row, values in enumerate(step.costs(self._rows.orders, measured.distances)):
            failure, top = float(self._rows.shares[row]) * share, float(ceiling[row]) / weight
            costs[row] = weight * self._rows.bound(values / weight, failure, top, counts)
        return costs

    def state(self) -> dict[str, Any]:
        return {"sums": array_to_json(self._sums), "steps": self._steps}

    def restore(self, state: dict[str, Any]) -> None:
        self._sums, self._steps = array_from_json(state["sums"]), int(state["steps"])


class RunningComposition:
    """One sum per record and row of the ledger."""

    def __init__(self, rows: Rows, max_steps: int | None, checkpoints: tuple[int, ...] | None) -> None:
        self._rows, self._max_steps, self._checkpoints = rows, max_steps, checkpoints
        size = rows.orders.size
        self._steps = 0
        self._sums: FloatArray | None = None
        self._ceiling = np.zeros(size)
        # The last estimate that was declared, and the ceiling then: what came after counts in full.
        self._last_estimates, self._last_ceiling = np.zeros(size), np.zeros(size)
        self._live = rows.once | (checkpoints is None)
        self._present: FloatArray | None = None
        # At which step the clients last told each row's sums: a failure share is for one sample.
        self._read_at = np.full(size, -1)
        # What was reserved for the present step: shown values stay below it, decisions never use it.
        self._reserved = np.full(size, np.inf)

    def check(self, steps: int = 1) -> None:
        """MaxStepsExceeded: so many more steps would pass max_steps."""
        _require_room(self._steps + steps, self._max_steps)

    def moments(self) -> FloatArray:
        if self._present is None:
            now = self._estimates(self._live, np.zeros_like(self._ceiling), self._steps)
            self._present = np.minimum(now, self._reserved)
        return self._present.copy()

    def worst(self, *future: tuple[Step, int]) -> FloatArray:
        """The rows if the next steps cost every record its ceiling: the same estimate of G + φ(C), at V + φ(C)."""
        self.check(number := sum(steps for _, steps in future))
        return self._estimates(self._live, ceilings(self._rows.orders, future), self._steps + number)

    def charge(self, step: Step, measured: Measurement | None, *, reserved: bool, cap: bool) -> bool:
        """Take one step. False: no distance was measured and the ceiling was charged. Raises before it changes."""
        _ = cap  # the ceiling bounds every sum here already
        self.check()
        is_bounded = step.max_distance is not None
        ceiling = step.ceiling(self._rows.orders) if is_bounded else np.full_like(self._ceiling, np.inf)
        ceiling_after = np.full_like(self._ceiling, np.inf)
        if reserved:
            ceiling_after = np.where(self._rows.once, self.worst((step, 1)), ceiling_after)
        if measured is not None:
            self._sums = self._added(step, measured, ceiling)
        elif self._sums is not None:
            self._sums = self._sums + ceiling[:, None]
        self._ceiling, self._reserved, self._present = self._ceiling + ceiling, ceiling_after, None
        self._steps += 1
        if self._checkpoints is not None and self._steps in self._checkpoints and self._sums is not None:
            estimates = self._estimates(~self._live, np.zeros_like(ceiling), self._steps)
            self._last_estimates = np.where(self._live, self._last_estimates, estimates)
            self._last_ceiling = np.where(self._live, self._last_ceiling, self._ceiling)
        return measured is not None

    def _added(self, step: Step, measured: Measurement, ceiling: FloatArray) -> FloatArray:
        if measured.counts is not None:
            raise InvalidArgument("counts", "running sums need each record's own distance, see observe")
        if bool((self._read_at >= 0).any()):
            raise InvalidArgument("distances", "this account reads clients' own sums and keeps no accounting sample")
        size = measured.distances.size
        if self._sums is not None and size != self._sums.shape[1]:
            raise InvalidArgument(
                "distances", f"has {size} records, but the accounting sample so far has {self._sums.shape[1]}"
            )
        # Steps before the first measurement cost everybody their ceiling.
        before = self._ceiling[:, None] if self._sums is None else self._sums
        return before + np.minimum(step.costs(self._rows.orders, measured.distances), ceiling[:, None])

    def observe(self, rows: BoolArray, values: FloatArray, counts: FloatArray | None, log_max: float) -> None:
        """The clients' own sums up to this step, for the marked rows."""
        if self._sums is not None:
            raise InvalidArgument("log_values", "this account keeps its own accounting sample")
        # A smaller ceiling would be the bound itself. The factor is for the same steps added in another order.
        if (ceiling := float(self._ceiling[rows].max())) < math.inf and log_max < ceiling * (1 - 1e-9):
            raise InvalidArgument("log_max", f"must be ≥ {ceiling!r}, which the steps so far may have cost")
        log_max = max(log_max, ceiling)
        if self._checkpoints is not None and self._steps not in self._checkpoints and not self._rows.once[rows].all():
            raise InvalidArgument("order", f"step {self._steps} is not a declared checkpoint")
        if bool((self._read_at[rows] == self._steps).any()):
            raise InvalidArgument("log_values", f"were told at step {self._steps} already: each has one sample")
        observations = {
            row: upper_mean(
                values, self._share(row, self._steps), method=self._rows.estimator, log_max=log_max, counts=counts
            )
            for row in np.flatnonzero(rows).tolist()
        }
        # Declared checkpoints hold together, so the least of them does. A filter's estimates only one by one.
        sure = np.where(self._rows.once, self._ceiling, self._since(self._ceiling))
        for row, bound in observations.items():
            self._last_estimates[row], self._last_ceiling[row] = min(bound, float(sure[row])), self._ceiling[row]
            self._read_at[row] = self._steps
        self._present = None

    def _estimates(self, rows: BoolArray, growth: FloatArray, steps: int) -> FloatArray:
        """Return the sure bound if every sum grows by `growth`. The given rows take the estimate if it is lower."""
        ceiling = self._ceiling + growth
        estimates = self._since(ceiling)
        for row in np.flatnonzero(rows).tolist():
            if self._sums is not None:
                # A sample that the estimator refuses leaves what is sure.
                with suppress(EstimatorRefused):
                    sums, failure = self._sums[row] + growth[row], self._share(row, steps)
                    estimates[row] = min(float(estimates[row]), self._rows.bound(sums, failure, float(ceiling[row])))
        return estimates

    def _share(self, row: int, steps: int) -> float:
        share = float(self._rows.shares[row])
        if self._rows.once[row]:
            return share
        t = max(1, steps)
        return share / (t * (t + 1) if self._checkpoints is None else len(self._checkpoints))

    def _since(self, ceiling: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            # ∞ − ∞ where the clip norm of some step is unknown: nothing is sure then.
            later = ceiling - self._last_ceiling
        return self._last_estimates + np.where(np.isnan(later), np.where(np.isinf(ceiling), np.inf, 0.0), later)

    def state(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "sums": None if self._sums is None else array_to_json(self._sums),
            "ceiling": array_to_json(self._ceiling),
            "known": array_to_json(self._last_estimates),
            "known_ceiling": array_to_json(self._last_ceiling),
            "reserved": array_to_json(self._reserved),
            "read_at": self._read_at.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._steps = int(state["steps"])
        self._sums = None if state["sums"] is None else array_from_json(state["sums"])
        self._ceiling = array_from_json(state["ceiling"])
        self._last_estimates = array_from_json(state["known"])
        self._last_ceiling = array_from_json(state["known_ceiling"])
        self._reserved, self._present = array_from_json(state["reserved"]), None
        self._read_at = np.array(state["read_at"], dtype=np.int64)
