"""The classical limit of a study that trains: the worst case over all records, from the public plan alone."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts.base import PRIVACY_LOSS_DISTRIBUTION, LimitAccount
from accounting.budget.accounts.charged import ChargedQueries
from accounting.mechanisms.events import DiscreteGaussianEvent
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import Bears, QueryCost
from accounting.plan.report import RoundReport
from accounting.units import Guarantee


class ClassicalLimit(LimitAccount):
    """Rényi filter at one public order; PLD beside it for readers of a study whose stop was fixed in advance."""

    reports_take_long: ClassVar[bool] = True

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._filter = self._filter_at(0, 0, self.queries)

    @property
    def enforced_by(self) -> str:
        return f"Rényi divergence at order {self.plan.classical_order:g}"

    def epsilon(self) -> float:
        return self._filter.epsilon()

    def epsilon_after_worst_round(self, *, publishes: bool) -> float:
        return self.epsilon_at_worst(self.rounds + 1, self.published + publishes)

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        return self._filter_at(rounds, published, self.queries).epsilon()

    def epsilon_after_query(self, cost: QueryCost) -> float:
        return self._filter_at(self.rounds, self.published, self.queries.plus(cost)).epsilon()

    def epsilon_of_evaluations(self, cost: QueryCost, count: int) -> float:
        return self._filter_at(0, 0, ChargedQueries().plus(cost, count)).epsilon()

    def charge(self, report: RoundReport | None, *, publishes: bool) -> None:
        self._stand_at(self.rounds + 1, self.published + publishes, self.queries)

    def charge_histogram(self) -> None:
        self._stand_at(self.rounds, self.published + 1, self.queries)

    def charge_query(self, cost: QueryCost) -> None:
        self._stand_at(self.rounds, self.published, self.queries.plus(cost))

    def take_queries(self, queries: ChargedQueries) -> None:
        self._stand_at(self.rounds, self.published, queries)

    @property
    def growth(self) -> float:
        # At one order ε is linear in the moment, apart from the constant that the first round brings.
        one, two = (self.epsilon_at_worst(self.rounds + ahead, self.published) for ahead in (1, 2))
        return two - one

    def certificate(self, *, finished: bool) -> Guarantee:
        return self._worded(self._filter.certificate())

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        return self.reports_at_worst(self.rounds, self.published)

    def reports_at_worst(self, rounds: int, published: int) -> list[tuple[str, Guarantee]]:
        headline = self._larger(rounds, published, self.queries, method="pld", order=None)
        return [(PRIVACY_LOSS_DISTRIBUTION, self._worded(headline.certificate()))]

    def state(self) -> dict[str, Any]:
        charged = {"rounds": self.rounds, "published": self.published}
        return charged if self.plan.queries is None else {**charged, "queries": self.queries.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._stand_at(state["rounds"], state["published"], ChargedQueries.restore(state.get("queries", [])))

    def _stand_at(self, rounds: int, published: int, queries: ChargedQueries) -> None:
        # One product, not a running sum: live and restored agree to the last bit.
        self._filter = self._filter_at(rounds, published, queries)
        self.rounds, self.published, self.queries = rounds, published, queries

    def _filter_at(self, rounds: int, published: int, queries: ChargedQueries) -> ClassicalAccountant:
        return self._larger(rounds, published, queries, method="rdp", order=self.plan.classical_order)

    def _larger(
        self,
        rounds: int,
        published: int,
        queries: ChargedQueries,
        *,
        method: Literal["pld", "rdp"],
        order: float | None,
    ) -> ClassicalAccountant:
        """The account of whoever has lost more: patients who are trained on, or those set aside for evaluation."""

        def opened(who: Bears) -> ClassicalAccountant:
            observer, level = self.plan.observer, self.limit.level
            account = ClassicalAccountant(delta=self.delta, method=method, order=order, level=level, observer=observer)
            for event, count in queries.events("all", who):
                account.compose(event, count)
            return account

        trained = opened("all")
        self._train(trained, rounds, published)
        evaluated = opened("evaluated")
        return evaluated if evaluated.epsilon() > trained.epsilon() else trained

    def _train(self, account: ClassicalAccountant, rounds: int, published: int) -> None:
        step = self.mechanism
        if rounds:
            account.step(
                noise_multiplier=step.noise_multiplier,
                sampling_rate=step.sampling_rate,
                count=rounds * step.steps_per_round,
            )
        if self.plan.release is not None and published:
            # Few steps of the integers to a deviation: the loss of the discrete law is not the continuous one's.
            event = DiscreteGaussianEvent(self.plan.release.std, self.plan.rules.histogram_sensitivity)
            account.compose(event, published)

    def _worded(self, guarantee: Guarantee) -> Guarantee:
        plan, assumption = self.plan, guarantee.assumption
        if plan.honest_survivors > 1:
            added = "their shares of the noise" if plan.rules.divides_noise else "their noise"
            assumption = f"{assumption}; {plan.honest_survivors} honest clients added {added} to every sum"
        return dataclasses.replace(self.worded(guarantee, assumption), relation=self.mechanism.relation)
