"""Composition by Hölder's inequality: every step is bounded by itself, at a power fixed beforehand.

c_t(λ) = w_t · log E_{x'} exp(φ_t/w_t) with Σ w_t ≤ 1 fixed before the first step; Σ c_t bounds the log-moment of the
whole run (Triastcyn 2020, Theorem 1, with its exponents T generalised to 1/w_t). The same x' is in every step, so the
product of plain expectations is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from accounting.accountants.costs import Measurement, Rows, Step
from accounting.encoding import array_from_json, array_to_json
from accounting.errors import EstimatorRefused, InvalidArgument, MaxStepsExceeded
from accounting.units import FloatArray, check_array


class Weights:
    """w_1, w_2, …: given, 1/max_steps each, or open-ended 1/(t(t+1))."""

    def __init__(self, max_steps: int | None, given: Sequence[float] | None) -> None:
        self._given: FloatArray | None = None
        self._max_steps = max_steps
        if given is None:
            return
        self._given = check_array("weights", given)
        if bool((self._given == 0).any()):
            raise InvalidArgument("weights", "every weight must be > 0")
        # math.fsum: ten thousand weights of 1/10000 must not be refused for their rounding.
        if math.fsum(self._given.tolist()) > 1 + 1e-12:
            raise InvalidArgument("weights", "must sum to at most 1")
        if max_steps is not None and max_steps != self._given.size:
            raise InvalidArgument("weights", f"are {self._given.size}, but max_steps is {max_steps}")

    def __getitem__(self, step: int) -> float:
        """The weight of step 1, 2, …"""
        last = self._max_steps if self._given is None else self._given.size
        if last is not None and step > last:
            raise MaxStepsExceeded(f"step {step} lies past the last that max_steps allows, {last}")
        if self._given is not None:
            return float(self._given[step - 1])
        return 1 / (step * (step + 1)) if self._max_steps is None else 1 / self._max_steps


class HolderComposition:
    """Σ c_t for every row; `failure_probability` is γ of the whole account."""

    def __init__(self, rows: Rows, weights: Weights, failure_probability: float) -> None:
        self._rows, self._weights, self._failure_probability = rows, weights, failure_probability
        self._sums = np.zeros(rows.orders.size)
        self._steps = 0

    def check(self, steps: int = 1) -> None:
        _ = self._weights[self._steps + steps]

    def moments(self) -> FloatArray:
        return self._sums.copy()

    def worst(self, step: Step, steps: int = 1) -> FloatArray:
        """The rows after `steps` more steps at the clip norm: a sure bound, no estimate."""
        self.check(steps)
        return self._sums + steps * step.ceiling(self._rows.orders)

    def charge(self, step: Step, measured: Measurement | None, *, reserved: bool, cap: bool) -> bool:
        """Take one step; False when the estimator refused and the ceiling was charged. Raises before it changes."""
        weight = self._weights[self._steps + 1]
        ceiling = step.ceiling(self._rows.orders) if step.max_distance is not None else np.full_like(self._sums, np.inf)
        cost, estimated = ceiling, False
        if measured is not None:
            try:
                cost, estimated = self._estimate(step, measured, weight, ceiling), True
            except EstimatorRefused:
                if step.max_distance is None:
                    raise
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
