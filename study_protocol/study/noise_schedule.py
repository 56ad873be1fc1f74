"""The setting `noise_schedule`: how the noise falls (or rises) over the rounds of a study."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from accounting.plan.schedule import MOST_STAGES, NoiseStage
from study_protocol.wire.values import Message, Positive, Whole


class NoiseStageSettings(Message):
    """Rounds in a row with the same noise. A round that was begun counts, also if it was abandoned."""

    rounds: Whole = Field(ge=1, le=10_000_000, description="how many. All stages together: as max_steps allows")
    factor: Positive = Field(description="on noise_multiplier. Above 1 first: noise that falls")

    @model_validator(mode="after")
    def _is_a_stage(self) -> Self:
        self.plan()
        return self

    def plan(self) -> NoiseStage:
        """Return the stage as the accounts know it."""
        return NoiseStage(self.rounds, self.factor)


NoiseSchedule = Annotated[tuple[NoiseStageSettings, ...], Field(min_length=1, max_length=MOST_STAGES)]


def schedule_in_words(stages: tuple[NoiseStage, ...]) -> str:
    """Return the stages as documents and plans name them.

    >>> schedule_in_words((NoiseStage(10, 1.4), NoiseStage(1, 1.0)))
    '10 rounds at 1.4 times, 1 round at 1 times the noise multiplier, in this order'
    """
    parts = (
        f"{stage.rounds} round{'s' * (stage.rounds != 1)} at {repr(stage.factor).removesuffix('.0')} times"
        for stage in stages
    )
    return f"{', '.join(parts)} the noise multiplier, in this order"
