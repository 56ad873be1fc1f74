"""The computation of a client and its use by the coordinator: the section `training` of a study's settings."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from study_protocol.study.augmentation import Augmentation
from study_protocol.study.prior import Prior, prior_of
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Positive, Rate, Sha256, Share, Whole

LONGEST_PARAMETERS = 1 << 20
ALL, HEAD = "all", "head"
PROGRAM_TASK = "features"
"""The task that runs a module on the records, which may be a program in the backbone's file."""
# Methods with parameters that never leave a hospital, and other names that a reader may look for.
_PERSONAL = frozenset({"fedbn", "fedper", "fedrep", "ditto", "apfl", "pfedme", "local", "personal"})
_KEPT_AT_HOME = (
    "it keeps parameters training at the hospital during the study, so shared gradients would depend on records that "
    "no clip bounds. Train one model, and fit it to a hospital after its release: wardround adapt"
)
_LORA = re.compile(r"lora:([1-9][0-9]{0,3})")


class LocalOptimiser(Message):
    """A client's use of its noised gradients.

    It is post-processing and costs no privacy. It is fresh in every round.
    """

    name: Literal["plain", "momentum", "adam"] = Field(
        default="plain", description="momentum and adam smooth the noise"
    )
    momentum: Share = Field(default=0.9, description="share of the step before that stays")
    second_momentum: Share = Field(default=0.999, description="of Adam's second moment")
    stability: Positive = Field(default=1e-8, description="added to Adam's denominator")


class Averaging(Message):
    """The mean of the released models that is the study's result. It is post-processing and costs no privacy.

    Rounds train on from the released models themselves. A reader of the result takes the mean of released models.

    tail         the equal mean of the newest: `share` of all of them, rounded up
    exponential  weights decay^k for the k-th newest, divided by their sum
    """

    name: Literal["tail", "exponential"] = Field(
        description="tail: the equal mean of the newest. exponential: each counts decay times the next newer one"
    )
    share: Rate = Field(default=0.5, description="of tail: of all released models")
    decay: Share = Field(default=0.9, description="of exponential")


class ServerOptimiser(LocalOptimiser):
    """The coordinator's use of the averaged update. It is post-processing and costs no privacy."""

    learning_rate: Positive = Field(
        default=1.0, description="of the mean update. Larger: faster, and larger steps of noise"
    )
    second_momentum: Share = Field(default=0.99, description="of Adam's second moment")
    # Left out where there is none, so that such a study's settings keep their digest.
    averaging: Averaging | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="the mean of released models as the result. Left out: the newest model",
    )


