"""Classical limits of a study that trains: the worst case over all records, from the public plan and counts alone."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accounting.budget.accounts.base import LimitAccount
from accounting.budget.accounts.charged import ChargedQueries
from accounting.errors import InvalidArgument
from accounting.mechanisms.lattice import LESS_VARIANCE
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import Bears, QueryCost
from accounting.plan.report import RoundReport
from accounting.units import Definition, Guarantee


@dataclass(frozen=True)
class Charged:
    """The charges to a classical limit.

    rounds     of training, for each stage of the plan's noise schedule
    published  noised histograms
    """

    rounds: tuple[int, ...]
    published: int = 0
    queries: ChargedQueries = field(default_factory=ChargedQueries)

    def with_round(self, stage: int, *, publishes: bool) -> Charged:
        """This and one more round."""
        rounds = tuple(count + (place == stage) for place, count in enumerate(self.rounds))
        return Charged(rounds, self.published + publishes, self.queries)

    def with_query(self, cost: QueryCost, times: int = 1) -> Charged:
        """This and one more query, or several."""
        return dataclasses.replace(self, queries=self.queries.plus(cost, times))

    def __bool__(self) -> bool:
        return bool(any(self.rounds) or self.published or self.queries)


class WorstCaseLimit(LimitAccount):
    """One classical limit. Its costs are certain: no report of a hospital changes them."""

    reports_take_long: ClassVar[bool] = True

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self.mechanisms = tuple(plan.mechanism(limit.level, stage) for stage in range(len(plan.stages)))
        self.charged = Charged((0,) * len(self.mechanisms))

    @abstractmethod
    def epsilon_of(self, charged: Charged) -> float:
        """ε of so many charges, as it is enforced. Infinite where they may not be."""

    @abstractmethod
    def reports_of(self, charged: Charged) -> list[tuple[str, Guarantee]]:
        """Return the tighter numbers of so many charges, each valid under what its certificate says."""

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        return self.reports_of(self.charged)

    def reports_at_worst(self, rounds: int, published: int) -> list[tuple[str, Guarantee]]:
        return self.reports_of(Charged(self.plan.first_rounds(rounds), published, self.queries))

    def stand_at(self, charged: Charged) -> None:
        """Be charged with this, instead of one's own."""
        self.charged = charged
        self.rounds, self.published, self.queries = sum(charged.rounds), charged.published, charged.queries

    def epsilon(self) -> float:
        return self.epsilon_of(self.charged)

    def epsilon_after_worst_round(self, *, publishes: bool, stage: int = 0) -> float:
        return self.epsilon_of(self.charged.with_round(stage, publishes=publishes))

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        return self.epsilon_of(Charged(self.plan.first_rounds(rounds), published, self.queries))

    def epsilon_after_query(self, cost: QueryCost) -> float:
        return self.epsilon_of(self.charged.with_query(cost))

    def epsilon_of_evaluations(self, cost: QueryCost, count: int) -> float:
        return self.epsilon_of(self.nothing.with_query(cost, count))

    def charge(self, report: RoundReport | None, *, publishes: bool, stage: int = 0) -> None:
        self.stand_at(self.charged.with_round(stage, publishes=publishes))

    def charge_histogram(self) -> None:
        self.stand_at(dataclasses.replace(self.charged, published=self.published + 1))

    def charge_query(self, cost: QueryCost) -> None:
        self.stand_at(self.charged.with_query(cost))

    def take_queries(self, queries: ChargedQueries) -> None:
        self.stand_at(dataclasses.replace(self.charged, queries=queries))

    def with_pending(self, stage: int | None, query: QueryCost | None) -> Charged:
        """Return what will be charged once the round of this stage or the query is, or what is charged now."""
        charged = self.charged if stage is None else self.charged.with_round(stage, publishes=False)
        return charged if query is None else charged.with_query(query)

    @property
    def nothing(self) -> Charged:
        """Before the first charge."""
        return Charged((0,) * len(self.mechanisms))

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"rounds": self.rounds, "published": self.published}
        if self.plan.queries is not None:
            state["queries"] = self.queries.state()
        if self.plan.noise_schedule is not None:
            state["stages"] = list(self.charged.rounds)
        return state

    def restore(self, state: dict[str, Any]) -> None:
        # Without a schedule all rounds are of one stage.
        stages = tuple(state.get("stages", [state["rounds"]]))
        if len(stages) != len(self.mechanisms) or sum(stages) != state["rounds"]:
            raise InvalidArgument("state", "was saved with another noise schedule")
        self.stand_at(Charged(stages, state["published"], ChargedQueries.restore(state.get("queries", []))))

    def worded(self, guarantee: Guarantee, assumption: str | None = None) -> Guarantee:
        plan, wording = self.plan, guarantee.assumption if assumption is None else assumption
        if plan.honest_survivors > 1:
            added = "their shares of the noise" if plan.rules.divides_noise else "their noise"
            wording = f"{wording.removesuffix('.')}; {plan.honest_survivors} honest clients added {added} to every sum"
        return dataclasses.replace(super().worded(guarantee, wording), relation=self.mechanism.relation)

    def guarantee(self, epsilon: float, assumption: str, composition: str, resolution: str) -> Guarantee:
        """Return the guarantee of what was charged, at the limit's own δ."""
        step, steps = self.mechanism, self.rounds * self.mechanism.steps_per_round
        return Guarantee(
            epsilon=epsilon,
            delta=self.limit.delta,
            level=self.limit.level,
            definition=Definition.CLASSICAL,
            relation=step.relation,
            observer=self.plan.observer,
            assumption=assumption,
            steps=steps + self.published + len(self.queries),
            sampling_rate=(step.sampling_rate, step.sampling_rate) if steps else None,
            composition=composition,
            resolution=resolution,
        )


def squares(charged: Charged, *bears: Bears) -> float:
    """Return Σ Δ²/s² of the continuous noise of the queries that any of `bears` bears, rounded up."""
    return charged.queries.precision(*bears, less_variance=LESS_VARIANCE)
