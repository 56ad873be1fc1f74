"""One limit's running account: what is spent, what the next round could cost at most, what it did cost.

An account's state is its charged past only. The worst case of a round that is under way is computed from the public
plan whenever it is asked for.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from accounting.accountants.bayesian_spec import BayesianSpec, Composition, Sample
from accounting.budget.accounts.charged import ChargedQueries
from accounting.budget.accounts.progress import Progress
from accounting.errors import InvalidArgument
from accounting.mechanisms.conversion import (
    NOISE_AS_EXACT,
    Conversion,
    fixed_term,
    min_order,
    spendable_delta,
    takes_noise_as_exact,
)
from accounting.plan.limits import BayesianPlan, LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryCost
from accounting.plan.report import RoundReport
from accounting.units import RUNNING_CONDITION, Definition, Guarantee, Observer

# What the running number rests on where a limit is not kept by it.
RUNNING = f"ε so far, {RUNNING_CONDITION}"
RUNNING_WITH_QUESTIONS = f"{RUNNING}, and if the questions did not depend on them either"

# Rounds that begin after a bound was seen may depend on the sample that it was estimated from.
NOT_CERTIFIED = (
    "not certified, because bounds of the held-out sample are seen before the study has ended, and later rounds may "
    "depend on them"
)


class Account(ABC):
    """One limit of one study, charged by rounds of training and by queries.

    reports_take_long  tenths of a second, where the others take less than a millisecond
    """

    reports_take_long: ClassVar[bool] = False

    def __init__(self, limit: LimitPlan) -> None:
        self.limit = limit
        self.queries = ChargedQueries()

    @property
    @abstractmethod
    def enforced_by(self) -> str:
        """The public rule that says no, in words."""

    @abstractmethod
    def epsilon(self) -> float:
        """ε charged so far, as it is enforced."""

    @abstractmethod
    def epsilon_after_worst_round(self, *, publishes: bool, stage: int = 0) -> float:
        """Return ε if one more round of training cost its most.

        publishes  it also publishes a noised histogram
        stage      of the plan's noise schedule
        """

    @abstractmethod
    def epsilon_after_query(self, cost: QueryCost) -> float:
        """ε if this query were charged."""

    @abstractmethod
    def charge(self, report: RoundReport | None, *, publishes: bool, stage: int = 0) -> None:
        """Charge one round by its report. Without one, or by one that allows no estimate: at its worst case."""

    @abstractmethod
    def charge_query(self, cost: QueryCost) -> None:
        """Charge one query."""

    def stated(self, epsilon: float) -> float:
        """Return the ε that a statement names where so much is charged. It holds for any reason to stop.

        A filter at one fixed order is an odometer: E exp(λL − C) ≤ 1 at every stop (Feldman & Zrnic 2021), so that what
        is charged may be stated as it is.
        """
        return epsilon

    def guess_chance(self) -> float | None:
        """Chance of a right guess with equal odds, from the losses of all that the study may release. None: unknown."""
        return None

    def progress(self, *, stage: int | None, query: QueryCost | None) -> Progress | None:
        """Return how far the limit is used up where charges are counted. None: it is kept in ε.

        stage  of the round of training that is under way. None: none is
        query  that is under way
        """
        return None

    def take_queries(self, queries: ChargedQueries) -> None:
        """Be charged with these, instead of one's own."""
        self.queries = queries

    def charge_histogram(self) -> None:
        """Charge a published histogram without its round."""
        raise InvalidArgument("plan", "its histograms are never charged without their rounds")

    @abstractmethod
    def rounds_left(self) -> int:
        """Return the rounds that may still begin if they cost what the last one did, an estimate without regard to
        max_steps."""

    @abstractmethod
    def certificate(self, *, finished: bool) -> Guarantee: ...

    @abstractmethod
    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        """Tighter numbers beside the enforced one, each valid under what its certificate says."""

    @abstractmethod
    def state(self) -> dict[str, Any]: ...

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None: ...

    def fits_worst_round(self, *, publishes: bool, stage: int = 0) -> bool:
        """Whether one more round stays within the limit even at its most."""
        # Written so that NaN reads as overspent.
        return self.epsilon_after_worst_round(publishes=publishes, stage=stage) <= self.limit.epsilon

    def fits_query(self, cost: QueryCost) -> bool:
        """Whether this query stays within the limit."""
        return self.epsilon_after_query(cost) <= self.limit.epsilon


