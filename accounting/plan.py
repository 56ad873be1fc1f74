"""What a budget must know beforehand: the mechanism, the horizon, the limits. Public and fixed before round 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, cast

from accounting.errors import AccountingError, InvalidArgument
from accounting.units import (
    Level,
    Notion,
    Observer,
    check_choice,
    check_count,
    check_delta,
    check_orders,
    check_positive,
    check_rate,
)

Scheme = Literal["client", "parallel"]
PROTECTS: dict[str, Level] = {"client": Level.CLIENT, "parallel": Level.INSTANCE}


class PlanError(AccountingError, ValueError):
    """A plan that cannot begin; `field` names what to change."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class FirstRoundOverspends(PlanError):
    """Not even one round fits. The noise multipliers that would fit one round and the whole horizon."""

    def __init__(self, limit: LimitPlan, one_round: float, whole_horizon: float) -> None:
        super().__init__(
            "noise_multiplier",
            f"the first round alone could pass the {limit.notion} limit at level {limit.level}: a noise multiplier of "
            f"{one_round:g} lets one round begin, {whole_horizon:g} the whole horizon",
        )
        self.noise_one_round = one_round
        self.noise_horizon = whole_horizon


@dataclass(frozen=True)
class LimitPlan:
    """Never more than (epsilon, delta) in this notion; `failure` is the γ inside a Bayesian delta."""

    level: Level
    notion: Notion
    epsilon: float
    delta: float
    failure: float | None

    def __post_init__(self) -> None:
        if self.notion not in (Notion.CLASSICAL, Notion.BAYESIAN):
            raise PlanError("notion", f"no budget is kept in the notion {self.notion}")
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        if (self.failure is not None) != (self.notion is Notion.BAYESIAN):
            raise PlanError("failure", "Bayesian limits have one, classical limits none")
        if self.failure is not None and check_delta(self.failure, "failure") >= self.delta:
            raise PlanError("failure", "must be below delta, or nothing is left for the privacy loss itself")


@dataclass(frozen=True)
class BayesianPlan:
    """How Bayesian costs are estimated, composed and converted."""

    orders: tuple[float, ...]
    filter_order: float
    estimator: Literal["student-t", "betting", "band", "bernstein"]
    composition: Literal["holder", "running"]
    adversary: Literal["path", "adaptive"]
    conversion: Literal["improved", "chernoff"]

    def __post_init__(self) -> None:
        check_orders(self.orders)
        check_positive("filter_order", self.filter_order)
        check_choice("estimator", self.estimator, ("student-t", "betting", "band", "bernstein"))
        check_choice("composition", self.composition, ("holder", "running"))
        check_choice("adversary", self.adversary, ("path", "adaptive"))
        check_choice("conversion", self.conversion, ("improved", "chernoff"))


@dataclass(frozen=True)
class Plan:
    """One study as its budget sees it.

    clip_norm        L2 sensitivity of the sum that gets noise
    noise_multiplier noise standard deviation / clip_norm
    sampling_rate    Poisson rate that is credited at the protected level
    steps_per_round  noised steps in a round;  horizon: most of them over the study
    classical_order  the one order at which the classical limit is enforced
    disclosure       plain: settled costs are seen and acted on; public: only worst-case costs are, until the end
    observer         against whom the certificates hold
    """

    scheme: Scheme
    limits: tuple[LimitPlan, ...]
    clip_norm: float
    noise_multiplier: float
    sampling_rate: float
    steps_per_round: int
    horizon: int
    classical_order: float
    bayesian: BayesianPlan | None
    disclosure: Literal["plain", "public"]
    observer: Observer

    def __post_init__(self) -> None:
        check_choice("scheme", self.scheme, tuple(PROTECTS))
        check_choice("disclosure", self.disclosure, ("plain", "public"))
        for name in ("clip_norm", "noise_multiplier", "sampling_rate", "classical_order"):
            check_positive(name, getattr(self, name))
        check_rate("sampling_rate", self.sampling_rate)
        check_count("steps_per_round", self.steps_per_round)
        if check_count("horizon", self.horizon) < self.steps_per_round:
            raise PlanError("horizon", "is shorter than one round")
        self._check_limits()

    def _check_limits(self) -> None:
        kinds = [(limit.level, limit.notion) for limit in self.limits]
        if len(set(kinds)) != len(kinds):
            raise PlanError("limits", "at most one per level and notion")
        if any(level is not self.level for level, _ in kinds):
            raise PlanError("limits", f"scheme {self.scheme} bounds the {self.level} level only")
        if (self.level, Notion.CLASSICAL) not in kinds:
            raise PlanError("limits", "a classical limit is missing")
        if ((self.level, Notion.BAYESIAN) in kinds) != (self.bayesian is not None):
            raise PlanError("bayesian", "comes together with a Bayesian limit")

    @property
    def level(self) -> Level:
        """The level this scheme protects; the other one is unbounded."""
        return PROTECTS[self.scheme]

    @property
    def noise_std(self) -> float:
        return self.noise_multiplier * self.clip_norm

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
            fields["observer"] = Observer(fields["observer"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise InvalidArgument("plan", f"is not a plan: {error}") from error


def _limit(value: Mapping[str, Any]) -> LimitPlan:
    fields: dict[str, Any] = {**value, "level": Level(value["level"]), "notion": Notion(value["notion"])}
    return LimitPlan(**fields)


def _jsonable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, tuple | list):
        return [_jsonable(item) for item in cast("tuple[object, ...]", value)]
    return str(value) if isinstance(value, Level | Notion | Observer) else value
