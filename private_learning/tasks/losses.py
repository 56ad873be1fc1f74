"""Parameters that say which loss a task trains with: public numbers, the same for every record."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from private_learning.tasks.task import TaskError, TaskParameters

LARGEST_WEIGHT = 1e6


class ClassLossParameters(TaskParameters):
    """Of a classifier: mix it into the parameters of a task, and call `chosen` where it is made."""

    loss: Literal["cross-entropy", "focal"] = Field(
        default="cross-entropy", description="focal: a record that is right already counts less"
    )
    gamma: float = Field(default=2.0, ge=1, le=10, description="focal: how much less. 0 is the cross-entropy")
    class_weights: str | None = Field(
        default=None,
        alias="class-weights",
        description="weight of a record of each class: numbers with bars between. Default: all 1",
    )

    @model_validator(mode="after")
    def _gamma_is_of_the_focal_loss(self) -> Self:
        if "gamma" in self.model_fields_set and self.loss != "focal":
            raise ValueError('gamma belongs to loss = "focal": leave it out or choose that loss')
        return self

    def loss_settings(self, task: str, classes: int) -> tuple[float, tuple[float, ...]]:
        """γ, 0 for the cross-entropy, and the weights of the classes, none where all are 1.

        Raises:
            TaskError: not one positive number for each class.
        """
        weights = () if self.class_weights is None else numbers_of(self.class_weights)
        if self.class_weights is not None and (
            len(weights) != classes or not all(0 < weight <= LARGEST_WEIGHT for weight in weights)
        ):
            raise TaskError(
                f"task {task}: class-weights must be {classes} numbers above 0 and up to {LARGEST_WEIGHT:g} with bars "
                f"between, one for each class: {'|'.join(['1'] * min(classes, 3))}"
            )
        return self.gamma if self.loss == "focal" else 0.0, weights


def numbers_of(text: str) -> tuple[float, ...]:
    """Return the numbers between bars, empty where one of them is none."""
    try:
        numbers = tuple(float(part) for part in text.split("|"))
    except ValueError:
        return ()
    return numbers if all(map(math.isfinite, numbers)) else ()
