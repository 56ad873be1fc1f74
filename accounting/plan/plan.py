"""The plan of a budget: the scheme, the noise, max_steps, the limits. Public and fixed before round 1.

The faults of a plan that cannot begin are here too, and one noised step of it as one level sees it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from accounting.errors import InvalidArgument
from accounting.plan.limits import (
    LEAST_HISTOGRAM_STD,
    BayesianPlan,
    HistogramRelease,
    LimitPlan,
    PlanError,
    limit_among,
    require_limits,
    require_queries,
    require_release,
)
from accounting.plan.queries import QueryPlan
from accounting.plan.schedule import NoiseStage, first_rounds, require_schedule, stage_of
from accounting.plan.schemes import TRAINING_SCHEMES, Credit, Protection, Scheme, SchemeName
from accounting.units import Definition, Level, Observer, Relation
from accounting.values import (
    check_array,
    check_choice,
    check_count,
    check_instance,
    check_instances,
    check_order,
    check_positive,
    check_rate,
    check_word,
)

# Of clip norms and noise multipliers.
_LARGEST = 1e50
MOST_SURVIVORS = 1_000_000


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

    clip_norm         L2 bound on one record's gradient, or on one client's update where whole updates are clipped
    client_clip_norm  scheme joint: L2 bound on one client's whole sum before its noise
    noise_multiplier  standard deviation of one adder's noise / clip_norm, or of all noise where clients add shares of
                      it
    honest_survivors  survivors in every sum that do not collude, each with its noise (sequential, joint) or its share
                      (client-distributed). Else 1
    sampling_rate     Poisson rate that is credited: of clients in scheme client, of records otherwise. 1: none is
    steps_per_round   noised steps in a round
    max_steps         most of them over the study
    classical_order   the one order at which the classical limits are enforced
    disclosure        plain: settled costs are seen and acted on. noised: their noised histograms are. at-end: only
                      worst cases are, until the end
    observer          against whom the certificates hold
    queries           what the study allows of queries. None: it has none
    noise_schedule    stages of rounds, each with a factor on noise_multiplier, in a frozen order. None: equal steps

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
    queries: QueryPlan | None = None
    noise_schedule: tuple[NoiseStage, ...] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        check_choice("scheme", self.scheme, tuple(TRAINING_SCHEMES))
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
        self._check_schedule()
        for limit in self.limits:
            self._check_enforcement(limit)

    def _check_types(self) -> None:
        # As tuples: a plan is a value, which can be compared and looked up.
        object.__setattr__(self, "limits", check_instances("limits", LimitPlan, self.limits))
        object.__setattr__(self, "observer", check_word("observer", Observer, self.observer))
        if self.noise_schedule is not None:
            stages = check_instances("noise_schedule", NoiseStage, self.noise_schedule)
            object.__setattr__(self, "noise_schedule", stages)
        for name, kind in (("bayesian", BayesianPlan), ("release", HistogramRelease), ("queries", QueryPlan)):
            if (part := getattr(self, name)) is not None:
                check_instance(name, kind, part)

    def _check_scheme(self) -> None:
        rules = self.rules
        if (self.client_clip_norm is not None) != rules.bounds_clients_too:
            raise PlanError("client_clip_norm", "belongs to scheme joint, which needs it")
        if self.client_clip_norm is not None:
            _require_moderate("client_clip_norm", self.client_clip_norm)
        if check_count("honest_survivors", self.honest_survivors, maximum=MOST_SURVIVORS) > 1 and not rules.pooled:
            raise PlanError("honest_survivors", f"scheme {self.scheme} relies on one adder of noise")
        # In later steps a client's records already stand in its own weights, under its own noise alone.
        if rules.pooled and self.steps_per_round != 1:
            raise PlanError("steps_per_round", "the noise of others helps in one noisy step a round only")
        require_limits(rules, self.limits, self.bayesian)
        if (self.release is not None) != (self.disclosure == "noised"):
            raise PlanError("release", "comes together with disclosure noised")
        if self.release is not None:
            require_release(rules, self.limits, self.bayesian)
        if self.queries is not None:
            require_queries(rules, self.limits, self.queries, self.bayesian)

    def _check_schedule(self) -> None:
        if self.noise_schedule is None:
            return
        require_schedule(self.noise_schedule, rounds=self.rounds, estimates=self.bayesian is not None)
        for stage in range(len(self.noise_schedule)):
            _require_moderate("noise_schedule", self.noise_of(stage))

    def _check_enforcement(self, limit: LimitPlan) -> None:
        # Against those who see who was drawn, no rate is credited: `mechanism` knows.
        if limit.enforcement == "gaussian-filter" and self.mechanism(limit.level).sampling_rate < 1:
            raise PlanError(
                "enforcement",
                f"gaussian-filter needs all records in every round, and level {limit.level} is sampled: set fixed-plan",
            )
        min_std = LEAST_HISTOGRAM_STD
        if limit.enforcement in (None, "renyi-order") or self.release is None or self.release.std >= min_std:
            return
        raise PlanError(
            "enforcement",
            f"{limit.enforcement} needs histogram_noise.std of at least {min_std:g}: take renyi-order or more",
        )

    @property
    def rules(self) -> Scheme:
        """Return the rules of the scheme."""
        return TRAINING_SCHEMES[self.scheme]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels this scheme protects. Any other one is unbounded."""
        return self.rules.levels

    def protection(self, level: Level) -> Protection:
        """Return what the scheme promises `level`.

        Raises:
            PlanError: it promises no protection.
        """
        protection = self.rules.protection(level)
        if protection is None:
            raise PlanError("level", f"scheme {self.scheme} does not protect level {level}")
        return protection

    @property
    def stages(self) -> tuple[NoiseStage, ...]:
        """The stages of the noise schedule. Equal steps are one stage."""
        return (NoiseStage(max(1, self.rounds), 1.0),) if self.noise_schedule is None else self.noise_schedule

    def stage_of(self, attempt: int) -> int:
        """Return the place of the stage that attempt 1, 2, … of a round belongs to."""
        return 0 if self.noise_schedule is None else stage_of(self.noise_schedule, attempt)

    def first_rounds(self, rounds: int) -> tuple[int, ...]:
        """Return how many of the first rounds belong to each stage."""
        return first_rounds(self.stages, rounds)

    def noise_of(self, stage: int) -> float:
        """Return the noise multiplier of a stage."""
        factor = 1.0 if self.noise_schedule is None else self.noise_schedule[stage].factor
        return self.noise_multiplier * factor

    def mechanism(self, level: Level, stage: int = 0) -> Mechanism:
        """One noised step of this scheme, in this stage of its schedule, as `level` sees it.

        Raises:
            PlanError: the scheme does not protect this level.
        """
        protection = self.protection(level)
        std = self.noise_of(stage) * self.clip_norm
        if self.adders > 1:
            std = total_noise([std] * self.adders)
        clip = self.clip_norm
        # The noise multiplier is of the first level's clip norm. The second level has a clip norm of its own.
        if self.client_clip_norm is not None and protection is not self.rules.protects[0]:
            clip = self.client_clip_norm
        # Who takes part is seen, so that no sampling hides anybody.
        rate = 1.0 if protection.credit is Credit.NONE else self.sampling_rate
        return Mechanism(clip, std, rate, self.steps_per_round, protection.relation)

    def least_noised(self, level: Level) -> Mechanism:
        """One noised step as `level` sees it, with the least noise of all stages. Raises as `mechanism`."""
        steps = (self.mechanism(level, stage) for stage in range(len(self.stages)))
        return min(steps, key=lambda step: step.noise_std)

    @property
    def adders(self) -> int:
        """How many noises of `noise_multiplier` are sure to be in every sum."""
        return 1 if self.rules.divides_noise else self.honest_survivors

    def limit(self, level: Level, definition: Definition) -> LimitPlan | None:
        """The limit of this level and definition, if the study has it."""
        return limit_among(self.limits, level, definition)

    @property
    def rounds(self) -> int:
        """Most rounds within max_steps."""
        return self.max_steps // self.steps_per_round

    def published_by(self, round_number: int) -> int:
        """How many noised histograms the first rounds publish, this one included."""
        return 0 if self.release is None else round_number // self.release.every

    def publishes(self, round_number: int) -> bool:
        """Whether this round publishes a noised histogram."""
        return self.release is not None and self.release.due(round_number)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what the ledger's first entry holds."""
        return plan_to_json(asdict(self))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`.

        Raises:
            InvalidArgument, PlanError: a field is missing or wrong.
        """
        try:
            fields: dict[str, Any] = dict(value)
            fields["limits"] = tuple(LimitPlan.from_dict(item) for item in fields["limits"])
            if fields["bayesian"] is not None:
                bayesian: dict[str, Any] = {**fields["bayesian"], "orders": tuple(fields["bayesian"]["orders"])}
                fields["bayesian"] = BayesianPlan(**bayesian)
            if fields["release"] is not None:
                fields["release"] = HistogramRelease(**fields["release"])
            if fields["queries"] is not None:
                fields["queries"] = QueryPlan.from_dict(fields["queries"])
            if fields.get("noise_schedule") is not None:
                fields["noise_schedule"] = tuple(map(NoiseStage.from_dict, fields["noise_schedule"]))
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise InvalidArgument("plan", f"is not a plan: {error}") from error


def plan_to_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON values of a plan's fields. Later ones are left out where they are unset: old plans stay as written."""
    # Through JSON, so that it equals what is read back: tuples become lists, enums their text.
    plan: dict[str, Any] = json.loads(json.dumps(fields))
    sections: list[tuple[dict[str, Any], str]] = [(limit, "enforcement") for limit in plan["limits"]]
    if plan["queries"] is not None:
        sections.append((plan["queries"], "share"))
    for section, name in [*sections, (plan, "noise_schedule")]:
        if section.get(name) is None:
            section.pop(name, None)
    return plan


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
