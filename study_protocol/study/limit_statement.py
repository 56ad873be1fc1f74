"""One limit as a budget states it: the guarantee, how far it is used up, and the numbers beside it."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from accounting.units import PRIVACY_LOSS_DISTRIBUTION
from study_protocol.study.limits import LevelName
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Positive, Whole


class Report(Message):
    """A tighter number beside the enforced one, valid under what its certificate says."""

    name: Text = Field(description="which number")
    epsilon: Finite | None = Field(description="null where it is unbounded")
    certificate: dict[str, Any] = Field(description="what it rests on")


class Spent(Message):
    """The amount that one limit had spent at some time. epsilon is the limit."""

    level: LevelName = Field(description="who is protected")
    definition: Literal["classical", "bayesian"] = Field(description="in which sense")
    epsilon: Positive = Field(description="the limit")
    spent: Finite = Field(description="ε so far")
    # Both are left out where a limit is kept in ε: rounds of earlier studies stay as they were written.
    steps: Whole | None = Field(
        default=None,
        exclude_if=lambda steps: steps is None,
        description="fixed-plan: noised steps so far. As many as after the round before: this one was not charged",
    )
    squares: Finite | None = Field(
        default=None,
        exclude_if=lambda squares: squares is None,
        description="Σ Δ²/s² so far, where the limit's `progress.squares` counts it",
    )


class PlannedSteps(Message):
    used: Whole = Field(ge=0, description="noised steps that were charged")
    reserved: Whole = Field(ge=0, description="those of the round under way")
    allowed: Whole = Field(ge=1, description="those of the whole plan")
    # Left out where there are none: statements without a noise schedule stay as they were written.
    abandoned: Whole = Field(
        default=0,
        ge=0,
        exclude_if=lambda abandoned: abandoned == 0,
        description="those of abandoned rounds, whose places in the noise schedule are used. They are not taken",
    )


class SumOfSquares(Message):
    used: Finite = Field(ge=0, description="Σ Δ²/s² so far")
    reserved: Finite = Field(ge=0, description="what the round or question under way adds")
    allowed: Finite = Field(ge=0, description="μ², the most that it may become")


class LimitProgress(Message):
    """How far a limit is used up that is kept by counting. Its guarantee is the same from the first charge on."""

    enforcement: Literal["fixed-plan", "gaussian-filter"] = Field(description="the rule that keeps the limit")
    steps: PlannedSteps | None = Field(description="fixed-plan: noised steps of the plan")
    squares: SumOfSquares | None = Field(
        description="gaussian-filter: of rounds and questions. fixed-plan: of questions on all patients, null without"
    )


class LimitStatement(Message):
    """One limit. epsilon None with state `unbounded`: the scheme does not protect this level.

    ε is not additive: reserved = ε(ledger + reservation) − ε(ledger), remaining = limit − ε(ledger + reservation).
    """

    level: LevelName = Field(description="who is protected")
    definition: Literal["classical", "bayesian"] = Field(description="in which sense")
    state: Literal["within", "exhausted", "unbounded"] = Field(
        description="whether it is kept. unbounded: this level is not protected"
    )
    epsilon: Positive | None = Field(description="the limit")
    delta: Positive | None = Field(description="the limit's δ")
    enforced_by: Text | None = Field(description="the accountant that decides")
    # Left out where a limit is kept in ε: statements of earlier studies stay as they were written.
    progress: LimitProgress | None = Field(
        default=None,
        exclude_if=lambda progress: progress is None,
        description="how far the limit is used up, where steps or squares are counted",
    )
    spent: Finite | None = Field(
        description="ε that holds for every stop. renyi-order: of the ledger. From the first charge on, it is that of "
        "the whole plan with fixed-plan, and the limit with gaussian-filter and with questions alone, where "
        "certificate.used of certificate.allowed is used"
    )
    reserved: Finite | None = Field(description="what the round under way adds")
    remaining: Finite | None = Field(description="what is left once it is charged")
    observer: Text | None = Field(description="who may know what")
    attack_success: Finite | None = Field(
        description="highest chance that an attacker who knows all other records and all releases, and gives equal "
        "odds to both, guesses rightly whether one given record took part, by what certificate.guess_from names: of "
        "all that the plan may release, or what ε and δ allow. An average: on a rare output the attacker may be surer"
    )
    rounds_left_estimate: int | None = Field(description="an estimate: if rounds cost what the last one did")
    certificate: dict[str, Any] | None = Field(description="what the number rests on")
    reports: list[Report] = Field(
        description="numbers beside it, and what each rests on. Nothing is decided by them. Where steps or squares are "
        "counted, `privacy-loss distribution` is the ε so far, if the study ended here for reasons that do not depend "
        "on its results"
    )

    @property
    def counted(self) -> LimitProgress | None:
        """How far the limit is used up where charges are counted, also with questions alone. None: in ε."""
        certificate = self.certificate or {}
        used, allowance = certificate.get("used"), certificate.get("allowed")
        if self.progress is not None or not isinstance(used, int | float) or not isinstance(allowance, int | float):
            return self.progress
        squares = SumOfSquares(used=float(used), reserved=0.0, allowed=float(allowance))
        return LimitProgress(enforcement="gaussian-filter", steps=None, squares=squares)

    @property
    def takes_questions(self) -> bool:
        """Whether no step of a fixed plan can be taken any more, and questions have a part of their own left."""
        if self.progress is None or self.progress.steps is None or self.progress.squares is None:
            return False
        steps, squares = self.progress.steps, self.progress.squares
        return steps.used + steps.abandoned >= steps.allowed and squares.used < squares.allowed

    @property
    def is_reserved(self) -> bool:
        """Whether a round or question is under way."""
        parts = () if self.progress is None else (self.progress.steps, self.progress.squares)
        return bool(self.reserved) or any(part is not None and part.reserved > 0 for part in parts)

    @property
    def spent_share(self) -> float | None:
        """The used share of the limit. None without a limit, infinite where no finite ε covers it."""
        if self.epsilon is None:
            return None
        if (progress := self.counted) is not None:
            part = progress.steps or progress.squares
            return part.used / part.allowed if part is not None and part.allowed > 0 else math.inf
        return math.inf if self.spent is None else self.spent / self.epsilon

    @property
    def running(self) -> Report | None:
        """ε so far and its condition, where the guarantee is not that. None before the first charge."""
        if self.counted is None or not self.spent:
            return None
        return next((report for report in self.reports if report.name == PRIVACY_LOSS_DISTRIBUTION), None)
