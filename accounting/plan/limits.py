"""The limits of a study, how its Bayesian costs are estimated, and what is wrong with a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from accounting.errors import AccountingError
from accounting.plan.schemes import Composition, Scheme
from accounting.units import Definition, Level, check_choice, check_delta, check_orders, check_positive


class PlanError(AccountingError, ValueError):
    """A plan that cannot begin; `field` names what to change."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class FirstRoundOverspends(PlanError):
    """Not even one round fits. The noise multipliers that would fit one round and all steps."""

    def __init__(self, limit: LimitPlan, one_round: float, all_steps: float) -> None:
        super().__init__(
            "noise_multiplier",
            f"the first round alone could pass the {limit.definition} limit at level {limit.level}: a noise multiplier "
            f"of {one_round:g} is enough for one round, {all_steps:g} for all steps (max_steps)",
        )
        self.noise_one_round = one_round
        self.noise_max_steps = all_steps


@dataclass(frozen=True)
class LimitPlan:
    """Never more than (epsilon, delta) in this definition; `estimator_failure_probability` is a Bayesian delta's γ."""

    level: Level
    definition: Definition
    epsilon: float
    delta: float
    estimator_failure_probability: float | None

    def __post_init__(self) -> None:
        if self.definition not in (Definition.CLASSICAL, Definition.BAYESIAN):
            raise PlanError("definition", f"no budget is kept in the definition {self.definition}")
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        failure = self.estimator_failure_probability
        if (failure is not None) != (self.definition is Definition.BAYESIAN):
            raise PlanError("estimator_failure_probability", "Bayesian limits have one, classical limits none")
        if failure is not None and check_delta(failure, "estimator_failure_probability") >= self.delta:
            raise PlanError(
                "estimator_failure_probability", "must be below delta, or nothing is left for the privacy loss itself"
            )


@dataclass(frozen=True)
class BayesianPlan:
    """How Bayesian costs are estimated, composed and converted.

    sample  whose records are measured: members of the study, or records held out since before round 1
    """

    orders: tuple[float, ...]
    filter_order: float
    estimator: Literal["student-t", "betting", "band", "bernstein"]
    composition: Composition
    adversary: Literal["path", "adaptive"]
    conversion: Literal["improved", "chernoff"]
    sample: Literal["members", "held-out"] = "members"

    def __post_init__(self) -> None:
        check_orders(self.orders)
        check_choice("sample", self.sample, ("members", "held-out"))
        check_positive("filter_order", self.filter_order)
        check_choice("estimator", self.estimator, ("student-t", "betting", "band", "bernstein"))
        check_choice("composition", self.composition, ("holder", "running"))
        check_choice("adversary", self.adversary, ("path", "adaptive"))
        check_choice("conversion", self.conversion, ("improved", "chernoff"))


def limit_among(limits: Sequence[LimitPlan], level: Level, definition: Definition) -> LimitPlan | None:
    """The limit of this level and definition, if there is one."""
    return next((limit for limit in limits if (limit.level, limit.definition) == (level, definition)), None)


def require_limits(scheme: Scheme, limits: Sequence[LimitPlan], bayesian: BayesianPlan | None) -> None:
    """Whether a study of this scheme can keep these limits, Bayesian ones as `bayesian` says.

    Raises:
        PlanError: the first rule that says no.
    """
    kinds = [(limit.level, limit.definition) for limit in limits]
    if len(set(kinds)) != len(kinds):
        raise PlanError("limits", "at most one per level and definition")
    if any(level not in scheme.levels for level, _ in kinds):
        raise PlanError("limits", f"scheme {scheme.named} bounds the {' and the '.join(scheme.levels)} level only")
    if not kinds or any((level, Definition.CLASSICAL) not in kinds for level, _ in kinds):
        raise PlanError(
            "limits",
            "every level needs a classical limit, for the people whom the Bayesian bound does not cover",
        )
    if any(definition is Definition.BAYESIAN for _, definition in kinds) != (bayesian is not None):
        raise PlanError("bayesian", "a Bayesian limit and the section `bayesian` come together")
    if bayesian is None:
        return
    if bayesian.composition not in scheme.compositions:
        raise PlanError(
            "composition",
            "running sums need the same accounting sample in every round: "
            f"scheme {scheme.named} needs composition holder",
        )
    if bayesian.sample == "held-out" and Level.INSTANCE not in scheme.levels:
        raise PlanError("sample", f"scheme {scheme.named} measures clients; records are held out at instance level")


def require_release(scheme: Scheme, limits: Sequence[LimitPlan], bayesian: BayesianPlan | None) -> None:
    """Whether a study of this scheme can publish noised histograms of what its Bayesian limits are estimated from.

    Raises:
        PlanError: the first rule that says no.
    """
    if bayesian is None:
        raise PlanError("release", "without a Bayesian limit there is nothing to publish")
    if limit_among(limits, Level.INSTANCE, Definition.BAYESIAN) is None:
        return
    if scheme.counts_clients:
        raise PlanError(
            "release",
            f"scheme {scheme.named} with disclosure `noised` has no Bayesian limit at instance level: "
            "a hospital that is zeroed out may move all counts of its accounting sample; 100 records at std 10 would "
            "cost the client level ε = 159 a histogram (δ = 1e-5), and ε = 1 takes std 528, "
            "which hides the accounting sample",
        )
    if bayesian.composition != "running":
        raise PlanError(
            "composition", "noised at instance level reads running sums: Hölder's would need a histogram a step"
        )
