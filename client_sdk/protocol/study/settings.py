"""The frozen settings of a study: what is trained, how, and which privacy limits are kept.

Privacy settings have no defaults: whoever opens a study writes every one of them down.
"""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from client_sdk.protocol.wire.canonical import canonical_json

Scheme = Literal["client", "sequential", "parallel", "joint"]
LevelName = Literal["client", "instance"]
DefinitionName = Literal["classical", "bayesian"]
Disclosure = Literal["plain", "noised", "at-end"]
PROTECTS: dict[str, tuple[LevelName, ...]] = {
    "client": ("client",),
    "sequential": ("instance",),
    "parallel": ("instance",),
    "joint": ("instance", "client"),
}

# Estimators that never fall when one value of the sample rises.
MONOTONE = ("betting", "band")

NAME_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, description="lower-case letters, digits and hyphens, at most 63")]


def _not_negative_zero(value: float) -> float:
    if value == 0 and math.copysign(1.0, value) < 0:
        raise ValueError("negative zero is not a number of this protocol")
    return value


# Strict: "1" and true are no numbers where numbers are promises.
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True), AfterValidator(_not_negative_zero)]
Whole = Annotated[int, Field(strict=True)]
Positive = Annotated[Finite, Field(gt=0)]
Probability = Annotated[Finite, Field(gt=0, lt=1)]
Rate = Annotated[Finite, Field(gt=0, le=1)]


