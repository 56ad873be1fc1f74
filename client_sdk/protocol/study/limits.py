"""What every study has: the limits that are never passed, and who is waited for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from accounting.plan.limits import LimitPlan
from accounting.units import Definition, Level
from client_sdk.protocol.study.masking import MOST_CLIENTS, Masking
from client_sdk.protocol.study.outside_witness import MOST_WITNESSES, OutsideWitness, require_different
from client_sdk.protocol.wire.values import Finite, Message, Positive, Probability, Whole

LevelName = Literal["client", "instance"]
DefinitionName = Literal["classical", "bayesian"]


class Limit(Message):
    """One budget: at this level and in this definition never more than (epsilon, delta)."""

    level: LevelName = Field(description="whom it protects: instance, each patient; client, each hospital as a whole")
    definition: DefinitionName = Field(
        description="classical: for anybody at all, every level needs one; bayesian: for a typical patient"
    )
    epsilon: Positive = Field(
        description="ε is never more. 1 is strong, 8 weak, above 20 only with --i-know. Less: fewer rounds, more noise"
    )
    delta: Probability = Field(
        description="δ is never more: below 1 / all patients (or hospitals). Above 1e-3 only with --i-know"
    )
    estimator_failure_probability: Probability | None = Field(
        default=None,
        description="of a Bayesian limit, which needs it: chance that the estimate is too low, part of delta; a tenth "
        "of delta is usual",
    )

    @model_validator(mode="after")
    def _is_a_limit(self) -> Self:
        self.plan()
        return self

    def plan(self) -> LimitPlan:
        """As the accounts know it."""
        failure = self.estimator_failure_probability
        return LimitPlan(Level(self.level), Definition(self.definition), self.epsilon, self.delta, failure)


class Schedule(Message):
    """Who is waited for, and how long."""

    min_clients: Whole = Field(
        ge=0,
        le=100_000,
        description="no round is closed with fewer updates: all hospitals, or fewer to go on while some are away",
    )
    round_deadline_seconds: Annotated[Finite, Field(gt=0, le=30 * 86400)] = Field(
        description="how long a round waits for updates: several times what the slowest hospital computes"
    )
    witnesses: Annotated[
        tuple[OutsideWitness, ...], Field(max_length=MOST_WITNESSES), AfterValidator(require_different)
    ] = Field(
        default=(), description="auditors who sign the ledger's heads beside the hospitals; none: hospitals alone"
    )

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without any, the settings have the digest that they had before there were such witnesses.
        found = handler(self)
        return found if self.witnesses else {name: found[name] for name in found if name != "witnesses"}

    def require_sessions(self, masking: Masking | None) -> None:
        """Whether a round that has enough clients has enough for the sums that the study makes under masks.

        Raises:
            ValueError: it has not.
        """
        if masking is not None and self.min_clients < masking.min_survivors:
            raise ValueError(f"with masking, min_clients must be at least min_survivors, {masking.min_survivors}")
        if masking is not None and self.min_clients > MOST_CLIENTS:
            raise ValueError(f"with masking, min_clients must be at most {MOST_CLIENTS}: no session has more clients")
