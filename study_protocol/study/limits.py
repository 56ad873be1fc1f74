"""Common settings of every study: the limits that are never passed, and the hospitals that a round waits for."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from accounting.plan.limits import Enforcement, LimitPlan
from accounting.units import Definition, Level
from study_protocol.study.masking import MAX_CLIENTS, Masking
from study_protocol.study.outside_witness import MAX_WITNESSES, OutsideWitness, require_different
from study_protocol.wire.values import Finite, Message, Positive, Probability, Whole

LevelName = Literal["client", "instance"]
DefinitionName = Literal["classical", "bayesian"]


class Limit(Message):
    """One budget: at this level and in this definition never more than (epsilon, delta)."""

    level: LevelName = Field(description="instance protects each patient, client each hospital as a whole")
    definition: DefinitionName = Field(
        description="classical: for any patient, and every level needs one. bayesian: for a typical patient"
    )
    epsilon: Positive = Field(
        description="ε is never more. 1 is strong, 8 weak, above 20 only with --i-know. Less: fewer rounds or more "
        "noise"
    )
    delta: Probability = Field(
        description="δ is never more: below 1 / all patients (or hospitals). Above 1e-3 only with --i-know"
    )
    estimator_failure_probability: Probability | None = Field(
        default=None,
        description="required for a Bayesian limit: chance of a low estimate, part of delta, usually a tenth",
    )
    # Left out of what is written where there is none: settings of earlier versions keep their digest.
    enforcement: Enforcement | None = Field(
        default=None,
        exclude_if=lambda enforcement: enforcement is None,
        description="how a classical limit is kept. fixed-plan: ε of all max_steps, steps are counted. "
        "gaussian-filter: all patients in every round, any number of rounds. renyi-order, or left out: at "
        "classical_order, fewer rounds. `wardround plan` chooses",
    )

    @model_validator(mode="after")
    def _is_a_limit(self) -> Self:
        self.plan()
        return self

    def plan(self) -> LimitPlan:
        """Return the plan as the accounts know it."""
        failure = self.estimator_failure_probability
        level, definition = Level(self.level), Definition(self.definition)
        return LimitPlan(level, definition, self.epsilon, self.delta, failure, self.enforcement)


MIN_SLOT = 1e-3
"""Seconds. A shorter slot would not hide anything, and its multiples are no times that can be counted."""
_Slots = Annotated[tuple[Annotated[Finite, Field(ge=MIN_SLOT, le=30 * 86400)], ...], Field(max_length=32)]


class Schedule(Message):
    """The hospitals that a round waits for, and how long."""

    min_clients: Whole = Field(
        ge=0,
        le=100_000,
        description="no round is closed with fewer updates. Below all hospitals: some may be away",
    )
    round_deadline_seconds: Annotated[Finite, Field(gt=0, le=30 * 86400)] = Field(
        description="wait for updates: several times the slowest hospital's time"
    )
    # Both are left out of what is written where there are none: settings of earlier versions keep their digest.
    witnesses: Annotated[
        tuple[OutsideWitness, ...], Field(max_length=MAX_WITNESSES), AfterValidator(require_different)
    ] = Field(
        default=(),
        exclude_if=lambda witnesses: not witnesses,
        description="auditors who sign the ledger's heads beside the hospitals",
    )
    slots: _Slots | None = Field(
        default=None,
        exclude_if=lambda slots: slots is None,
        description="seconds, ascending: a hospital answers at multiples of one, which hides how "
        "many patients it has. [] for none. Left out: 1, 2, 5, 10, … from a second for each 1,000 planned patients "
        "on",
    )

    @model_validator(mode="after")
    def _slots_end_before_the_round(self) -> Self:
        slots = self.slots or ()
        if list(slots) != sorted(set(slots)):
            raise ValueError("slots must ascend, such as [1.0, 2.0, 5.0]")
        if slots and slots[0] >= self.round_deadline_seconds:
            raise ValueError(
                f"slots: the shortest, {slots[0]:g} s, must be below round_deadline_seconds: no hospital could answer"
            )
        return self

    def require_sessions(self, masking: Masking | None) -> None:
        """Check that a round that has enough clients has enough for the sums that the study makes under masks.

        Raises:
            ValueError: it has not.
        """
        if masking is not None and self.min_clients < masking.min_survivors:
            raise ValueError(
                f"with masking, schedule.min_clients must be at least min_survivors, {masking.min_survivors}"
            )
        if masking is not None and self.slots and self.slots[0] >= masking.step_deadline_seconds:
            raise ValueError(
                f"schedule.slots: the shortest, {self.slots[0]:g} s, must be below masking.step_deadline_seconds"
            )
        if masking is not None and self.min_clients > MAX_CLIENTS:
            raise ValueError(
                f"with masking, schedule.min_clients must be at most {MAX_CLIENTS}: no session has more clients"
            )
