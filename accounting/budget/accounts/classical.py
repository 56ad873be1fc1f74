"""The classical limit of a study that trains: the worst case over all records, from the public plan alone."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from functools import lru_cache
from typing import Any, ClassVar, Literal

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts.base import PRIVACY_LOSS_DISTRIBUTION, LimitAccount
from accounting.budget.accounts.charged import ChargedQueries
from accounting.mechanisms.conversion import largest_moment
from accounting.mechanisms.events import DiscreteGaussianEvent
from accounting.mechanisms.guessing import guess_chance, rounded_steps, rounding_error
from accounting.mechanisms.lattice import lattice_error
from accounting.mechanisms.unsampled import LEAST_GRID_STD, Steps
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import LEAST_STD, Bears, QueryCost
from accounting.plan.report import RoundReport
from accounting.units import Guarantee


class ClassicalLimit(LimitAccount):
    """Rényi filter at one public order. PLD beside it for readers of a study whose stop was fixed in advance."""

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
        after_one, two = (self.epsilon_at_worst(self.rounds + rounds_more, self.published) for rounds_more in (1, 2))
        return two - after_one

    def certificate(self, *, finished: bool) -> Guarantee:
        return self._worded(self._filter.certificate())

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        return self.reports_at_worst(self.rounds, self.published)

    def reports_at_worst(self, rounds: int, published: int) -> list[tuple[str, Guarantee]]:
        headline = self._larger(rounds, published, self.queries, method="pld", order=None)
        return [(PRIVACY_LOSS_DISTRIBUTION, self._worded(headline.certificate()))]

    def guess_chance(self) -> float | None:
        plan, release = self.plan, self.plan.release
        if release is not None and self.published + _checkpoints(plan, plan.rounds - self.rounds) > _checkpoints(plan):
            # Histograms of cancelled rounds came on top: the plan does not say how many more may.
            return None
        steps = _all_releases(plan, self.limit)
        # What is drawn is rounded continuous noise but for so much.
        of_queries = 0.0 if plan.queries is None else plan.queries.cells * lattice_error(LEAST_STD)
        lattice = rounding_error(plan.max_steps) + of_queries
        return None if steps is None else guess_chance(steps, releases=self._releases, lattice=lattice)

    @property
    def max_squares(self) -> float:
        """Σ Δ²/s² at which Gaussian releases of all records spend the limit, rounded up."""
        order = self.order
        return max(0.0, 2 * largest_moment(order, self.limit.epsilon, self.beta) / order / (order + 1) * (1 + 1e-9))

    def max_rounds(self) -> int:
        """Return the rounds that the limit lets begin without any other charge."""
        fitting = range(self.plan.rounds + 1)
        return bisect_right(fitting, self.limit.epsilon, key=lambda rounds: self.epsilon_at_worst(rounds, 0)) - 1

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
        """Return the account of the patients who have lost more: those who are trained on, or those set aside for
        evaluation."""

        def opened(bearer: Bears) -> ClassicalAccountant:
            observer, level = self.plan.observer, self.limit.level
            account = ClassicalAccountant(delta=self.delta, method=method, order=order, level=level, observer=observer)
            for event, count in queries.events("all", bearer):
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


def _checkpoints(plan: Plan, rounds: int | None = None) -> int:
    """Return the most histograms that so many rounds in a row publish, from any first round. None: all rounds of the
    plan."""
    return 0 if plan.release is None else -(-(plan.rounds if rounds is None else rounds) // plan.release.every)


@lru_cache(maxsize=64)
def _all_releases(plan: Plan, limit: LimitPlan) -> tuple[Steps, ...] | None:
    """Return steps that dominate everything the plan may release, for any adaptation of rounds and questions, or None
    where they are unknown.

    All rounds that the limit lets begin, all histograms, and as large a sum of squares of questions as it lets in, all
    at once. Each part is fixed before round 1, so that no order, size or stop that adapts does better than the
    composition of all (docs/guarantees.md). Evaluations are borne by patients who bear no round, and are within the
    same sum. If rounds take all records, rounds and questions are Gaussian releases under one limit on their
    Σ Δ²/s², and together are dominated by one (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023).
    """
    account, step = ClassicalLimit(plan, limit), plan.mechanism(limit.level)
    rounds, squares = account.max_rounds(), 0.0 if plan.queries is None else account.max_squares
    releases: list[Steps] = []
    if squares and step.sampling_rate == 1:
        # Histograms stand apart below, which only adds.
        rounds = 0
    if rounds:
        releases.append(rounded_steps(step.noise_multiplier, step.sampling_rate, rounds * step.steps_per_round))
    if plan.release is not None:
        if plan.release.std < LEAST_GRID_STD:
            # Few steps of the integers to a deviation: the lattice is beyond what is proved.
            return None
        multiplier = plan.release.std / plan.rules.histogram_sensitivity
        releases.append(Steps(math.nextafter(multiplier, 0.0), 1.0, _checkpoints(plan), plan.release.std))
    if squares:
        releases.append(rounded_steps(1 / math.sqrt(squares), 1.0, 1))
    return tuple(releases)
