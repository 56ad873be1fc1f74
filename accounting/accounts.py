"""One limit's running account: what is spent, what the next round could cost at most, what it did cost.

An account's state is its charged past only; the worst case of a round that is under way is computed from the public
plan whenever it is asked for.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting.classical import ClassicalAccountant
from accounting.conversion import epsilon_from_moments, largest_moment
from accounting.divergence import log_moment
from accounting.errors import InvalidArgument
from accounting.evidence import CumulativeMoments, Evidence
from accounting.plan import BayesianPlan, LimitPlan, Plan
from accounting.units import FloatArray, Guarantee, Notion, Observer, Relation

VOID_WHILE_PLAIN = "void against whoever sees the round's privacy terms, which this study shows as they are"


class LimitAccount(ABC):
    """One limit of one plan, charged round by round."""

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        self.plan = plan
        self.limit = limit
        self.rounds = 0

    @property
    @abstractmethod
    def enforced_by(self) -> str:
        """The public rule that says no, in words."""

    @abstractmethod
    def epsilon(self) -> float:
        """ε charged so far, as it is enforced."""

    @abstractmethod
    def epsilon_after_worst_round(self) -> float:
        """ε if one more round cost its most."""

    @abstractmethod
    def charge(self, evidence: Evidence | None) -> None:
        """Charge one round at its evidence; None, or evidence that allows no estimate: at its worst case."""

    @abstractmethod
    def rounds_left(self) -> int:
        """Rounds that may still begin if they cost what the last one did; an estimate, the horizon aside."""

    @abstractmethod
    def certificate(self, *, finished: bool) -> Guarantee: ...

    @abstractmethod
    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        """Tighter numbers beside the enforced one, each valid under what its certificate says."""

    @abstractmethod
    def state(self) -> dict[str, Any]: ...

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None: ...

    @property
    def fits_worst_round(self) -> bool:
        # Written so that NaN reads as overspent.
        return self.epsilon_after_worst_round() <= self.limit.epsilon


class ClassicalLimit(LimitAccount):
    """Rényi filter at one public order; PLD beside it for readers of a study whose stop was fixed in advance."""

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._filter = self._filter_at(0)

    @property
    def enforced_by(self) -> str:
        return f"Rényi divergence at order {self.plan.classical_order:g}"

    def epsilon(self) -> float:
        return self._filter.epsilon()

    def epsilon_after_worst_round(self) -> float:
        return self._epsilon_after(1)

    def charge(self, evidence: Evidence | None) -> None:
        self.restore({"rounds": self.rounds + 1})

    def rounds_left(self) -> int:
        if not self.fits_worst_round:
            return 0
        left = 1
        while left < self.plan.horizon and self._epsilon_after(2 * left) <= self.limit.epsilon:
            left *= 2
        low, high = left, 2 * left
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._epsilon_after(middle) <= self.limit.epsilon else (low, middle)
        return low

    def certificate(self, *, finished: bool) -> Guarantee:
        return self._voided(self._filter.certificate())

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        headline = ClassicalAccountant(
            delta=self.limit.delta, method="pld", level=self.limit.level, observer=self.plan.observer
        )
        if self.rounds:
            headline.step(**self._round(self.rounds))
        return [("privacy-loss distribution", self._voided(headline.certificate()))]

    def state(self) -> dict[str, Any]:
        return {"rounds": self.rounds}

    def restore(self, state: dict[str, Any]) -> None:
        # One product, not a running sum: live and restored agree to the last bit.
        rounds: int = state["rounds"]
        self._filter = self._filter_at(rounds)
        self.rounds = rounds

    def _filter_at(self, rounds: int) -> ClassicalAccountant:
        plan, limit = self.plan, self.limit
        account = ClassicalAccountant(
            delta=limit.delta, method="rdp", order=plan.classical_order, level=limit.level, observer=plan.observer
        )
        if rounds:
            account.step(**self._round(rounds))
        return account

    def _round(self, rounds: int = 1) -> dict[str, Any]:
        plan = self.plan
        steps = rounds * plan.steps_per_round
        return {"noise_multiplier": plan.noise_multiplier, "sampling_rate": plan.sampling_rate, "count": steps}

    def _epsilon_after(self, rounds: int) -> float:
        return self._filter_at(self.rounds + rounds).epsilon()

    def _voided(self, guarantee: Guarantee) -> Guarantee:
        if self.plan.bayesian is None or self.plan.disclosure != "plain":
            return guarantee
        return dataclasses.replace(guarantee, assumption=f"{guarantee.assumption}; {VOID_WHILE_PLAIN}")


class CumulativeLimit(LimitAccount):
    """Bayesian, parallel: the largest of the clients' own cumulative log-moment bounds.

    After a round the bound U(λ) is the maximum of the reports; it never falls, and never passes what it was before
    plus the round's worst case, because every client's sum grows by at most that. So settling stays below the
    reservation by construction. Under disclosure `public` the filter counts worst cases; the reports are shown at
    the end.
    """

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        if plan.bayesian is None or limit.failure is None:
            raise InvalidArgument("plan", "has no Bayesian settings")
        self._bayesian: BayesianPlan = plan.bayesian
        self._beta = math.nextafter(limit.delta - limit.failure, 0.0)
        # Row 0 is the filter order, the rest the report.
        self._growth, self._cap = self._worst_step()
        self._reported: FloatArray = np.zeros_like(self._cap)
        self._last_growth = math.inf

    @property
    def enforced_by(self) -> str:
        return f"Bayesian moment at order {self._bayesian.filter_order:g}"

    def epsilon(self) -> float:
        return self._read(self._enforced(), self.rounds)

    def epsilon_after_worst_round(self) -> float:
        if self.plan.disclosure == "public":
            return self._read(self._charged_at_worst(self.rounds + 1), self.rounds + 1)
        return self._read(float(self._reserved()[0]), self.rounds + 1)

    def charge(self, evidence: Evidence | None) -> None:
        reserved, before = self._reserved(), self._reported
        settled = reserved
        if isinstance(evidence, CumulativeMoments) and len(evidence.moments) == len(self._bayesian.orders):
            settled = np.minimum(np.maximum(before, [evidence.filter, *evidence.moments]), reserved)
        self._reported, self.rounds = settled, self.rounds + 1
        self._last_growth = float(settled[0] - before[0])

    def rounds_left(self) -> int:
        if not self.fits_worst_round:
            return 0
        public = self.plan.disclosure == "public"
        worst = self._step_cost()
        growth = worst if public else self._last_growth
        spare = self._threshold() - self._enforced() - worst
        return 1 + int(min(spare / growth, self.plan.horizon)) if growth > 0 else self.plan.horizon

    def certificate(self, *, finished: bool) -> Guarantee:
        revealed = self.plan.disclosure == "plain" or finished
        moment = float(self._reported[0]) if revealed else self._enforced()
        return self._guarantee(self._read(moment, self.rounds), self._bayesian.filter_order, revealed)

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        if self.plan.disclosure == "public" and not finished:
            return []
        if self.rounds == 0:
            return []
        epsilon, order = epsilon_from_moments(
            self._bayesian.orders, self._reported[1:], self._beta, conversion=self._bayesian.conversion
        )
        best = self._guarantee(epsilon, order, revealed=True)
        sentence = f"{best.assumption}; read at the best of all orders, so the stop was not chosen by the terms"
        return [("best order", dataclasses.replace(best, assumption=sentence))]

    def state(self) -> dict[str, Any]:
        growth = None if math.isinf(self._last_growth) else self._last_growth
        return {"rounds": self.rounds, "reported": self._reported.tolist(), "last_growth": growth}

    def restore(self, state: dict[str, Any]) -> None:
        reported = np.array(state["reported"], dtype=np.float64)
        if reported.shape != self._cap.shape:
            raise InvalidArgument("state", "was saved with other orders")
        self._reported, self.rounds = reported, state["rounds"]
        growth: float | None = state["last_growth"]
        self._last_growth = math.inf if growth is None else growth

    def _worst_step(self) -> tuple[FloatArray, FloatArray]:
        """Nats one noised step adds at most, and the classical cap of one step, at every order."""
        cap = self._moments(lambda order: order)
        if self._bayesian.adversary == "path":
            return cap, cap
        # Adaptive: the ledger is kept at 2λ+1 and halved.
        return self._moments(lambda order: 2 * order + 1) / 2, cap

    def _moments(self, at: Callable[[FloatArray], FloatArray]) -> FloatArray:
        plan = self.plan
        rows = [np.array([self._bayesian.filter_order]), np.array(self._bayesian.orders)]
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

    def _step_cost(self) -> float:
        return self.plan.steps_per_round * float(self._cap[0] if self.plan.disclosure == "public" else self._growth[0])

    def _read(self, moment: float, rounds: int) -> float:
        if rounds == 0:
            return 0.0
        order = self._bayesian.filter_order
        return epsilon_from_moments([order], [moment], self._beta, conversion=self._bayesian.conversion)[0]

    def _threshold(self) -> float:
        bayesian = self._bayesian
        return largest_moment(bayesian.filter_order, self.limit.epsilon, self._beta, conversion=bayesian.conversion)

    def _guarantee(self, epsilon: float, order: float, revealed: bool) -> Guarantee:
        plan, bayesian = self.plan, self._bayesian
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
            beta=self._beta,
            gamma=self.limit.failure,
            adversary=bayesian.adversary,
            sample="members",
            conversion=bayesian.conversion,
            resolution="each hospital rounds its own bound up",
            capped=True,
        )