class LimitAccount(Account):
    """One limit of a study that trains.

    keeps_order  the limit is enforced at one Rényi order
    """

    keeps_order: ClassVar[bool] = True

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(limit)
        self.plan = plan
        self.mechanism = plan.mechanism(limit.level)
        self.rounds = 0
        self.published = 0

    @property
    def order(self) -> float:
        """The one order λ at which the limit is enforced."""
        classical = self.limit.definition is Definition.CLASSICAL
        return self.plan.classical_order if classical else self.bayesian.filter_order

    @property
    def fixed_term(self) -> float:
        """ε that the first charge brings at this order, however small it is."""
        return fixed_term(self.order, self.beta, conversion=self._conversion)

    @property
    def min_order(self) -> float:
        """The least order at which the limit can be kept at all, with enough noise."""
        return min_order(self.limit.epsilon, self.beta, conversion=self._conversion)

    def epsilon_after_query(self, cost: QueryCost) -> float:
        raise InvalidArgument("plan", f"level {self.limit.level} has no queries")

    def charge_query(self, cost: QueryCost) -> None:
        raise InvalidArgument("plan", f"level {self.limit.level} has no queries")

    @abstractmethod
    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        """ε of the study's first rounds and as many published histograms as said, all at their most."""

    def epsilon_of_evaluations(self, cost: QueryCost, count: int) -> float:
        """Return ε of a patient who is set aside, after so many evaluations of this cost and no other charge."""
        return self.epsilon_after_query(cost)

    def reports_at_worst(self, rounds: int, published: int) -> list[tuple[str, Guarantee]]:
        """The tighter numbers that are known before anybody trains, after so many rounds and published histograms."""
        return []

    @property
    @abstractmethod
    def growth(self) -> float:
        """ε that one more round adds if it costs what the last one did. Infinite before the first."""

    def rounds_left(self) -> int:
        # As if every round published: rather too few rounds than too many.
        after = self.epsilon_after_worst_round(publishes=self.plan.release is not None)
        if not after <= self.limit.epsilon:
            return 0
        spare = self.limit.epsilon - after
        # By a product first: growth may be 0, or infinite before the first round.
        return 1 + int(spare / self.growth) if spare < self.growth * self.plan.max_steps else self.plan.max_steps

    @property
    def bayesian(self) -> BayesianPlan:
        """The plan's Bayesian settings, which an account of a Bayesian limit has."""
        if self.plan.bayesian is None:
            raise InvalidArgument("plan", "has no Bayesian settings")
        return self.plan.bayesian

    def bayesian_spec(self, *, delta: float, max_steps: int, composition: Composition, sample: Sample) -> BayesianSpec:
        """Return the spec that a Bayesian limit fixes beforehand.

        Raises:
            InvalidArgument: the limit is not Bayesian.
        """
        plan, bayesian, limit = self.plan, self.bayesian, self.limit
        if limit.estimator_failure_probability is None:
            raise InvalidArgument("estimator_failure_probability", "is missing from a Bayesian limit")
        return BayesianSpec(
            orders=bayesian.orders,
            delta=delta,
            estimator_failure_probability=limit.estimator_failure_probability,
            max_steps=max_steps,
            composition=composition,
            estimator=bayesian.estimator,
            adversary=bayesian.adversary,
            conversion=bayesian.conversion,
            sample=sample,
            filter_order=bayesian.filter_order,
            level=limit.level,
            observer=plan.observer,
            relation=self.mechanism.relation,
        )

    @property
    def delta(self) -> float:
        """The limit's δ, less what the noise sampler may add to it over the whole study."""
        return spendable_delta(self.limit.delta, self.limit.epsilon, self._releases, self._failure)

    @property
    def beta(self) -> float:
        """Return the part of delta that is left for the privacy loss itself."""
        # Downwards: less δ never makes a smaller ε.
        return math.nextafter(self.delta - self._failure, 0.0)

    def worded(self, guarantee: Guarantee, assumption: str | None = None) -> Guarantee:
        """The guarantee at the limit's own δ, with what it assumes."""
        wording, limit = guarantee.assumption if assumption is None else assumption, self.limit
        if takes_noise_as_exact(limit.delta, limit.epsilon, self._releases, self._failure):
            wording = f"{wording.removesuffix('.')}; {NOISE_AS_EXACT}"
        definition = guarantee.definition
        if definition is Definition.CERTIFIED and not self._hides_sample:
            definition, wording = Definition.BAYESIAN, f"{wording.removesuffix('.')}; {NOT_CERTIFIED}"
        return dataclasses.replace(guarantee, delta=limit.delta, assumption=wording, definition=definition)

    @property
    def _hides_sample(self) -> bool:
        """Whether the path is independent of the accounting sample: its bounds are not seen before the end."""
        return self.plan.disclosure == "at-end" and self.plan.observer is Observer.RELEASES

    @property
    def _conversion(self) -> Conversion:
        return "improved" if self.limit.definition is Definition.CLASSICAL else self.bayesian.conversion

    @property
    def _failure(self) -> float:
        """Return the failure probability of the estimates. Classical limits have none."""
        return self.limit.estimator_failure_probability or 0.0

    @property
    def _releases(self) -> int:
        # At most one histogram a step.
        queries = 0 if self.plan.queries is None else self.plan.queries.max_queries
        return self.plan.max_steps * (1 if self.plan.release is None else 2) + queries


def read_at_the_best_order(best: Guarantee) -> tuple[str, Guarantee]:
    """The statement beside a filter: tighter, and right only for a stop that the log-moments did not choose."""
    sentence = (
        f"{best.assumption.removesuffix('.')}; read at the best of all orders, "
        "which is right if the stop did not depend on the log-moments"
    )
    return "best order", dataclasses.replace(best, assumption=sentence)


def growth_to_json(growth: float) -> float | None:
    """JSON knows no infinity, which stands for: no round yet."""
    return None if math.isinf(growth) else growth


def growth_from_json(growth: float | None) -> float:
    """Inverse of `growth_to_json`."""
    return math.inf if growth is None else growth
