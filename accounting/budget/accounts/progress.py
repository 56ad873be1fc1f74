"""How far a limit is used up that is kept by counting: by planned steps, or by a sum of squares."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

from accounting.plan.limits import Enforcement


@dataclass(frozen=True)
class UsedPart:
    """The charges so far, the part that the round under way adds, and the most that both may become."""

    used: float
    reserved: float
    allowed: float

    @classmethod
    def between(cls, used: float, after: float, allowed: float) -> Self:
        """Return the part where `after` would be used with the round under way. The difference is rounded up."""
        return cls(used, math.nextafter(after - used, math.inf) if after > used else 0.0, allowed)


@dataclass(frozen=True)
class Progress:
    """How far a limit is used up.

    steps    noised steps of a fixed plan
    squares  Σ Δ²/s²: of rounds and questions under gaussian-filter, of questions on all patients under fixed-plan. None
             for a fixed plan without questions
    abandoned  steps that can no more be taken: abandoned rounds used their places in a noise schedule
    """

    enforcement: Enforcement
    steps: UsedPart | None
    squares: UsedPart | None
    abandoned: int = 0

    @property
    def takes_questions(self) -> bool:
        """Whether no step of a fixed plan can be taken any more, and questions have a part of their own left."""
        if self.steps is None or self.squares is None:
            return False
        return self.steps.used + self.abandoned >= self.steps.allowed and self.squares.used < self.squares.allowed

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. Without abandoned steps as before there were schedules."""
        values = asdict(self)
        if (abandoned := values.pop("abandoned")) and values["steps"] is not None:
            values["steps"]["abandoned"] = abandoned
        return values
