"""The classical limit of a study of queries alone: every step is Gaussian at rate 1, and questions may adapt."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any, ClassVar

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts.base import LEAST_EPSILON, Account
from accounting.budget.accounts.charged import ChargedQueries
from accounting.errors import InvalidArgument
from accounting.mechanisms.conversion import sampling_slack
from accounting.mechanisms.guessing import guess_chance, rounded_steps
from accounting.mechanisms.lattice import LESS_VARIANCE, lattice_error
from accounting.mechanisms.unsampled import Steps, unsampled_epsilon
from accounting.plan.limits import LimitPlan
from accounting.plan.queries import LEAST_STD, QueryCost
from accounting.plan.report import RoundReport
from accounting.plan.statistics import StatisticsPlan
from accounting.units import PRIVACY_LOSS_DISTRIBUTION, Definition, Guarantee, Relation

_ASSUMES = (
    "every query kept its sensitivity and its noise; questions and the moment they stop may depend on earlier answers, "
    "so that the limit is stated from the first question on"
)
_RUNNING = (
    "the ε of the questions so far, if the study ended here for reasons that do not depend on its answers, and if the "
    "questions did not depend on them either"
)


class GaussianLimit(Account):
    """A filter on Σ Δ²/s² ≤ μ², μ the Gaussian differential privacy that the limit's (ε, δ) allows.

    Gaussian queries that are chosen one after the other, each after the answers before, are together μ-GDP if
    Σ Δ²/s² ≤ μ² on every path (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023). The drawn noise is discrete: it
    is the rounding of continuous noise with a variance 1/12 smaller up to `lattice_error`, and
    that of all cells of all queries, times 1 + e^ε, comes off δ first.

    The ε of what was asked so far is no odometer: a stop that adapts to answers breaks it. So statements name the limit
    from the first question on.
    """

    reports_take_long: ClassVar[bool] = False

    def __init__(self, plan: StatisticsPlan, limit: LimitPlan) -> None:
        super().__init__(limit)
        self.plan = plan
        self._last_cost = math.inf

    @property
    def enforced_by(self) -> str:
        return "Gaussian differential privacy, which holds for questions that depend on answers"

    @property
    def delta(self) -> float:
        """The limit's δ, less what the discrete law and the sampler may add to it over the whole study."""
        limit, cells = self.limit, self.plan.queries.cells
        per_cell = lattice_error(LEAST_STD)
        slack = (1 + math.exp(min(limit.epsilon, 600.0))) * cells * per_cell * (1 + 1e-15)
        return math.nextafter(limit.delta - slack - sampling_slack(limit.epsilon, self.plan.queries.max_queries), 0.0)

    def epsilon(self) -> float:
        return self._epsilon(self.queries)

    def stated(self, epsilon: float) -> float:
        return max(epsilon, self.limit.epsilon) if epsilon > 0 else 0.0

    @property
    def used(self) -> float:
        """Σ Δ²/s² of all queries so far, rounded up."""
        return self.queries.precision("all", "evaluated", less_variance=LESS_VARIANCE)

    @property
    def max_squares(self) -> float:
        """Return μ²: the most that `used` may become, rounded up by less than a share of 1e-8. 0: no query may be
        asked."""
        return _max_squares(self.plan, self.limit)

    def guess_chance(self) -> float | None:
        queries, mu_squared = self.plan.queries, self.max_squares
        if not mu_squared > 0:
            return None
        # Whatever is asked is dominated by one Gaussian query of μ², in continuous noise.
        whole = rounded_steps(1 / math.sqrt(mu_squared), 1.0, 1)
        return guess_chance([whole], releases=queries.max_queries, lattice=queries.cells * lattice_error(LEAST_STD))

    def epsilon_after_query(self, cost: QueryCost) -> float:
        return self._epsilon(self.queries.plus(cost))

    def charge_query(self, cost: QueryCost) -> None:
        before = self.epsilon()
        self.queries = self.queries.plus(cost)
        self._last_cost = self.epsilon() - before

    def epsilon_after_worst_round(self, *, publishes: bool, stage: int = 0) -> float:
        # No round of training ever begins.
        return self.epsilon()

    def charge(self, report: RoundReport | None, *, publishes: bool, stage: int = 0) -> None:
        raise InvalidArgument("plan", "has no rounds of training")

    def rounds_left(self) -> int:
        return 0

    def certificate(self, *, finished: bool) -> Guarantee:
        return Guarantee(
            epsilon=self.stated(self.epsilon()),
            delta=self.limit.delta,
            level=self.limit.level,
            definition=Definition.CLASSICAL,
            relation=Relation.ADD_REMOVE,
            observer=self.plan.observer,
            assumption=_ASSUMES,
            steps=len(self.queries),
            sampling_rate=(1.0, 1.0) if self.queries else None,
            composition="gaussian-filter",
            adversary="adaptive",
            resolution="closed form, rounded up",
            used=self.used,
            allowed=self.max_squares,
        )

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        if not self.delta > 0:
            # Nothing is ever asked under such a limit (`require_questions`).
            return []
        exact = ClassicalAccountant(delta=self.delta, method="pld", level=self.limit.level, observer=self.plan.observer)
        for event, count in self.queries.events("all", "evaluated"):
            exact.compose(event, count)
        stated = dataclasses.replace(exact.certificate(), delta=self.limit.delta, assumption=_RUNNING)
        return [(PRIVACY_LOSS_DISTRIBUTION, stated)]

    def state(self) -> dict[str, Any]:
        return {"queries": self.queries.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.queries = ChargedQueries.restore(state["queries"])

    def _epsilon(self, queries: ChargedQueries) -> float:
        if not queries:
            return 0.0
        if not self.delta > 0:
            return math.inf
        squared = queries.precision("all", "evaluated", less_variance=LESS_VARIANCE)
        # Limits that name no rule state what they always did.
        return max(0.0 if self.limit.enforcement is None else LEAST_EPSILON, self._epsilon_of(squared))

    def fits(self, squared: float) -> bool:
        """Whether a sum of squares is within the limit."""
        return self._epsilon_of(squared) <= self.limit.epsilon

    def _epsilon_of(self, squared: float) -> float:
        delta = self.delta
        ratio = math.sqrt(squared) * (1 + 1e-15)
        # What moments give at the best order bounds it from above: μ²/2 + μ√(2 ln(1/δ)).
        epsilon = (squared / 2 + ratio * math.sqrt(2 * math.log(1 / delta))) * (1 + 1e-12)
        return unsampled_epsilon([Steps(math.nextafter(1 / ratio, 0.0), 1.0, 1)], delta, epsilon)


@lru_cache(maxsize=64)
def _max_squares(plan: StatisticsPlan, limit: LimitPlan) -> float:
    account = GaussianLimit(plan, limit)
    if not account.delta > 0:
        return 0.0
    low, high = 0.0, 1.0
    while account.fits(high):
        low, high = high, 4 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if account.fits(middle) else (low, middle)
    # A sum of squares that is let in is below `high`, which does not fit.
    return high
