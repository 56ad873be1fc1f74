"""A falling (or rising) noise schedule: stages of rounds, each with its share of the noise multiplier."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

from accounting.errors import InvalidArgument
from accounting.plan.limits import PlanError
from accounting.values import check_count, check_positive

MOST_STAGES = 64
_LARGEST_FACTOR = 100.0


@dataclass(frozen=True)
class NoiseStage:
    """Rounds in a row with the same noise.

    rounds  attempts: a round that was begun uses one, also if it was abandoned
    factor  their noise multiplier over the plan's

    Raises InvalidArgument.
    """

    rounds: int
    factor: float

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)
        object.__setattr__(self, "factor", check_positive("factor", self.factor))
        if not 1 / _LARGEST_FACTOR <= self.factor <= _LARGEST_FACTOR:
            raise InvalidArgument(
                "factor", f"must be between {1 / _LARGEST_FACTOR:g} and {_LARGEST_FACTOR:g}, not {self.factor!r}"
            )

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `asdict`. InvalidArgument: a field is missing, unknown or wrong."""
        try:
            return cls(**value)
        except TypeError as error:
            raise InvalidArgument("noise_schedule", f"is not a list of stages: {error}") from error


def require_schedule(stages: Sequence[NoiseStage], *, rounds: int, estimates: bool) -> None:
    """Whether a study of so many rounds at most can have these stages.

    estimates  it has a Bayesian limit

    Raises:
        PlanError: it cannot. It says what to change.
    """
    if not 1 <= len(stages) <= MOST_STAGES:
        raise PlanError("noise_schedule", f"has 1 to {MOST_STAGES} stages, not {len(stages)}")
    if (planned := sum(stage.rounds for stage in stages)) != rounds:
        raise PlanError(
            "noise_schedule",
            f"has {planned} rounds in all, and max_steps allows {rounds}: make the two equal (max_steps counts the "
            "local steps of a round)",
        )
    if estimates:
        raise PlanError("noise_schedule", "needs equal steps for a Bayesian limit: leave one of them out")


def stage_of(stages: Sequence[NoiseStage], attempt: int) -> int:
    """Return the place of the stage that attempt 1, 2, … belongs to. Attempts beyond all stages: the last one.

    >>> stage_of([NoiseStage(2, 1.5), NoiseStage(3, 1.0)], 3)
    1
    """
    ends = list(accumulate(stage.rounds for stage in stages))
    return min(bisect_right(ends, attempt - 1), len(stages) - 1)


def first_attempts(stages: Sequence[NoiseStage]) -> list[int]:
    """Return the first attempt of each stage.

    >>> first_attempts([NoiseStage(2, 1.5), NoiseStage(3, 1.0)])
    [1, 3]
    """
    return [1 + end for end in accumulate((stage.rounds for stage in stages[:-1]), initial=0)]


def first_rounds(stages: Sequence[NoiseStage], rounds: int) -> tuple[int, ...]:
    """Return how many of the first rounds belong to each stage.

    >>> first_rounds([NoiseStage(2, 1.5), NoiseStage(3, 1.0)], 4)
    (2, 2)
    """
    counts: list[int] = []
    for stage in stages:
        count = min(stage.rounds, rounds - sum(counts))
        counts.append(count)
    # A plan of equal steps has one stage, which is as long as it is asked for.
    counts[-1] += rounds - sum(counts)
    return tuple(counts)
