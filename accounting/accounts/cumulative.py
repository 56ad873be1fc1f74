"""The Bayesian limit of scheme parallel: the largest of the clients' own cumulative bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting.accounts.base import LimitAccount, growth_from_json, growth_to_json, read_at_the_best_order
from accounting.conversion import epsilon_from_moments
from accounting.divergence import log_moment
from accounting.errors import InvalidArgument
from accounting.evidence import CumulativeMoments, Evidence
from accounting.plan import LimitPlan, Plan
from accounting.units import FloatArray, Guarantee, Notion, Observer, Relation


class CumulativeLimit(LimitAccount):
    """Bayesian, parallel: the largest of the clients' own cumulative log-moment bounds.

    After a round the bound U(λ) is the maximum of the reports; it never falls, and never passes what it was before
    plus the round's worst case, because every client's sum grows by at most that. So settling stays below the
    reservation by construction. Under disclosure `public` the filter counts worst cases; the reports are shown at
    the end.
    """

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        # Row 0 is the filter order, the rest the report.
        self._growth, self._cap = self._worst_step()
        self._reported: FloatArray = np.zeros_like(self._cap)
        self._last_growth = math.inf

    @property
    def enforced_by(self) -> str:
        return f"Bayesian moment at order {self.bayesian.filter_order:g}"

    def epsilon(self) -> float:
        return self._read(self._enforced(), self.rounds)

    def epsilon_after_worst_round(self) -> float:
        if self.plan.disclosure == "public":
            return self._read(self._charged_at_worst(self.rounds + 1), self.rounds + 1)
        return self._read(float(self._reserved()[0]), self.rounds + 1)

    def charge(self, evidence: Evidence | None) -> None:
        reserved, before = self._reserved(), self._reported
        settled = reserved
        if isinstance(evidence, CumulativeMoments) and len(evidence.moments) == len(self.bayesian.orders):
            settled = np.minimum(np.maximum(before, [evidence.filter, *evidence.moments]), reserved)
        self._reported, self.rounds = settled, self.rounds + 1
        self._last_growth = float(settled[0] - before[0])

    @property
    def growth(self) -> float:
        steps = self.plan.steps_per_round
        nats = steps * float(self._cap[0]) if self.plan.disclosure == "public" else self._last_growth
        return nats / self.bayesian.filter_order

    def certificate(self, *, finished: bool) -> Guarantee:
        revealed = self.plan.disclosure == "plain" or finished
        moment = float(self._reported[0]) if revealed else self._enforced()
        return self._guarantee(self._read(moment, self.rounds), self.bayesian.filter_order, revealed)

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        if self.rounds == 0 or (self.plan.disclosure == "public" and not finished):
            return []
        bayesian = self.bayesian
        epsilon, order = epsilon_from_moments(
            bayesian.orders, self._reported[1:], self.beta, conversion=bayesian.conversion
        )
        return [read_at_the_best_order(self._guarantee(epsilon, order, revealed=True))]

    def state(self) -> dict[str, Any]:
        growth = growth_to_json(self._last_growth)
        return {"rounds": self.rounds, "reported": self._reported.tolist(), "last_growth": growth}

    def restore(self, state: dict[str, Any]) -> None:
        reported = np.array(state["reported"], dtype=np.float64)
        if reported.shape != self._cap.shape:
            raise InvalidArgument("state", "was saved with other orders")
        self._reported, self.rounds = reported, state["rounds"]
        self._last_growth = growth_from_json(state["last_growth"])

    def _worst_step(self) -> tuple[FloatArray, FloatArray]:
        """Nats one noised step adds at most, and the classical cap of one step, at every order."""
        cap = self._moments(lambda order: order)
        if self.bayesian.adversary == "path":
            return cap, cap
        # Adaptive: the ledger is kept at 2λ+1 and halved.
        return self._moments(lambda order: 2 * order + 1) / 2, cap

    def _moments(self, at: Callable[[FloatArray], FloatArray]) -> FloatArray:
        plan = self.plan
        rows = [np.array([self.bayesian.filter_order]), np.array(self.bayesian.orders)]
        return np.concatenate(
            [
                log_moment(at(row), plan.clip_norm, noise_std=plan.noise_std, sampling_rate=plan.sampling_rate)
                for row in rows
            ]
        )

    def _reserved(self) -> FloatArray:
        steps = self.plan.steps_per_round
        grown = np.nextafter(self._reported + steps * self._growth, np.inf)
        return np.minimum(grown, np.nextafter((self.rounds + 1) * steps * self._cap, np.inf))

    def _charged_at_worst(self, rounds: int) -> float:
        return math.nextafter(rounds * self.plan.steps_per_round * float(self._cap[0]), math.inf)

    def _enforced(self) -> float:
        if self.plan.disclosure == "public":
            return self._charged_at_worst(self.rounds) if self.rounds else 0.0
        return float(self._reported[0])

    def _read(self, moment: float, rounds: int) -> float:
        if rounds == 0:
            return 0.0
        order = self.bayesian.filter_order
        return epsilon_from_moments([order], [moment], self.beta, conversion=self.bayesian.conversion)[0]

    def _guarantee(self, epsilon: float, order: float, revealed: bool) -> Guarantee:
        plan, bayesian = self.plan, self.bayesian
        model = bayesian.estimator == "student-t"
        sentence = (
            "model-based: e to the log-moment is normal over the population"
            if model
            else "distribution-free: the members' records are a random sample of their population"
        )
        if not revealed:
            sentence = "worst case over all records; the realised terms are read when the study has finished"
        return Guarantee(
            epsilon=epsilon,
            delta=self.limit.delta,
            level=self.limit.level,
            notion=Notion.BAYESIAN,
            relation=Relation.ADD_REMOVE,
            observer=Observer.RELEASES,
            assumption=sentence + ", each client's estimate for its own population",
            steps=self.rounds * plan.steps_per_round,
            orders=bayesian.orders,
            order=order,
            sampling_rate=(plan.sampling_rate, plan.sampling_rate),
            horizon=plan.horizon,
            estimator=bayesian.estimator,
            composition=bayesian.composition,
            beta=self.beta,
            gamma=self.limit.failure,
            adversary=bayesian.adversary,
            sample="members",
            conversion=bayesian.conversion,
            resolution="each hospital rounds its own bound up",
            capped=True,
        )
