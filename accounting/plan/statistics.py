"""The plan of a study of queries alone: limits and queries, no round of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

from accounting.errors import InvalidArgument
from accounting.plan.limits import LimitPlan, PlanError, require_limits
from accounting.plan.plan import Plan, plan_to_json
from accounting.plan.queries import QueryPlan
from accounting.plan.schemes import SCHEMES, Scheme
from accounting.units import Level, Observer


@dataclass(frozen=True)
class StatisticsPlan:
    """One study of queries alone as its budget sees it.

    Raises PlanError for limits that such a study cannot keep.
    """

    limits: tuple[LimitPlan, ...]
    queries: QueryPlan
    observer: Observer
    scheme: Literal["statistics"] = "statistics"

    # What is asked of every plan. Here nothing is trained, estimated or published beside the answers.
    rounds: ClassVar[int] = 0
    max_steps: ClassVar[int] = 0
    bayesian: ClassVar[None] = None
    release: ClassVar[None] = None
    noise_schedule: ClassVar[None] = None
    disclosure: ClassVar[Literal["at-end"]] = "at-end"

    def __post_init__(self) -> None:
        require_limits(self.rules, self.limits, None)
        if self.queries.evaluation is not None:
            raise PlanError("evaluation", "belongs to a study that trains: here there is no model to be evaluated")
        if any(limit.enforcement not in (None, "gaussian-filter") for limit in self.limits):
            raise PlanError("enforcement", "of a study of queries alone is gaussian-filter, or left out")
        if self.queries.share is not None:
            raise PlanError("share", "belongs to a study that trains: here queries may use the whole limit")

    @property
    def rules(self) -> Scheme:
        """Return the rules of the scheme."""
        return SCHEMES[self.scheme]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels this scheme protects. Any other one is unbounded."""
        return self.rules.levels

    def publishes(self, round_number: int) -> bool:
        """No histograms are published."""
        return False

    def stage_of(self, attempt: int) -> int:
        """There are no rounds of training, and no stages of them."""
        return 0

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
            fields["queries"] = QueryPlan.from_dict(fields["queries"])
            fields["observer"] = Observer(fields["observer"])
            if fields["scheme"] != "statistics":
                raise PlanError("scheme", "of a study of queries alone is statistics")
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise InvalidArgument("plan", f"is not a plan: {error}") from error


AnyPlan = Plan | StatisticsPlan


def plan_from_dict(value: Mapping[str, Any]) -> AnyPlan:
    """The plan in a ledger's first entry. Raises InvalidArgument, PlanError."""
    return StatisticsPlan.from_dict(value) if value.get("scheme") == "statistics" else Plan.from_dict(value)