class LearningRateSchedule(Message):
    """The clients' learning rate in a round, by the round's number alone.

    constant  learning_rate
    step      learning_rate, times `factor` after every `every` rounds
    cosine    half a cosine from learning_rate towards final * learning_rate over the rounds of max_steps
    """

    name: Literal["constant", "step", "cosine"] = Field(
        default="constant", description="step: times factor every so many rounds. cosine: half a cosine to final"
    )
    every: Whole = Field(default=10, ge=1, le=10_000_000, description="rounds of one step")
    factor: Rate = Field(default=0.5, description="of one step")
    final: Annotated[Finite, Field(ge=0, le=1)] = Field(
        default=0.0, description="share of the learning rate at the end of the cosine"
    )

    def share(self, round_number: int, rounds: int) -> float:
        """Return the factor of the learning rate in round `round_number`, in [0, 1].

        Args:
            rounds: within max_steps. Failed rounds push the last ones past it, which keep the last rate.
        """
        if self.name == "step":
            return self.factor ** ((round_number - 1) // self.every)
        if self.name == "cosine":
            return (
                self.final + (1 - self.final) * (1 + math.cos(math.pi * (min(round_number, rounds) - 1) / rounds)) / 2
            )
        return 1.0


def rank_of(trainable: str | tuple[str, ...]) -> int | None:
    """Return R of `lora:R`, or None if other parameters are trained."""
    match = _LORA.fullmatch(trainable) if isinstance(trainable, str) else None
    return None if match is None else int(match.group(1))


class Backbone(Message):
    """Public weights, or the program of task features, that every hospital has on its own disk. They never travel."""

    sha256: Sha256 = Field(
        description="of the file that every hospital gives with --backbone, or with --backbone-program in task features"
    )


class Training(Message):
    """The computation of a client. `task` names code that the hospital has installed, which never travels."""

    task: Text = Field(
        min_length=1,
        max_length=128,
        description="built in (docs/tasks.md), or installed at every hospital",
    )
    task_parameters: dict[Text, float | int | bool | Text] = Field(
        default_factory=dict,
        max_length=1024,
        description="public: columns and ranges, classes, sizes of layers",
    )
    algorithm: Literal["fedsgd", "fedavg"] = Field(
        description="fedsgd: one noised gradient a round. fedavg: local_steps of them, each charged"
    )
    local_steps: Whole = Field(ge=1, le=100_000, description="noised steps a round, all charged. 1 with fedsgd")
    learning_rate: Positive = Field(
        default=1.0,
        description="of one local step, fedavg only: a plain one moves by at most about learning_rate × clip norm",
    )
    learning_rate_schedule: LearningRateSchedule = Field(
        default=LearningRateSchedule(), description="how the learning rate falls with the rounds, fedavg only"
    )
    local_optimiser: LocalOptimiser = Field(
        default=LocalOptimiser(), description="what a hospital does with its noised gradients, fedavg only"
    )
    # Left out at zero, so that such a study's settings keep their digest.
    proximal: Annotated[Finite, Field(ge=0, le=1e6)] = Field(
        default=0.0,
        exclude_if=lambda value: value == 0,
        description="FedProx's µ, fedavg only, added after the noise",
    )
    clipping: Literal["flat", "per-layer"] = Field(
        default="flat",
        description="flat: a patient's whole gradient to clip_norm. per-layer: each layer's to clip_norm / √layers",
    )
    clipping_centre: Literal["zero", "previous-update"] = Field(
        default="zero",
        description="previous-update: the last mean gradient is subtracted before the clip. Only with fedsgd, unmasked "
        "parallel and the plain optimiser",
    )
    rows_per_patient: Whole = Field(
        default=1,
        ge=1,
        le=10_000,
        description="most rows of one patient, as one record. More: slower",
    )
    # Left out where everything is trained, so that such a study's settings keep their digest.
    trainable: Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=64)] = Field(
        default=ALL,
        exclude_if=lambda value: value == ALL,
        description="what is trained. head: the last layer. lora:8: matrices of rank 8 beside every "
        "layer, and the head. Or patterns of names such as layer4.*",
    )
    backbone: Backbone | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="public weights for the rest. Left out: the task's own",
    )
    # Left out where there is none, so that such a study's settings keep their digest.
    augmentation: Augmentation | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="several views of each image or signal, averaged before the clip",
    )
    optimiser: ServerOptimiser = Field(
        default=ServerOptimiser(), description="what the coordinator does with the mean, at no privacy cost"
    )

    @field_validator("task_parameters")
    @classmethod
    def _of_bounded_size(cls, parameters: dict[str, float | int | bool | str]) -> dict[str, float | int | bool | str]:
        # They stand in the header of every model.
        if len(canonical_json(parameters)) > LONGEST_PARAMETERS:
            raise ValueError(f"task_parameters have at most {LONGEST_PARAMETERS} bytes as JSON")
        prior_of(parameters)
        return parameters

    @field_validator("algorithm", "trainable", mode="before")
    @classmethod
    def _is_no_personal_method(cls, value: Any) -> Any:
        name = value.casefold() if isinstance(value, str) else ""
        if name.replace("-", "") in _PERSONAL:
            raise ValueError(f"{value} is refused: {_KEPT_AT_HOME}")
        if name == "fedprox":
            raise ValueError('fedprox is algorithm = "fedavg" with proximal, its µ')
        return value

    @field_validator("trainable")
    @classmethod
    def _names_a_part(cls, trainable: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(trainable, str) and trainable not in (ALL, HEAD) and rank_of(trainable) is None:
            raise ValueError(
                "say all, head, lora:R with a rank R of 1 to 9999, or a list of patterns such as ['layer4.*', 'fc.*']"
            )
        return trainable

    @model_validator(mode="after")
    def _features_are_of_the_records_themselves(self) -> Self:
        if self.trainable == HEAD and self.augmentation is not None:
            raise ValueError(
                "augmentation makes new views of a record in every step, and with trainable = 'head' the features of "
                "the record itself are computed once: leave augmentation out, or name the head's parameters by "
                "patterns, for which the whole model is computed in every step"
            )
        return self

    @model_validator(mode="after")
    def _is_drawn_back_by_local_steps(self) -> Self:
        if not self.proximal:
            return self
        if self.algorithm == "fedsgd" or self.local_steps == 1:
            raise ValueError(
                "proximal needs fedavg with local_steps of 2 or more: before the first step a hospital's weights are "
                "the received ones, and the term is zero"
            )
        if self.local_optimiser.name != "adam" and self.learning_rate * self.proximal > 1:
            raise ValueError(
                "learning_rate × proximal must be at most 1: a larger product carries the weights past the received "
                "ones in every step"
            )
        return self

    @model_validator(mode="after")
    def _one_gradient_is_one_step(self) -> Self:
        if self.algorithm != "fedsgd":
            return self
        if self.local_steps != 1:
            raise ValueError("local_steps must be 1: fedsgd sends one gradient a round")
        if self.local_optimiser.name != "plain" or self.learning_rate_schedule.name != "constant":
            raise ValueError(
                "local_optimiser and learning_rate_schedule belong to fedavg: fedsgd sends a gradient and takes no "
                "local step, so choose the coordinator's optimiser instead"
            )
        return self

    @property
    def program_sha256(self) -> str | None:
        """Of the program that hospitals run on their records. None: the study has none, or has one of weights."""
        return None if self.backbone is None or self.task != PROGRAM_TASK else self.backbone.sha256

    @property
    def prior(self) -> Prior | None:
        """The prior that is added to noised gradients, or None if the task has none."""
        return prior_of(self.task_parameters)
