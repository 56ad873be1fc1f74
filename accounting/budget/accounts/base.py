"""One limit's running account: what is spent, what the next round could cost at most, what it did cost.

An account's state is its charged past only; the worst case of a round that is under way is computed from the public
plan whenever it is asked for. The classical account, which every level has, is here too: the worst case over all
records, from the public plan alone.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from accounting.accountants.bayesian_spec import BayesianSpec, Composition, Sample
from accounting.accountants.classical import ClassicalAccountant
from accounting.errors import InvalidArgument
from accounting.mechanisms.conversion import (
    NOISE_AS_EXACT,
    Conversion,
    fixed_term,
    least_order,
    spendable_delta,
    takes_noise_as_exact,
)
from accounting.mechanisms.events import DiscreteGaussianEvent
from accounting.plan.plan import BayesianPlan, LimitPlan, Plan
from accounting.plan.report import RoundReport
from accounting.units import Definition, Guarantee

# The name of the tight number beside a classical limit.
PRIVACY_LOSS_DISTRIBUTION = "privacy-loss distribution"


class LimitAccount(ABC):
    """One limit of one plan, charged round by round.

    reports_take_long  tenths of a second, where the others take less than a millisecond
    """

    reports_take_long: ClassVar[bool] = False

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        self.plan = plan
        self.limit = limit
        self.mechanism = plan.mechanism(limit.level)
        self.rounds = 0
        self.published = 0

    @property
    @abstractmethod
    def enforced_by(self) -> str:
        """The public rule that says no, in words."""

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
    def least_order(self) -> float:
        """The least order at which the limit can be kept at all, with enough noise."""
        return least_order(self.limit.epsilon, self.beta, conversion=self._conversion)

    @abstractmethod
    def epsilon(self) -> float:
        """ε charged so far, as it is enforced."""

    @abstractmethod
    def epsilon_after_worst_round(self, *, publishes: bool) -> float:
        """ε if one more round cost its most; `publishes`: it also publishes a noised histogram."""

    @abstractmethod
    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        """ε of the study's first rounds and as many published histograms as said, all at their most."""

    def reports_at_worst(self, rounds: int, published: int) -> list[tuple[str, Guarantee]]:
        """The tighter numbers that are known before anybody trains, after so many rounds and published histograms."""
        return []

    @abstractmethod
    def charge(self, report: RoundReport | None, *, publishes: bool) -> None:
        """Charge one round by its report; without one, or by one that allows no estimate: at its worst case."""

    def charge_histogram(self) -> None:
        """Charge a published histogram without its round."""
        raise InvalidArgument("plan", "its histograms are never charged without their rounds")

    @property
    @abstractmethod
    def growth(self) -> float:
        """ε that one more round adds if it costs what the last one did; infinite before the first."""

    def rounds_left(self) -> int:
        """Rounds that may still begin if they cost what the last one did; an estimate, whatever max_steps allows."""
        # As if every round published: rather too few rounds than too many.
        after = self.epsilon_after_worst_round(publishes=self.plan.release is not None)
        if not after <= self.limit.epsilon:
            return 0
        spare = self.limit.epsilon - after
        # By a product first: growth may be 0, or infinite before the first round.
        return 1 + int(spare / self.growth) if spare < self.growth * self.plan.max_steps else self.plan.max_steps

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
    def bayesian(self) -> BayesianPlan:
        """The plan's Bayesian settings, which an account of a Bayesian limit has."""
        if self.plan.bayesian is None:
            raise InvalidArgument("plan", "has no Bayesian settings")
        return self.plan.bayesian

    def bayesian_spec(self, *, delta: float, max_steps: int, composition: Composition, sample: Sample) -> BayesianSpec:
        """What a Bayesian limit fixes beforehand.

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
        """What delta leaves for the privacy loss itself."""
        # Downwards: less δ never makes a smaller ε.
        return math.nextafter(self.delta - self._failure, 0.0)

    def worded(self, guarantee: Guarantee, assumption: str | None = None) -> Guarantee:
        """The guarantee at the limit's own δ, with what it assumes."""
        said, limit = guarantee.assumption if assumption is None else assumption, self.limit
        if takes_noise_as_exact(limit.delta, limit.epsilon, self._releases, self._failure):
            said = f"{said.removesuffix('.')}; {NOISE_AS_EXACT}"
        return dataclasses.replace(guarantee, delta=limit.delta, assumption=said)

    @property
    def _conversion(self) -> Conversion:
        return "improved" if self.limit.definition is Definition.CLASSICAL else self.bayesian.conversion

    @property
    def _failure(self) -> float:
        """Of the estimates; classical limits have none."""
        return self.limit.estimator_failure_probability or 0.0

    @property
    def _releases(self) -> int:
        # At most one histogram a step.
        return self.plan.max_steps * (1 if self.plan.release is None else 2)

    def fits_worst_round(self, *, publishes: bool) -> bool:
        """Whether one more round stays within the limit even at its most."""
        # Written so that NaN reads as overspent.
        return self.epsilon_after_worst_round(publishes=publishes) <= self.limit.epsilon


class ClassicalLimit(LimitAccount):
    """Rényi filter at one public order; PLD beside it for readers of a study whose stop was fixed in advance."""

    reports_take_long = True

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._filter = self._filter_at(0, 0)

    @property
    def enforced_by(self) -> str:
        return f"Rényi divergence at order {self.plan.classical_order:g}"

    def epsilon(self) -> float:
        return self._filter.epsilon()

    def epsilon_after_worst_round(self, *, publishes: bool) -> float:
        return self.epsilon_at_worst(self.rounds + 1, self.published + publishes)

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        return self._filter_at(rounds, published).epsilon()

    def charge(self, report: RoundReport | None, *, publishes: bool) -> None:
        self.restore({"rounds": self.rounds + 1, "published": self.published + publishes})

    def charge_histogram(self) -> None:
        self.restore({"rounds": self.rounds, "published": self.published + 1})

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
        headline = ClassicalAccountant(
            delta=self.delta, method="pld", level=self.limit.level, observer=self.plan.observer
        )
        self._charge(headline, rounds, published)
        return [(PRIVACY_LOSS_DISTRIBUTION, self._worded(headline.certificate()))]

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
            # Few steps of the integers to a deviation: the loss of the discrete law is not the continuous one's.
            event = DiscreteGaussianEvent(self.plan.release.std, self.plan.rules.histogram_sensitivity)
            account.compose(event, published)

    def _worded(self, guarantee: Guarantee) -> Guarantee:
        plan, assumption = self.plan, guarantee.assumption
        if plan.honest_survivors > 1:
            assumption = f"{assumption}; {plan.honest_survivors} honest clients added their noise to every sum"
        return dataclasses.replace(self.worded(guarantee, assumption), relation=self.mechanism.relation)


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
