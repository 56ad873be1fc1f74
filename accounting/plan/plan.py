"""What a budget must know beforehand: the scheme, the noise, max_steps, the limits. Public and fixed before round 1.

What is wrong with a plan that cannot begin is here too, and one noised step of it as one level sees it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from accounting.errors import AccountingError, InvalidArgument
from accounting.plan.schemes import SCHEMES, Composition, Credit, Protection, Scheme, SchemeName
from accounting.units import Definition, Level, Observer, Relation
from accounting.values import (
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_order,
    check_orders,
    check_positive,
    check_rate,
)

# Of clip norms and noise multipliers.
_LARGEST = 1e50


class PlanError(AccountingError, ValueError):
    """A plan that cannot begin; `field` names what to change."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class FirstRoundOverspends(PlanError):
    """Not even one round fits. The noise multipliers that would fit one round and all steps.

    noise_max_steps  None where no noise multiplier is enough, because histograms are published with noise of their own
    """

    def __init__(self, limit: LimitPlan, one_round: float, all_steps: float | None) -> None:
        none = "none for all steps (max_steps): publish fewer histograms or noise them more"
        whole = none if all_steps is None else f"{all_steps:g} for all steps (max_steps)"
        super().__init__(
            "noise_multiplier",
            f"the first round alone could pass the {limit.definition} limit at level {limit.level}: a noise multiplier "
            f"of {one_round:g} is enough for one round, {whole}; `wardround plan --solve noise` finds the least with "
            "the best order",
        )
        self.noise_one_round = one_round
        self.noise_max_steps = all_steps


@dataclass(frozen=True)
class LimitPlan:
    """Never more than (epsilon, delta) in this definition; `estimator_failure_probability` is a Bayesian delta's γ.

    Raises PlanError, InvalidArgument.
    """

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
        # Only an estimate can fail; a γ beside a classical limit would be δ that nobody spends.
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
        check_order("filter_order", self.filter_order)
        check_choice("estimator", self.estimator, ("student-t", "betting", "band", "bernstein"))
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

    def due(self, round: int) -> bool:
        """Whether round number `round` publishes one."""
        return round % self.every == 0


@dataclass(frozen=True)
class Mechanism:
    """One noised step as one level sees it.

    clip_norm      L2 norm of what one neighbour can change
    noise_std      standard deviation of the noise that is sure to be there, on the same scale
    sampling_rate  Poisson rate that is credited
    """

    clip_norm: float
    noise_std: float
    sampling_rate: float
    steps_per_round: int
    relation: Relation

    @property
    def noise_multiplier(self) -> float:
        """noise_std / clip_norm, rounded down."""
        return math.nextafter(self.noise_std / self.clip_norm, 0.0)