class Message(BaseModel):
    """Base of everything on the wire: unknown fields are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limit(Message):
    """One budget: at this level and in this definition never more than (epsilon, delta).

    `estimator_failure_probability` is the γ of the Bayesian estimate, part of delta; classical limits have none.
    """

    level: LevelName
    definition: DefinitionName
    epsilon: Positive
    delta: Probability
    estimator_failure_probability: Probability | None = None

    @model_validator(mode="after")
    def _failure_is_part_of_delta(self) -> Self:
        if self.definition == "classical" and self.estimator_failure_probability is not None:
            raise ValueError("estimator_failure_probability belongs to Bayesian limits only")
        if self.definition == "bayesian" and (
            self.estimator_failure_probability is None or self.estimator_failure_probability >= self.delta
        ):
            raise ValueError("a Bayesian limit needs an estimator_failure_probability below its delta")
        return self


class BayesianSettings(Message):
    """How Bayesian costs are estimated and composed. Fixed before round 1. Orders are λ = α − 1, α the Rényi order."""

    orders: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=128)]
    filter_order: Positive
    estimator: Literal["student-t", "betting", "band", "bernstein"]
    composition: Literal["holder", "running"]
    adversary: Literal["path", "adaptive"]
    conversion: Literal["improved", "chernoff"]

    @model_validator(mode="after")
    def _orders_increase(self) -> Self:
        if any(a >= b for a, b in zip(self.orders, self.orders[1:], strict=False)):
            raise ValueError("orders must be strictly increasing")
        return self


class ServerOptimiser(Message):
    """What the coordinator does with the averaged update: post-processing, costs no privacy."""

    name: Literal["plain", "momentum", "adam"] = "plain"
    learning_rate: Positive = 1.0
    momentum: Annotated[Finite, Field(ge=0, lt=1)] = 0.9
    second_momentum: Annotated[Finite, Field(ge=0, lt=1)] = 0.99
    stability: Positive = 1e-8


class LocalOptimiser(Message):
    """What a client does with its noised gradients: post-processing, costs no privacy. Fresh in every round."""

    name: Literal["plain", "momentum", "adam"] = "plain"
    momentum: Annotated[Finite, Field(ge=0, lt=1)] = 0.9
    second_momentum: Annotated[Finite, Field(ge=0, lt=1)] = 0.999
    stability: Positive = 1e-8


class LearningRateSchedule(Message):
    """The clients' learning rate in a round, by the round's number alone.

    constant  learning_rate
    step      learning_rate, times `factor` after every `every` rounds
    cosine    half a cosine from learning_rate towards final * learning_rate over the rounds of max_steps
    """

    name: Literal["constant", "step", "cosine"] = "constant"
    every: Whole = Field(default=10, ge=1, le=10_000_000)
    factor: Rate = 0.5
    final: Annotated[Finite, Field(ge=0, le=1)] = 0.0

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

    task: str = Field(min_length=1, max_length=128)
    task_parameters: dict[str, float | int | bool | str] = Field(default_factory=dict, max_length=64)
    algorithm: Literal["fedsgd", "fedavg"]
    local_steps: Whole = Field(ge=1, le=100_000)
    learning_rate: Positive = 1.0
    learning_rate_schedule: LearningRateSchedule = LearningRateSchedule()
    local_optimiser: LocalOptimiser = LocalOptimiser()
    clipping: Literal["flat", "per-layer"] = "flat"
    clipping_centre: Literal["zero", "previous-update"] = "zero"
    rows_per_patient: Whole = Field(default=1, ge=1, le=10_000)
    optimiser: ServerOptimiser = ServerOptimiser()

    @model_validator(mode="after")
    def _one_gradient_is_one_step(self) -> Self:
        if self.algorithm != "fedsgd":
            return self
        if self.local_steps != 1:
            raise ValueError("fedsgd sends one gradient a round: local_steps must be 1")
        if self.local_optimiser.name != "plain" or self.learning_rate_schedule.name != "constant":
            raise ValueError(
                "fedsgd sends a gradient and takes no local step: local_optimiser and learning_rate_schedule belong "
                "to fedavg; choose the coordinator's optimiser instead"
            )
        return self


class Masking(Message):
    """The secure sum: the coordinator learns sums, never one client's vector.

    colluders      how many clients may share what they know with the coordinator
    min_survivors  least clients whose vectors are in a sum; below it the round is abandoned
    mask_updates   also the updates, not only log-moments and metrics
    allow_three    let a sum of three go on, of which only two need be honest
    """

    colluders: Whole = Field(ge=1, le=1000)
    min_survivors: Whole = Field(ge=3, le=100_000)
    mask_updates: bool
    allow_three: bool
    step_deadline_seconds: Annotated[Finite, Field(gt=0, le=30 * 86400)]
    expiry_seconds: Annotated[Finite, Field(gt=0, le=90 * 86400)]

    @model_validator(mode="after")
    def _enough_honest_survivors(self) -> Self:
        if self.min_survivors < self.colluders + (2 if self.allow_three else 3):
            raise ValueError("min_survivors must leave three honest clients beside the colluders")
        return self

    @property
    def honest_survivors(self) -> int:
        """Noise shares in every sum that do not come from colluders."""
        return self.min_survivors - self.colluders


class HistogramNoise(Message):
    """Disclosure `noised`: in rounds `every`, 2·`every`, … a histogram is published with noise `std` on its counts.

    Schemes client and joint: one, of the clients' distances, its noise shared among them. Parallel and sequential:
    every hospital reads its own accounting sample through its own, with the whole noise.
    """

    std: Positive
    every: Whole = Field(ge=1, le=10_000_000)


class AccountingSample(Message):
    """The fixed sample of records at every hospital on which Bayesian costs of records are estimated.

    records  how many, at every hospital alike, so that the number shows nothing; who has fewer counts the rest at the
             clip norm
    source   members: drawn from the records that are trained on; held-out: drawn before round 1 and never trained on
    """

    records: Whole = Field(ge=3, le=10_000_000)
    source: Literal["members", "held-out"]


class Privacy(Message):
    """The mechanism and its limits. Every field is public and constant for the whole study.

    clip_norm            L2 bound on one client's update (scheme client) or on one record's gradient (the others)
    client_clip_norm     scheme joint: L2 bound on one client's whole sum before its noise; else null
    noise_multiplier     noise standard deviation / clip_norm, of whoever adds noise
    sampling_rate        Poisson rate of records in each local step
    expected_batch_size  the public constant that replaces the realised batch size as a denominator
    client_sampling_rate Poisson rate of clients in each round
    expected_clients     the public constant that replaces the realised number of clients as a denominator
    max_steps            the most noised steps any client may take over the study (rounds × local steps)
    accounting_sample    whose records are measured; null: all that the hospital trains on
    """

    scheme: Scheme
    limits: Annotated[tuple[Limit, ...], Field(min_length=1, max_length=8)]
    clip_norm: Positive
    client_clip_norm: Positive | None
    noise_multiplier: Positive
    sampling_rate: Rate
    expected_batch_size: Positive
    client_sampling_rate: Rate
    expected_clients: Positive
    max_steps: Whole = Field(ge=1, le=10_000_000)
    classical_order: Positive
    bayesian: BayesianSettings | None
    disclosure: Disclosure
    histogram_noise: HistogramNoise | None
    accounting_sample: AccountingSample | None
    masking: Masking | None

    @property
    def levels(self) -> tuple[LevelName, ...]:
        """The levels that the scheme protects."""
        return PROTECTS[self.scheme]

    @model_validator(mode="after")
    def _limits_fit_the_scheme(self) -> Self:
        kinds = [(limit.level, limit.definition) for limit in self.limits]
        if len(set(kinds)) != len(kinds):
            raise ValueError("at most one limit per level and definition")
        if any(level not in self.levels for level, _ in kinds):
            raise ValueError(f"scheme {self.scheme} bounds the {' and the '.join(self.levels)} level only")
        if any((level, "classical") not in kinds for level, _ in kinds):
            raise ValueError(
                "every level needs a classical limit, for the people whom the Bayesian bound does not cover"
            )
        if any(definition == "bayesian" for _, definition in kinds) != (self.bayesian is not None):
            raise ValueError("a Bayesian limit and the section `bayesian` come together")
        if self.bayesian is not None and self.scheme == "client" and self.bayesian.composition == "running":
            raise ValueError(
                "running sums need the same accounting sample in every round: scheme client needs composition holder"
            )
        return self

    @model_validator(mode="after")
    def _the_scheme_has_what_it_needs(self) -> Self:
        if (self.client_clip_norm is not None) != (self.scheme == "joint"):
            raise ValueError("client_clip_norm belongs to scheme joint, which needs it")
        if self.client_clip_norm is not None and self.client_clip_norm < self.clip_norm:
            raise ValueError("client_clip_norm must be at least clip_norm: one record alone may reach that")
        if self.scheme in ("sequential", "joint") and (self.masking is None or not self.masking.mask_updates):
            raise ValueError(f"scheme {self.scheme} counts on the sum alone being seen: it needs masked updates")
        if self.scheme == "client" and self.masking is not None and not self.masking.mask_updates:
            raise ValueError(
                "in scheme client the coordinator reads the log-moments off the updates: mask both or neither"
            )
        if self.masking is not None and not self.masking.mask_updates and self.bayesian is None:
            raise ValueError("masking without mask_updates is for log-moments: it needs a Bayesian limit")
        return self

    @model_validator(mode="after")
    def _noised_histograms_can_be_read(self) -> Self:
        if (self.histogram_noise is not None) != (self.disclosure == "noised"):
            raise ValueError("histogram_noise and disclosure `noised` come together")
        if self.histogram_noise is None:
            return self
        if self.bayesian is None or self.bayesian.estimator not in MONOTONE:
            raise ValueError("noised counts need a Bayesian limit and an estimator that never falls: betting or band")
        if self.scheme in ("parallel", "sequential"):
            self._require_noised_sample(self.bayesian)
        else:
            self._require_noised_sum(self.histogram_noise)
        return self

    def _require_noised_sum(self, noise: HistogramNoise) -> None:
        """One histogram of clients, summed under masks."""
        if self.scheme == "joint" and any((x.level, x.definition) == ("instance", "bayesian") for x in self.limits):
            raise ValueError(
                "scheme joint with disclosure `noised` has no Bayesian limit at instance level: a hospital that is "
                "zeroed out may move all counts of its accounting sample; 100 records at std 10 would cost the client "
                "level ε = 159 a histogram (δ = 1e-5), and ε = 1 takes std 528, which hides the accounting sample"
            )
        if self.masking is None:
            raise ValueError("noised histograms of clients are summed over them under masks: masking is needed")
        if noise.std < 3 * math.sqrt(self.masking.honest_survivors):
            raise ValueError(
                "histogram_noise.std: each share of it must be at least 3, for shares to sum like one noise"
            )

    def _require_noised_sample(self, bayesian: BayesianSettings) -> None:
        if self.accounting_sample is None:
            raise ValueError(
                "noised at instance level needs an accounting sample: without one the number of records would show"
            )
        if bayesian.composition != "running":
            raise ValueError("noised at instance level reads running sums: Hölder's would need a histogram a step")

    @model_validator(mode="after")
    def _an_accounting_sample_can_be_measured(self) -> Self:
        if self.accounting_sample is None:
            return self
        if self.bayesian is None or not any((x.level, x.definition) == ("instance", "bayesian") for x in self.limits):
            raise ValueError(
                "accounting_sample: records are measured for a Bayesian limit at instance level, and there is none"
            )
        if self.bayesian.estimator not in MONOTONE:
            raise ValueError(
                "accounting_sample: it may have to be filled up, so the estimator must never fall: betting or band"
            )
        return self


class Schedule(Message):
    """Who is waited for, and how long."""

    min_clients: Whole = Field(ge=0, le=100_000)
    round_deadline_seconds: Annotated[Finite, Field(gt=0, le=30 * 86400)]


class StudySettings(Message):
    training: Training
    privacy: Privacy
    schedule: Schedule

    @model_validator(mode="after")
    def _a_round_fits_max_steps(self) -> Self:
        if self.steps_per_round > self.privacy.max_steps:
            raise ValueError("max_steps must be at least the steps of one round (local_steps)")
        return self

    @model_validator(mode="after")
    def _masked_rounds_have_their_survivors(self) -> Self:
        masking = self.privacy.masking
        if masking is not None and self.schedule.min_clients < masking.min_survivors:
            raise ValueError("with masking, min_clients must be at least min_survivors")
        if self.privacy.scheme in ("sequential", "joint") and self.training.algorithm != "fedsgd":
            raise ValueError(f"scheme {self.privacy.scheme} has one noisy step a round: fedsgd")
        return self

    @model_validator(mode="after")
    def _the_previous_update_is_a_gradient_in_the_clear(self) -> Self:
        if self.training.clipping_centre == "zero":
            return self
        if self.privacy.scheme != "parallel" or self.privacy.masking is not None:
            raise ValueError("clipping_centre previous-update belongs to scheme parallel without masking")
        if self.training.algorithm != "fedsgd" or self.training.optimiser.name != "plain":
            raise ValueError("clipping_centre previous-update needs fedsgd and the coordinator's plain optimiser")
        return self

    @model_validator(mode="after")
    def _layers_are_clipped_where_records_are(self) -> Self:
        if self.training.clipping == "per-layer" and self.privacy.scheme == "client":
            raise ValueError("clipping per-layer is for records' gradients: scheme client clips whole updates")
        return self

    @property
    def steps_per_round(self) -> int:
        """Noised steps that one round adds at the level this study protects."""
        return 1 if self.privacy.scheme == "client" else self.training.local_steps

    @property
    def rounds(self) -> int:
        """Most rounds within max_steps."""
        return self.privacy.max_steps // self.steps_per_round

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON: what an assignment is signed over."""
        return hashlib.sha256(canonical_json(self.as_json())).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
