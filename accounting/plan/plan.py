"""What a budget must know beforehand: mechanism, most steps (max_steps), limits. Public and fixed before round 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, cast

from accounting.errors import AccountingError, InvalidArgument
from accounting.mechanisms.composition import total_noise
from accounting.units import (
    Definition,
    Level,
    Observer,
    Relation,
    check_choice,
    check_count,
    check_delta,
    check_orders,
    check_positive,
    check_rate,
)

Scheme = Literal["client", "sequential", "parallel", "joint"]
PROTECTS: dict[str, tuple[Level, ...]] = {
    "client": (Level.CLIENT,),
    "sequential": (Level.INSTANCE,),
    "parallel": (Level.INSTANCE,),
    "joint": (Level.INSTANCE, Level.CLIENT),
}


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
        if (self.estimator_failure_probability is not None) != (self.definition is Definition.BAYESIAN):
            raise PlanError("estimator_failure_probability", "Bayesian limits have one, classical limits none")
        if (
            self.estimator_failure_probability is not None
            and check_delta(self.estimator_failure_probability, "estimator_failure_probability") >= self.delta
        ):
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
    composition: Literal["holder", "running"]
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
    """

    scheme: Scheme
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
        check_choice("scheme", self.scheme, tuple(PROTECTS))
        check_choice("disclosure", self.disclosure, ("plain", "noised", "at-end"))
        for name in ("clip_norm", "noise_multiplier", "sampling_rate", "classical_order"):
            check_positive(name, getattr(self, name))
        check_rate("sampling_rate", self.sampling_rate)
        check_count("steps_per_round", self.steps_per_round)
        if check_count("max_steps", self.max_steps) < self.steps_per_round:
            raise PlanError("max_steps", "is shorter than one round")
        self._check_scheme()
        self._check_limits()

    def _check_scheme(self) -> None:
        if (self.client_clip_norm is not None) != (self.scheme == "joint"):
            raise PlanError("client_clip_norm", "belongs to scheme joint, which needs it")
        if self.client_clip_norm is not None:
            check_positive("client_clip_norm", self.client_clip_norm)
        if check_count("honest_survivors", self.honest_survivors) > 1 and self.scheme not in ("sequential", "joint"):
            raise PlanError("honest_survivors", f"scheme {self.scheme} relies on one adder of noise")
        if self.scheme in ("sequential", "joint") and self.steps_per_round != 1:
            raise PlanError("steps_per_round", "the noise of others helps in one noisy step a round only")
        if (self.release is not None) != (self.disclosure == "noised"):
            raise PlanError("release", "comes together with disclosure noised")
        if self.release is not None and self.bayesian is None:
            raise PlanError("release", "without a Bayesian limit there is nothing to publish")
        self._check_release()

    def _check_release(self) -> None:
        if self.bayesian is not None and self.bayesian.sample == "held-out" and self.scheme == "client":
            raise PlanError("sample", "scheme client measures clients; records are held out at instance level")
        if self.release is None or self.bayesian is None:
            return
        records = any((x.level, x.definition) == (Level.INSTANCE, Definition.BAYESIAN) for x in self.limits)
        if self.scheme == "joint" and records:
            raise PlanError("release", "a histogram of records would cost the client level its whole accounting sample")
        if records and self.bayesian.composition != "running":
            raise PlanError("composition", "a histogram of running sums is what is published: composition running")

    def _check_limits(self) -> None:
        kinds = [(limit.level, limit.definition) for limit in self.limits]
        if len(set(kinds)) != len(kinds):
            raise PlanError("limits", "at most one per level and definition")
        if any(level not in self.levels for level, _ in kinds):
            raise PlanError("limits", f"scheme {self.scheme} does not bound every level named")
        for level in {level for level, _ in kinds}:
            if (level, Definition.CLASSICAL) not in kinds:
                raise PlanError("limits", f"a classical limit is missing at level {level}")
        if not kinds:
            raise PlanError("limits", "a classical limit is missing")
        if any(definition is Definition.BAYESIAN for _, definition in kinds) != (self.bayesian is not None):
            raise PlanError("bayesian", "comes together with a Bayesian limit")

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels this scheme protects; any other one is unbounded."""
        return PROTECTS[self.scheme]

    def mechanism(self, level: Level) -> Mechanism:
        """One noised step of this scheme as `level` sees it.

        Raises:
            PlanError: the scheme does not protect this level.
        """
        if level not in self.levels:
            raise PlanError("level", f"scheme {self.scheme} does not protect level {level}")
        std = self.noise_multiplier * self.clip_norm
        if self.honest_survivors > 1:
            std = total_noise([std] * self.honest_survivors)
        if self.scheme == "joint" and level is Level.CLIENT and self.client_clip_norm is not None:
            # Who takes part is seen, and a client that takes part always adds its noise: no sampling, zero-out.
            return Mechanism(self.client_clip_norm, std, 1.0, 1, Relation.ZERO_OUT)
        return Mechanism(self.clip_norm, std, self.sampling_rate, self.steps_per_round, Relation.ADD_REMOVE)

    @property
    def release_sensitivity(self) -> float:
        """L2 norm of what one neighbour changes in the counts of a published histogram, rounded up.

        Scheme client: a client adds one count. Elsewhere a count leaves one bin for another: a record of a hospital's
        accounting sample; in scheme joint the hospital itself, whether its signal is zeroed out or a record changes it.
        """
        return 1.0 if self.scheme == "client" else math.nextafter(math.sqrt(2.0), 2.0)

    def publishes(self, round: int) -> bool:
        """Whether this round publishes a noised histogram."""
        return self.release is not None and self.release.due(round)

    def to_dict(self) -> dict[str, Any]:
        return cast("dict[str, Any]", _jsonable(asdict(self)))

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


def _jsonable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, tuple | list):
        return [_jsonable(item) for item in cast("tuple[object, ...]", value)]
    return str(value) if isinstance(value, Level | Definition | Observer) else value