@dataclass(frozen=True)
class Plan:
    """One study as its budget sees it.

    clip_norm         L2 bound on one record's gradient; in scheme client on one client's update
    client_clip_norm  scheme joint: L2 bound on one client's whole sum before its noise
    noise_multiplier  standard deviation of one adder's noise / clip_norm
    honest_survivors  survivors in every sum that do not collude, each with its noise (sequential, joint); else 1
    sampling_rate     Poisson rate that is credited: of clients in scheme client, of records otherwise
    steps_per_round   noised steps in a round;  max_steps: most of them over the study
    classical_order   the one order at which the classical limits are enforced
    disclosure        plain: settled costs are seen and acted on; noised: their noised histograms are; at-end: only
                      worst cases are, until the end
    observer          against whom the certificates hold

    Raises PlanError for settings that do not fit together, InvalidArgument for a value that is wrong by itself.
    """

    scheme: SchemeName
    limits: tuple[LimitPlan, ...]
    clip_norm: float
    client_clip_norm: float | None
    noise_multiplier: float
    honest_survivors: int
    sampling_rate: float
    steps_per_round: int
    max_steps: int
    classical_order: float
    bayesian: BayesianPlan | None
    disclosure: Literal["plain", "noised", "at-end"]
    release: HistogramRelease | None
    observer: Observer

    def __post_init__(self) -> None:
        check_choice("scheme", self.scheme, tuple(SCHEMES))
        check_choice("disclosure", self.disclosure, ("plain", "noised", "at-end"))
        for name in ("clip_norm", "noise_multiplier"):
            _require_moderate(name, getattr(self, name))
        check_positive("sampling_rate", self.sampling_rate)
        check_order("classical_order", self.classical_order)
        check_rate("sampling_rate", self.sampling_rate)
        check_count("steps_per_round", self.steps_per_round)
        if check_count("max_steps", self.max_steps) < self.steps_per_round:
            raise PlanError("max_steps", "is shorter than one round")
        self._check_scheme()

    def _check_scheme(self) -> None:
        rules = self.rules
        if (self.client_clip_norm is not None) != rules.bounds_clients_too:
            raise PlanError("client_clip_norm", "belongs to scheme joint, which needs it")
        if self.client_clip_norm is not None:
            _require_moderate("client_clip_norm", self.client_clip_norm)
        if check_count("honest_survivors", self.honest_survivors) > 1 and not rules.pooled:
            raise PlanError("honest_survivors", f"scheme {self.scheme} relies on one adder of noise")
        # In later steps a client's records already stand in its own weights, under its own noise alone.
        if rules.pooled and self.steps_per_round != 1:
            raise PlanError("steps_per_round", "the noise of others helps in one noisy step a round only")
        require_limits(rules, self.limits, self.bayesian)
        if (self.release is not None) != (self.disclosure == "noised"):
            raise PlanError("release", "comes together with disclosure noised")
        if self.release is not None:
            require_release(rules, self.limits, self.bayesian)

    @property
    def rules(self) -> Scheme:
        """What the scheme says of itself."""
        return SCHEMES[self.scheme]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels this scheme protects; any other one is unbounded."""
        return self.rules.levels

    def protection(self, level: Level) -> Protection:
        """What the scheme promises `level`.

        Raises:
            PlanError: nothing.
        """
        protection = self.rules.protection(level)
        if protection is None:
            raise PlanError("level", f"scheme {self.scheme} does not protect level {level}")
        return protection

    def mechanism(self, level: Level) -> Mechanism:
        """One noised step of this scheme as `level` sees it.

        Raises:
            PlanError: the scheme does not protect this level.
        """
        protection = self.protection(level)
        std = self.noise_multiplier * self.clip_norm
        if self.honest_survivors > 1:
            std = total_noise([std] * self.honest_survivors)
        clip = self.clip_norm
        # The noise multiplier is of the first level's clip norm; the second level has a clip norm of its own.
        if self.client_clip_norm is not None and protection is not self.rules.protects[0]:
            clip = self.client_clip_norm
        # Who takes part is seen, so that no sampling hides anybody.
        rate = 1.0 if protection.credit is Credit.NONE else self.sampling_rate
        return Mechanism(clip, std, rate, self.steps_per_round, protection.relation)

    def limit(self, level: Level, definition: Definition) -> LimitPlan | None:
        """The limit of this level and definition, if the study has it."""
        return limit_among(self.limits, level, definition)

    @property
    def rounds(self) -> int:
        """Most rounds within max_steps."""
        return self.max_steps // self.steps_per_round

    def published_by(self, round: int) -> int:
        """How many noised histograms the first rounds publish, this one included."""
        return 0 if self.release is None else round // self.release.every

    def publishes(self, round: int) -> bool:
        """Whether this round publishes a noised histogram."""
        return self.release is not None and self.release.due(round)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what the ledger's first entry holds."""
        # Through JSON, so that it equals what is read back: tuples become lists, enums their text.
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`.

        Raises:
            InvalidArgument, PlanError: a field is missing or wrong.
        """
        try:
            fields: dict[str, Any] = dict(value)
            fields["limits"] = tuple(_limit(item) for item in fields["limits"])
            if fields["bayesian"] is not None:
                bayesian: dict[str, Any] = {**fields["bayesian"], "orders": tuple(fields["bayesian"]["orders"])}
                fields["bayesian"] = BayesianPlan(**bayesian)
            if fields["release"] is not None:
                fields["release"] = HistogramRelease(**fields["release"])
            fields["observer"] = Observer(fields["observer"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise InvalidArgument("plan", f"is not a plan: {error}") from error


def _limit(value: Mapping[str, Any]) -> LimitPlan:
    fields: dict[str, Any] = {**value, "level": Level(value["level"]), "definition": Definition(value["definition"])}
    return LimitPlan(**fields)


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
            "limits", "every level needs a classical limit, for the people whom the Bayesian bound does not cover"
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


def _require_moderate(name: str, value: float) -> None:
    # Products, and squares of products, of two such numbers keep all their digits: an infinity, or what is left of a
    # number near the smallest float, would be more noise than anybody adds.
    if not 1 / _LARGEST <= check_positive(name, value) <= _LARGEST:
        raise PlanError(name, f"must be between {1 / _LARGEST:g} and {_LARGEST:g}, not {value!r}")


def total_noise(noise_stds: Sequence[float]) -> float:
    """√Σ s_j², rounded down: the noise of independent shares. Raises InvalidArgument."""
    shares = check_array("noise_stds", noise_stds)
    if bool((shares <= 0).any()):
        raise InvalidArgument("noise_stds", "every share must be > 0")
    # 1e-15 covers the roundings of squares, sum and root.
    return math.sqrt(math.fsum(float(share) ** 2 for share in shares)) * (1 - 1e-15)
