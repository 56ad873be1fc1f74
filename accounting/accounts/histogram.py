"""The Bayesian limit of scheme client: a histogram of the sampled clients' distances in every round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accounting.accounts.base import LimitAccount, growth_from_json, growth_to_json, read_at_the_best_order
from accounting.bayesian import BayesianAccountant
from accounting.errors import InvalidArgument
from accounting.evidence import DistanceHistogram, Evidence
from accounting.plan import LimitPlan, Plan
from accounting.units import FloatArray, Guarantee

BINS = 64


def distance_edges(plan: Plan) -> FloatArray:
    """Upper bin edges for a client's distance, (64,): equal steps up to the clip norm, public like the plan."""
    edges = plan.clip_norm * np.arange(1, BINS + 1) / BINS
    edges[-1] = plan.clip_norm
    return edges


class HistogramLimit(LimitAccount):
    """Bayesian, client level: each round's sampled clients, counted by the distance their update covers.

    Under disclosure `public` the limit is kept by an account that sees no evidence; the other is read at the end.
    """

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._edges = distance_edges(plan)
        self._seen = self._open()
        self._kept = self._open() if plan.disclosure == "public" else self._seen
        self._last_growth = math.inf

    @property
    def enforced_by(self) -> str:
        return f"Bayesian moment at order {self.bayesian.filter_order:g}"

    def epsilon(self) -> float:
        return self._kept.epsilon()

    def epsilon_after_worst_round(self) -> float:
        if self.rounds >= self.plan.horizon:
            return math.inf
        return self._kept.project(steps=self.plan.steps_per_round, **self._step())

    def charge(self, evidence: Evidence | None) -> None:
        before = self._kept.filter_moment()
        self._charge(self._seen, self._counts(evidence))
        if self._kept is not self._seen:
            self._charge(self._kept, None)
        self.rounds += 1
        self._last_growth = self._kept.filter_moment() - before

    @property
    def growth(self) -> float:
        return self._last_growth / self.bayesian.filter_order

    def certificate(self, *, finished: bool) -> Guarantee:
        return (self._seen if finished else self._kept).certificate()

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        if self.rounds == 0 or (self.plan.disclosure == "public" and not finished):
            return []
        return [read_at_the_best_order(self._seen.report())]

    def state(self) -> dict[str, Any]:
        accounts = {"seen": self._seen.state(), "kept": self._kept.state()}
        return {"rounds": self.rounds, "last_growth": growth_to_json(self._last_growth), **accounts}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen.restore(state["seen"])
        self._kept.restore(state["kept"])
        self.rounds, self._last_growth = state["rounds"], growth_from_json(state["last_growth"])

    def _open(self) -> BayesianAccountant:
        plan, bayesian, limit = self.plan, self.bayesian, self.limit
        if limit.failure is None:
            raise InvalidArgument("failure", "is missing from a Bayesian limit")
        return BayesianAccountant(
            orders=bayesian.orders,
            delta=limit.delta,
            failure=limit.failure,
            horizon=plan.horizon,
            composition=bayesian.composition,
            estimator=bayesian.estimator,
            adversary=bayesian.adversary,
            conversion=bayesian.conversion,
            filter_order=bayesian.filter_order,
            level=limit.level,
            observer=plan.observer,
        )

    def _step(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "noise_std": plan.noise_std,
            "sampling_rate": plan.sampling_rate,
            "max_distance": plan.clip_norm,
        }

    def _charge(self, account: BayesianAccountant, counts: FloatArray | None) -> None:
        if counts is None:
            account.step(**self._step())
        else:
            account.step(self._edges, counts=counts, **self._step())

    def _counts(self, evidence: Evidence | None) -> FloatArray | None:
        if not isinstance(evidence, DistanceHistogram) or len(evidence.counts) != self._edges.size:
            return None
        counts = np.array(evidence.counts, dtype=np.float64)
        return counts if counts.sum() > 0 else None
