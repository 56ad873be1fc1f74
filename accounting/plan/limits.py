"""The limits that a study keeps and how it keeps them, and which ones a scheme can keep."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from accounting.errors import AccountingError
from accounting.plan.queries import QueryPlan
from accounting.plan.schemes import Composition, Scheme
from accounting.units import Definition, Level
from accounting.values import (
    check_choice,
    check_count,
    check_delta,
    check_order,
    check_orders,
    check_positive,
    check_word,
    rounded_up,
)

Estimator = Literal["student-t", "betting", "band", "bernstein"]
# How a classical limit is kept. fixed-plan: by counting the steps of a plan whose whole loss is within it.
# gaussian-filter: by a sum of squares, where all records are in every round. renyi-order: at one Rényi order.
Enforcement = Literal["fixed-plan", "gaussian-filter", "renyi-order"]
# Below it a histogram's noise has too few whole numbers to its deviation: its loss is then known as a Rényi divergence
# alone (`unsampled.LEAST_GRID_STD`).
LEAST_HISTOGRAM_STD = 8.0
# Estimators that never fall when one value of the sample rises.
MONOTONE: frozenset[Estimator] = frozenset({"betting", "band"})


class PlanError(AccountingError, ValueError):
    """A plan that cannot begin. `field` names what to change, until a caller puts its reader's name in its place."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field, self.reason = field, reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class FirstRoundOverspends(PlanError):
    """Not even one round fits. The noise multipliers that would fit one round and all steps.

    noise_max_steps  None where no noise multiplier is enough, because histograms are published with noise of their own
    """

    def __init__(self, limit: LimitPlan, one_round: float, all_steps: float | None) -> None:
        none = "none for all steps (max_steps): publish fewer histograms or raise their noise"
        whole = none if all_steps is None else f"{all_steps:g} for all steps (max_steps)"
        super().__init__(
            "noise_multiplier",
            f"the first round alone could pass the {limit.definition} limit at level {limit.level}: a noise multiplier "
            f"of {one_round:g} is enough for one round, {whole}. `wardround plan --solve noise` finds the least "
            "noise with the best order",
        )
        self.noise_one_round = one_round
        self.noise_max_steps = all_steps


class WholePlanOverspends(PlanError):
    """The fixed plan spends more than its limit. No part of it may begin.

    epsilon  of the whole plan
    steps    most noised steps whose loss is within the limit. 0: not even one round
    noise    least noise multiplier for all steps, rounded up to three digits. None: none would be enough
    """

    def __init__(
        self,
        limit: LimitPlan,
        epsilon: float,
        planned: int,
        steps: int,
        noise: float | None,
        *,
        has_share: bool = False,
    ) -> None:
        steps_in_words = {0: "not even one round fits", 1: "at most 1 step fits (max_steps)"}
        fitting = steps_in_words.get(steps, f"at most {steps} steps fit (max_steps)")
        more = "and no noise is enough for all steps"
        if noise is not None:
            enough = f"a noise multiplier of {noise:g} is enough for all steps. `wardround plan --solve noise` finds it"
            more = f"{'or' if steps else 'and'} {enough}"
        smaller = ". A smaller share for questions (statistics.share) leaves more for training" if has_share else ""
        super().__init__(
            "max_steps",
            f"the whole plan of {planned} steps spends ε = {rounded_up(epsilon, 4):g} at level {limit.level}, above "
            f"its limit {limit.epsilon:g}: {fitting}, {more}{smaller}. "
            'Where max_steps is no plan but only a bound, set enforcement = "renyi-order"',
        )
        self.epsilon, self.steps, self.noise = epsilon, steps, noise


