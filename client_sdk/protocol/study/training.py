"""What a client computes and what the coordinator makes of it: the section `training` of a study's settings."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from client_sdk.protocol.study.values import Finite, Message, Positive, Rate, Share, Whole
from client_sdk.protocol.wire.text import Text


class LocalOptimiser(Message):
    """What a client does with its noised gradients: post-processing, costs no privacy. Fresh in every round."""

    name: Literal["plain", "momentum", "adam"] = Field(default="plain", description="which one")
    momentum: Share = Field(default=0.9, description="of the first moment")
    second_momentum: Share = Field(default=0.999, description="of Adam's second moment")
    stability: Positive = Field(default=1e-8, description="added to Adam's denominator")


class ServerOptimiser(LocalOptimiser):
    """What the coordinator does with the averaged update: post-processing, costs no privacy."""

    learning_rate: Positive = Field(default=1.0, description="of the averaged update")
    second_momentum: Share = Field(default=0.99, description="of Adam's second moment")


class LearningRateSchedule(Message):
    """The clients' learning rate in a round, by the round's number alone.

    constant  learning_rate
    step      learning_rate, times `factor` after every `every` rounds
    cosine    half a cosine from learning_rate towards final * learning_rate over the rounds of max_steps
    """

    name: Literal["constant", "step", "cosine"] = Field(default="constant", description="constant, step or cosine")
    every: Whole = Field(default=10, ge=1, le=10_000_000, description="rounds of one step")
    factor: Rate = Field(default=0.5, description="of one step")
    final: Annotated[Finite, Field(ge=0, le=1)] = Field(
        default=0.0, description="share of the learning rate at the end of the cosine"
    )

    def share(self, round: int, rounds: int) -> float:
        """What the learning rate is multiplied with in round `round`; in [0, 1].

        rounds  within max_steps; rounds that came to nothing push the last ones past it, which keep the last rate
        """
        if self.name == "step":
            return self.factor ** ((round - 1) // self.every)
        if self.name == "cosine":
            return self.final + (1 - self.final) * (1 + math.cos(math.pi * (min(round, rounds) - 1) / rounds)) / 2
        return 1.0


class Training(Message):
    """What a client computes. `task` names code that the hospital has installed; it never travels.

    clipping          flat: a record's whole gradient to clip_norm; per-layer: each layer's part to clip_norm / √layers
    clipping_centre   zero; or previous-update: what the last round made of the model, known to all, is taken off every
                      record's gradient before it is clipped, and added to the noised mean again
    rows_per_patient  most rows that one patient may have; a record is the patient, its loss the mean over its rows
    """

    task: Text = Field(min_length=1, max_length=128, description="name of a task that the hospital has installed")
    task_parameters: dict[Text, float | int | bool | Text] = Field(
        default_factory=dict, max_length=1024, description="public numbers and names that it takes"
    )
    algorithm: Literal["fedsgd", "fedavg"] = Field(description="fedsgd: one gradient a round; fedavg: local steps")
    local_steps: Whole = Field(ge=1, le=100_000, description="noised steps a round")
    learning_rate: Positive = Field(default=1.0, description="of local steps")
    learning_rate_schedule: LearningRateSchedule = Field(
        default=LearningRateSchedule(), description="by the round's number"
    )
    local_optimiser: LocalOptimiser = Field(default=LocalOptimiser(), description="of local steps")
    clipping: Literal["flat", "per-layer"] = "flat"
    clipping_centre: Literal["zero", "previous-update"] = "zero"
    rows_per_patient: Whole = Field(default=1, ge=1, le=10_000)
    optimiser: ServerOptimiser = Field(default=ServerOptimiser(), description="the coordinator's")

    @model_validator(mode="after")
    def _one_gradient_is_one_step(self) -> Self:
        if self.algorithm != "fedsgd":
            return self
        if self.local_steps != 1:
            raise ValueError("fedsgd sends one gradient a round: local_steps must be 1")
        if self.local_optimiser.name != "plain" or self.learning_rate_schedule.name != "constant":
            others = "local_optimiser and learning_rate_schedule belong to fedavg; choose the coordinator's optimiser"
            raise ValueError(f"fedsgd sends a gradient and takes no local step: {others} instead")
        return self
