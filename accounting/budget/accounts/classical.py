"""The classical limit: worst case over all records, from the public plan alone."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts.base import LimitAccount
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.report import RoundReport
from accounting.units import Guarantee

NOT_WHILE_PLAIN = "does not hold against whoever sees the rounds' log-moments, which this study shows without noise"


class ClassicalLimit(LimitAccount):
    """Rényi filter at one public order; PLD beside it for readers of a study whose stop was fixed in advance."""

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._filter = self._filter_at(0, 0)

    @property
    def enforced_by(self) -> str:
        return f"Rényi divergence at order {self.plan.classical_order:g}"

    def epsilon(self) -> float:
        return self._filter.epsilon()

    def epsilon_after_worst_round(self, *, publishes: bool) -> float:
        return self._epsilon_after(1, publishes)

    def charge(self, report: RoundReport | None, *, publishes: bool) -> None:
        self.restore({"rounds": self.rounds + 1, "published": self.published + publishes})

    def charge_histogram(self) -> None:
        self.restore({"rounds": self.rounds, "published": self.published + 1})

    @property
    def growth(self) -> float:
        # At one order ε is linear in the moment, apart from the constant that the first round brings.
        return self._epsilon_after(2, False) - self._epsilon_after(1, False)

    def certificate(self, *, finished: bool) -> Guarantee:
        return self._worded(self._filter.certificate())

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        headline = ClassicalAccountant(
            delta=self.delta, method="pld", level=self.limit.level, observer=self.plan.observer
        )
        self._charge(headline, self.rounds, self.published)
        return [("privacy-loss distribution", self._worded(headline.certificate()))]

    def state(self) -> dict[str, Any]:
        return {"rounds": self.rounds, "published": self.published}

    def restore(self, state: dict[str, Any]) -> None:
        # One product, not a running sum: live and restored agree to the last bit.
        rounds, published = state["rounds"], state["published"]
        self._filter = self._filter_at(rounds, published)
        self.rounds, self.published = rounds, published

    def _filter_at(self, rounds: int, published: int) -> ClassicalAccountant:
        plan, limit = self.plan, self.limit
        account = ClassicalAccountant(
            delta=self.delta, method="rdp", order=plan.classical_order, level=limit.level, observer=plan.observer
        )
        self._charge(account, rounds, published)
        return account

    def _charge(self, account: ClassicalAccountant, rounds: int, published: int) -> None:
        step = self.mechanism
        if rounds:
            account.step(
                noise_multiplier=step.noise_multiplier,
                sampling_rate=step.sampling_rate,
                count=rounds * step.steps_per_round,
            )
        if self.plan.release is not None and published:
            multiplier = math.nextafter(self.plan.release.std / self.plan.rules.histogram_sensitivity, 0.0)
            account.step(noise_multiplier=multiplier, sampling_rate=1.0, count=published)

    def _epsilon_after(self, rounds: int, publishes: bool) -> float:
        return self._filter_at(self.rounds + rounds, self.published + publishes).epsilon()

    def _worded(self, guarantee: Guarantee) -> Guarantee:
        plan, assumption = self.plan, guarantee.assumption
        if plan.honest_survivors > 1:
            assumption = f"{assumption}; {plan.honest_survivors} honest clients added their noise to every sum"
        if plan.bayesian is not None and plan.disclosure == "plain":
            assumption = f"{assumption}; {NOT_WHILE_PLAIN}"
        return dataclasses.replace(self.worded(guarantee, assumption), relation=self.mechanism.relation)