@dataclass(frozen=True)
class LimitPlan:
    """Never more than (epsilon, delta) in this definition. `estimator_failure_probability` is a Bayesian delta's γ.

    enforcement  how a classical limit is kept. None: at one Rényi order, as in plans written before there was a choice,
                 and for Bayesian limits, which know no other way

    Raises PlanError, InvalidArgument.
    """

    level: Level
    definition: Definition
    epsilon: float
    delta: float
    estimator_failure_probability: float | None
    enforcement: Enforcement | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_word("level", Level, self.level))
        object.__setattr__(self, "definition", check_word("definition", Definition, self.definition))
        if self.definition not in (Definition.CLASSICAL, Definition.BAYESIAN):
            raise PlanError("definition", f"no budget is kept in the definition {self.definition}")
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        failure = self.estimator_failure_probability
        # Only an estimate can fail. A γ beside a classical limit would be δ that nobody spends.
        if (failure is not None) != (self.definition is Definition.BAYESIAN):
            raise PlanError("estimator_failure_probability", "Bayesian limits have one, classical limits none")
        if failure is not None and check_delta(failure, "estimator_failure_probability") >= self.delta:
            raise PlanError(
                "estimator_failure_probability", "must be below delta, or nothing is left for the privacy loss itself"
            )
        if self.enforcement is not None:
            check_choice("enforcement", self.enforcement, get_args(Enforcement))
            if self.definition is Definition.BAYESIAN:
                raise PlanError("enforcement", "is of classical limits: a Bayesian one is kept at its filter_order")

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Out of plain JSON values. Raises TypeError, InvalidArgument, PlanError: they are none."""
        return cls(**value)


@dataclass(frozen=True)
class BayesianPlan:
    """How Bayesian costs are estimated, composed and converted.

    sample  whose records are measured: members of the study, or records held out since before round 1
    """

    orders: tuple[float, ...]
    filter_order: float
    estimator: Estimator
    composition: Composition
    adversary: Literal["path", "adaptive"]
    conversion: Literal["improved", "chernoff"]
    sample: Literal["members", "held-out"] = "members"

    def __post_init__(self) -> None:
        check_orders(self.orders)
        check_choice("sample", self.sample, ("members", "held-out"))
        check_order("filter_order", self.filter_order)
        check_choice("estimator", self.estimator, get_args(Estimator))
        check_choice("composition", self.composition, ("holder", "running"))
        check_choice("adversary", self.adversary, ("path", "adaptive"))
        check_choice("conversion", self.conversion, ("improved", "chernoff"))


@dataclass(frozen=True)
class HistogramRelease:
    """Disclosure `noised`: every round whose number is a multiple of `every` publishes a histogram.

    std  standard deviation of the discrete Gaussian noise that is sure to be on each of its counts
    """

    std: float
    every: int

    def __post_init__(self) -> None:
        check_positive("std", self.std)
        check_count("every", self.every)

    def due(self, round_number: int) -> bool:
        """Whether round number `round_number` publishes one."""
        return round_number % self.every == 0


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
    levels = {level for level, _ in kinds}
    if not levels.issubset(scheme.levels):
        raise PlanError(
            "limits", f"scheme {scheme.display_name} bounds the {' and the '.join(scheme.levels)} level only"
        )
    if not levels or any((level, Definition.CLASSICAL) not in kinds for level in levels):
        raise PlanError(
            "limits", "every level needs a classical limit, for the people whom the Bayesian bound does not cover"
        )
    _require_bayesian(scheme, {definition for _, definition in kinds}, bayesian)


def _require_bayesian(scheme: Scheme, definitions: Container[Definition], bayesian: BayesianPlan | None) -> None:
    if (Definition.BAYESIAN in definitions) != (bayesian is not None):
        raise PlanError("bayesian", "a Bayesian limit and the section `bayesian` come together")
    if bayesian is None:
        return
    if bayesian.composition not in scheme.compositions:
        raise PlanError(
            "composition",
            "running sums need the same accounting sample in every round: "
            f"scheme {scheme.display_name} needs composition holder",
        )
    if bayesian.sample == "held-out" and Level.INSTANCE not in scheme.levels:
        raise PlanError(
            "sample", f"scheme {scheme.display_name} measures clients, but records are held out at instance level"
        )


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
            f"scheme {scheme.display_name} with disclosure `noised` has no Bayesian limit at instance level: "
            "a hospital that is zeroed out may move all counts of its accounting sample. 100 records at std 10 would "
            "cost the client level ε = 159 a histogram (δ = 1e-5), and ε = 1 takes std 528, "
            "which hides the accounting sample",
        )
    if bayesian.composition != "running":
        raise PlanError(
            "composition", "noised at instance level reads running sums: Hölder's would need a histogram a step"
        )


def require_queries(
    scheme: Scheme, limits: Sequence[LimitPlan], queries: QueryPlan, bayesian: BayesianPlan | None
) -> None:
    """Whether a study that trains in this scheme can have these queries, too.

    Raises:
        PlanError: the first rule that says no.
    """
    if Level.CLIENT in scheme.levels:
        raise PlanError(
            "queries",
            f"scheme {scheme.display_name} protects whole hospitals, and a query counts patients: one hospital's part "
            "of its sum has no bound that noise could hide. Use scheme parallel or sequential, or a study of queries "
            "alone",
        )
    against_a_path = bayesian is not None and bayesian.adversary == "path"
    if queries.allowance is not None and not against_a_path:
        raise PlanError("allowance", "belongs to a Bayesian limit with adversary path")
    if against_a_path and (queries.allowance is None) == (queries.share is None):
        raise PlanError(
            "share",
            "or else allowance (not both) is needed beside a Bayesian limit with adversary path, which carries it "
            "whole from round 1: there a question may not depend on an answer",
        )
    _require_share(queries, fixed=any(limit.enforcement == "fixed-plan" for limit in limits), is_path=against_a_path)


def _require_share(queries: QueryPlan, *, fixed: bool, is_path: bool) -> None:
    if fixed and queries.share is None and queries.evaluation is None:
        raise PlanError(
            "share",
            "is missing: a fixed plan says beforehand which part of the limit questions on all patients may use, such "
            "as statistics.share = 0.2",
        )
    if queries.share is not None and not (fixed or is_path):
        raise PlanError(
            "share", 'belongs to a limit with enforcement = "fixed-plan", or a Bayesian one with adversary path'
        )
