"""Composition by running sums: G_i = Σ_t φ_t(λ, d_{t,i}) per record of a fixed sample, and one bound on E e^G.

Exact where Hölder's inequality is not: the same x' is in every step, and so is its sum. Holds for any number of steps.
Every step adds to every G_i, sampled or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from accounting.accountants.costs import BoolArray, Measurement, Rows, Step
from accounting.encoding import array_from_json, array_to_json
from accounting.errors import EstimatorRefused, InvalidArgument, MaxStepsExceeded
from accounting.estimation.upper_mean import upper_mean
from accounting.units import FloatArray, check_count


def declared_checkpoints(checkpoints: int | Sequence[int] | None, max_steps: int | None) -> tuple[int, ...] | None:
    """Steps at which estimates may be read; n means n of them, spread evenly over max_steps steps."""
    if checkpoints is None:
        return None
    if isinstance(checkpoints, Sequence):
        steps = tuple(check_count("checkpoints", step) for step in checkpoints)
        if not steps or any(a >= b for a, b in pairwise(steps)):
            raise InvalidArgument("checkpoints", "must be one or more strictly increasing step numbers")
        return steps
    number = check_count("checkpoints", checkpoints)
    if max_steps is None or number > max_steps:
        raise InvalidArgument("checkpoints", "given as a number, needs a max_steps that is at least as large")
    return tuple(math.ceil(max_steps * (i + 1) / number) for i in range(number))


class RunningComposition:
    """One sum per record and row of the ledger."""

    def __init__(self, rows: Rows, max_steps: int | None, checkpoints: tuple[int, ...] | None) -> None:
        self._rows, self._max_steps, self._checkpoints = rows, max_steps, checkpoints
        size = rows.orders.size
        self._steps = 0
        self._sums: FloatArray | None = None
        self._ceiling = np.zeros(size)
        # The last estimate that was declared, and the ceiling then: what came after counts in full.
        self._known, self._known_ceiling = np.zeros(size), np.zeros(size)
        self._live = rows.once | (checkpoints is None)
        self._present: FloatArray | None = None
        self._observed = False
        # What was reserved for the present step: shown values stay below it, decisions never use it.
        self._reserved = np.full(size, np.inf)

    def check(self, steps: int = 1) -> None:
        if self._max_steps is not None and self._steps + steps > self._max_steps:
            last = self._max_steps
            raise MaxStepsExceeded(f"step {self._steps + steps} lies past the last that max_steps allows, {last}")

    def moments(self) -> FloatArray:
        if self._present is None:
            now = self._estimates(self._live, np.zeros_like(self._ceiling), self._steps)
            self._present = np.minimum(now, self._reserved)
        return self._present.copy()

    def worst(self, step: Step, steps: int = 1) -> FloatArray:
        """The rows if the next steps cost every record its ceiling: the same estimate of G + φ(C), at V + φ(C)."""
        self.check(steps)
        return self._estimates(self._live, steps * step.ceiling(self._rows.orders), self._steps + steps)

    def charge(self, step: Step, measured: Measurement | None, *, reserved: bool, cap: bool) -> bool:
        """Take one step; False when nothing was measured and the ceiling was charged. Raises before it changes."""
        _ = cap  # the ceiling bounds every sum here already
        self.check()
        known = step.max_distance is not None
        ceiling = step.ceiling(self._rows.orders) if known else np.full_like(self._ceiling, np.inf)
        most = np.where(self._rows.once, self.worst(step), np.inf) if reserved else np.full_like(self._ceiling, np.inf)
        if measured is not None:
            self._sums = self._added(step, measured, ceiling)
        elif self._sums is not None:
            self._sums = self._sums + ceiling[:, None]
        self._ceiling, self._reserved, self._present = self._ceiling + ceiling, most, None
        self._steps += 1
        if self._checkpoints is not None and self._steps in self._checkpoints and self._sums is not None:
            found = self._estimates(~self._live, np.zeros_like(ceiling), self._steps)
            self._known = np.where(self._live, self._known, found)
            self._known_ceiling = np.where(self._live, self._known_ceiling, self._ceiling)
        return measured is not None

    def _added(self, step: Step, measured: Measurement, ceiling: FloatArray) -> FloatArray:
        if measured.counts is not None:
            raise InvalidArgument("counts", "running sums need each record's own distance; see observe")
        if self._observed:
            raise InvalidArgument("distances", "this account reads clients' own sums; it keeps no accounting sample")
        size = measured.distances.size
        if self._sums is not None and size != self._sums.shape[1]:
            raise InvalidArgument(
                "distances",
                f"has {size} records, but the accounting sample so far has {self._sums.shape[1]}",
            )
        before = np.repeat(self._ceiling[:, None], size, axis=1) if self._sums is None else self._sums
        return before + np.minimum(step.costs(self._rows.orders, measured.distances), ceiling[:, None])

    def observe(self, rows: BoolArray, values: FloatArray, counts: FloatArray | None, log_max: float) -> None:
        """The clients' own sums up to this step, for the marked rows."""
        if self._sums is not None:
            raise InvalidArgument("log_values", "this account keeps its own accounting sample")
        if self._checkpoints is not None and self._steps not in self._checkpoints and not self._rows.once[rows].all():
            raise InvalidArgument("order", f"step {self._steps} is not a declared checkpoint")
        found = {
            row: upper_mean(
                values, self._share(row, self._steps), method=self._rows.estimator, log_max=log_max, counts=counts
            )
            for row in np.flatnonzero(rows).tolist()
        }
        # Declared checkpoints hold together, so the least of them does; a filter's estimates only one by one.
        sure = np.where(self._rows.once, self._ceiling, self._since(self._ceiling))
        for row, bound in found.items():
            self._known[row], self._known_ceiling[row] = min(bound, float(sure[row])), self._ceiling[row]
        self._observed, self._present = True, None

    def _estimates(self, marked: BoolArray, ahead: FloatArray, steps: int) -> FloatArray:
        """What is sure if every sum grows by `ahead`; on the marked rows the estimate then, where it is lower."""
        ceiling = self._ceiling + ahead
        found = self._since(ceiling)
        for row in np.flatnonzero(marked).tolist():
            if self._sums is not None:
                # A sample that the estimator refuses leaves what is sure.
                with suppress(EstimatorRefused):
                    sums, failure = self._sums[row] + ahead[row], self._share(row, steps)
                    found[row] = min(float(found[row]), self._rows.bound(sums, failure, float(ceiling[row])))
        return found

    def _share(self, row: int, steps: int) -> float:
        share = float(self._rows.shares[row])
        if self._rows.once[row]:
            return share
        t = max(1, steps)
        return share / (t * (t + 1) if self._checkpoints is None else len(self._checkpoints))

    def _since(self, ceiling: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            later = ceiling - self._known_ceiling
        return self._known + np.where(np.isnan(later), np.where(np.isinf(ceiling), np.inf, 0.0), later)

    def state(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "sums": None if self._sums is None else array_to_json(self._sums),
            "ceiling": array_to_json(self._ceiling),
            "known": array_to_json(self._known),
            "known_ceiling": array_to_json(self._known_ceiling),
            "reserved": array_to_json(self._reserved),
            "observed": self._observed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._steps, self._observed = int(state["steps"]), bool(state["observed"])
        self._sums = None if state["sums"] is None else array_from_json(state["sums"])
        self._ceiling = array_from_json(state["ceiling"])
        self._known, self._known_ceiling = array_from_json(state["known"]), array_from_json(state["known_ceiling"])
        self._reserved, self._present = array_from_json(state["reserved"]), None
