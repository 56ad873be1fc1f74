"""What a budget must know beforehand: the scheme, the noise, max_steps, the limits. Public and fixed before round 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from accounting.errors import InvalidArgument
from accounting.plan.limits import (
    BayesianPlan,
    LimitPlan,
    PlanError,
    limit_among,
    require_limits,
    require_release,
)
from accounting.plan.mechanism import HistogramRelease, Mechanism, total_noise
from accounting.plan.schemes import SCHEMES, Credit, Protection, Scheme, SchemeName
from accounting.units import Definition, Level, Observer, check_choice, check_count, check_positive, check_rate


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
        for name in ("clip_norm", "noise_multiplier", "sampling_rate", "classical_order"):
            check_positive(name, getattr(self, name))
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
            check_positive("client_clip_norm", self.client_clip_norm)
        if check_count("honest_survivors", self.honest_survivors) > 1 and not rules.pooled:
            raise PlanError("honest_survivors", f"scheme {self.scheme} relies on one adder of noise")
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
        if self.client_clip_norm is not None and protection is not self.rules.protects[0]:
            clip = self.client_clip_norm
        rate = 1.0 if protection.credit is Credit.NONE else self.sampling_rate
        return Mechanism(clip, std, rate, self.steps_per_round, protection.relation)

    def limit(self, level: Level, definition: Definition) -> LimitPlan | None:
        """The limit of this level and definition, if the study has it."""
        return limit_among(self.limits, level, definition)

    @property
    def rounds(self) -> int:
        """Most rounds within max_steps."""
        return self.max_steps // self.steps_per_round

    def publishes(self, round: int) -> bool:
        """Whether this round publishes a noised histogram."""
        return self.release is not None and self.release.due(round)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what the ledger's first entry holds."""
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
