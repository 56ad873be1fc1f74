"""The section `privacy` of a study's settings: the mechanism and its limits.

Privacy settings have no defaults: the person who opens a study writes every one of them down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, model_validator

from accounting.plan.limits import (
    MONOTONE,
    BayesianPlan,
    Estimator,
    LimitPlan,
    limit_among,
    require_limits,
    require_release,
)
from accounting.plan.schedule import NoiseStage
from accounting.plan.schemes import CentralNoiseBy, PapersScheme, Scheme, schemes_called
from accounting.units import Definition, Level
from accounting.values import rounded_up
from study_protocol.study.adaptive_clip import (
    CLIP_BITS,
    MAX_EXTRA_NOISE,
    MIN_ROUND_BATCH,
    AdaptiveClip,
    ClipBits,
    extra_noise,
    fits_float32,
)
from study_protocol.study.central_noise import CentralNoise
from study_protocol.study.clip_norm import ClipNorm
from study_protocol.study.limits import Limit
from study_protocol.study.masking import Masking
from study_protocol.study.noise_schedule import NoiseSchedule
from study_protocol.study.setting_names import naming_settings
from study_protocol.wire.tensors import Spec
from study_protocol.wire.values import Message, Positive, Rate, Whole

Disclosure = Literal["plain", "noised", "at-end"]


class BayesianSettings(Message):
    """How Bayesian costs are estimated and composed. Fixed before round 1. Orders are λ = α − 1, α the Rényi order."""

    orders: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=128)] = Field(
        description="orders λ of log-moments. 1 to 32 suffices"
    )
    filter_order: Positive = Field(description="one of the orders, which keeps the limit: near 2 ln(1/δ) / ε")
    estimator: Estimator = Field(
        description="of the mean. betting, band and bernstein hold for any population. student-t, the papers', is "
        "smaller and assumes a normal law"
    )
    composition: Literal["holder", "running"] = Field(
        description="running keeps each record's own sum and is smaller, holder is for hospitals"
    )
    adversary: Literal["path", "adaptive"] = Field(
        description="adaptive also holds where rounds depend on earlier models, path is the papers' smaller claim"
    )
    conversion: Literal["improved", "chernoff"] = Field(
        description="to (ε, δ): improved is smaller and as sound, chernoff is the papers'"
    )

    @model_validator(mode="after")
    def _can_be_accounted(self) -> Self:
        self.plan("members")
        return self

    def plan(self, sample: Literal["members", "held-out"]) -> BayesianPlan:
        """Return the plan as the accounts know it. `sample` names the records that are measured."""
        return BayesianPlan(**self.model_dump(), sample=sample)


class HistogramNoise(Message):
    """Disclosure `noised`: in rounds `every`, 2·`every`, … a histogram is published with noise `std` on its counts.

    Schemes client and joint: one, of the clients' distances, its noise shared among them. Parallel and sequential:
    every hospital reads its own accounting sample through its own, with the whole noise.
    """

    std: Positive = Field(description="of the noise on counts, near 20. More: less ε, shows less")
    every: Whole = Field(ge=1, le=10_000_000, description="a histogram every so many rounds, each charged")


class AccountingSample(Message):
    """The fixed sample of records at every hospital on which Bayesian costs of records are estimated."""

    records: Whole = Field(
        ge=3,
        le=10_000_000,
        description="how many at every hospital. The rest counts as clipped. More: smaller ε, slower",
    )
    source: Literal["members", "held-out"] = Field(
        description="members: records of training. held-out: drawn before round 1, never trained on"
    )


class Privacy(Message):
    """The mechanism and its limits. Every field is public and constant for the whole study."""

    scheme: PapersScheme = Field(
        description="who adds noise. parallel: every hospital enough for itself. sequential: all together, for masked "
        "sums. joint: so for patients and hospitals. client: for hospitals only, see central_noise"
    )
    central_noise: CentralNoiseBy | None = Field(
        default=None,
        description="in scheme client. distributed: every hospital adds its share under masks. coordinator: it adds "
        "all, sees updates without noise and may save ε by client_sampling_rate. Left out: distributed with masking, "
        "else coordinator",
    )
    limits: Annotated[tuple[Limit, ...], Field(min_length=1, max_length=8)] = Field(
        description="a limit that the next round could pass ends the study"
    )
    clip_norm: ClipNorm = Field(
        description="L2 bound on one patient's gradient (scheme client: a hospital's update), 0.5 to 3. Larger: less "
        "is cut off, more noise, same ε"
    )
    # Left out where there is none, so that such a study's settings keep their digest.
    adaptive_clip: AdaptiveClip | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="the clip norm moves after every round, clip_norm is the first. For schemes parallel and "
        "sequential with fedsgd and classical limits",
    )
    client_clip_norm: ClipNorm | None = Field(
        description="required for scheme joint: L2 bound on one hospital's sum before its noise"
    )
    noise_multiplier: Positive = Field(
        description="noise standard deviation / clip_norm, 1 to 10. More: less ε, less accurate. Below 0.3 only with "
        "--i-know"
    )
    sampling_rate: Rate = Field(
        description="chance of each patient to be in a step. Smaller: less ε a step, more noise in the mean"
    )
    expected_batch_size: Positive = Field(
        description="public guess of sampling_rate × patients of a typical hospital: a sum is divided by it. Too "
        "large: small steps. Too small: more noise. Same ε"
    )
    client_sampling_rate: Rate = Field(
        description="chance of each hospital to be asked. Below 1 saves ε only with the coordinator's noise"
    )
    expected_clients: Positive = Field(description="client_sampling_rate × hospitals: divides the sum of updates")
    # Left out of what is written where there is none: settings of earlier versions keep their digest.
    noise_schedule: NoiseSchedule | None = Field(
        default=None,
        exclude_if=lambda schedule: schedule is None,
        description="stages of rounds with a factor on noise_multiplier. Every round that begins uses the next place. "
        "Left out: equal noise",
    )
    max_steps: Whole = Field(
        ge=1,
        le=10_000_000,
        description="the most noised steps (rounds × local steps). A limit may end it sooner",
    )
    classical_order: Positive = Field(description="order λ = α − 1 of renyi-order limits: near 2 ln(1/δ) / ε")
    bayesian: BayesianSettings | None = Field(description="how Bayesian costs are estimated")
    disclosure: Disclosure = Field(
        description="of Bayesian costs. at-end: worst cases are charged. plain: exact in every round, which hospitals "
        "must allow. noised: as histograms that cost ε"
    )
    histogram_noise: HistogramNoise | None = Field(description="required for disclosure noised")
    accounting_sample: AccountingSample | None = Field(
        description="records that Bayesian costs are measured on. Left out: all of training"
    )
    masking: Masking | None = Field(
        description="the secure sum: the coordinator sees sums only, rounds take longer. Left out: it sees every "
        "noised update"
    )

    @model_validator(mode="before")
    @classmethod
    def _central_noise_has_an_adder(cls, value: object) -> object:
        """Fill in a choice that the scheme leaves open: the adder whose noise is counted on under masks, or without."""
        if not isinstance(value, Mapping):
            return value
        fields = cast("Mapping[str, Any]", value)
        if fields.get("central_noise") is not None:
            return fields
        masked = fields.get("masking") is not None
        schemes = schemes_called(str(fields.get("scheme")))
        adder_name = next((adder for adder, scheme in schemes.items() if adder and scheme.pooled == masked), None)
        return {**fields, "central_noise": adder_name}

    @property
    def rules(self) -> Scheme:
        """The rules of the scheme."""
        return schemes_called(self.scheme)[self.central_noise]

    @property
    def limit_plans(self) -> tuple[LimitPlan, ...]:
        """The limits as the accounts know them."""
        return tuple(limit.plan() for limit in self.limits)

    @property
    def bayesian_plan(self) -> BayesianPlan | None:
        """How Bayesian costs are estimated, as the accounts know it."""
        sample = "members" if self.accounting_sample is None else self.accounting_sample.source
        return None if self.bayesian is None else self.bayesian.plan(sample)

    @property
    def noise_stages(self) -> tuple[NoiseStage, ...] | None:
        """The noise schedule as the accounts know it, or None without one."""
        return None if self.noise_schedule is None else tuple(stage.plan() for stage in self.noise_schedule)

    @property
    def by_stage(self) -> tuple[Self, ...]:
        """These settings with the noise of each stage, in their order. Without a schedule: these alone."""
        if self.noise_schedule is None:
            return (self,)
        # The same product as the plan's: all parties draw, bound and account one number.
        noises = [self.noise_multiplier * stage.factor for stage in self.noise_schedule]
        return tuple(self.model_copy(update={"noise_multiplier": noise, "noise_schedule": None}) for noise in noises)

    @property
    def estimates_records(self) -> bool:
        """Whether hospitals measure records, for a Bayesian limit at instance level."""
        return limit_among(self.limit_plans, Level.INSTANCE, Definition.BAYESIAN) is not None

    @property
    def honest_adders(self) -> int:
        """Noise shares that are sure to be in every sum, where the scheme counts on more than one."""
        return self.masking.honest_survivors if self.rules.pooled and self.masking is not None else 1

    @property
    def histogram_shares(self) -> int:
        """Among how many honest hospitals the noise of one published histogram is shared at least."""
        return self.masking.honest_survivors if self.rules.counts_clients and self.masking is not None else 1

    @property
    def sums_exact_values(self) -> bool:
        """Whether hospitals sum something without noise that is new in every model: their updates, or distances."""
        unnoised = self.bayesian is not None and self.histogram_noise is None
        return self.rules.central or (self.rules.clips_updates and unnoised)

    def noise_of_updates(self, coordinates: int) -> CentralNoise | None:
        """Return the noise of a sum of whole updates, for any adder, or None if every record's gradient is clipped."""
        if not self.rules.clips_updates:
            return None
        return CentralNoise(self.clip_norm, self.noise_multiplier, coordinates, self.honest_adders)

    @property
    def clip_bits(self) -> ClipBits | None:
        """The bits beside the gradients of one step, or None where the clip norm stays as it is."""
        if self.adaptive_clip is None:
            return None
        return ClipBits.of(self.clip_norm, **self._of_bits)

    @property
    def _of_bits(self) -> dict[str, float]:
        return {
            "noise_multiplier": self.noise_multiplier,
            "expected_batch_size": self.expected_batch_size,
            "expected_clients": self.expected_clients,
        }

    def sent(self, model: Spec) -> Spec:
        """Return what a hospital noises and sends: the parameters, and the sum of the bits of an adaptive clip norm.

        Raises:
            ValueError: a parameter has the name of that sum.
        """
        if self.adaptive_clip is None:
            return model
        if CLIP_BITS in model:
            raise ValueError(f"adaptive_clip: the model has a parameter {CLIP_BITS!r}: give it another name")
        return model | {CLIP_BITS: ((1,), "float32")}

    @model_validator(mode="after")
    def _an_adaptive_norm_has_a_sound_step(self) -> Self:
        if self.adaptive_clip is None:
            return self
        self.adaptive_clip.require(self.clip_norm)
        if self.rules.clips_updates or self.rules.bounds_clients_too:
            raise ValueError(
                f"adaptive_clip belongs to schemes parallel and sequential: scheme {self.rules.display_name} bounds "
                "whole hospitals by a constant norm"
            )
        if self.bayesian is not None:
            raise ValueError("adaptive_clip: Bayesian costs are measured against a constant clip_norm: leave one out")
        # Bits of one round are heard through its own noise.
        loudest = max(self.by_stage, key=lambda stage: stage.noise_multiplier)
        if not (extra := extra_noise(**loudest._of_bits)) <= MAX_EXTRA_NOISE:
            more = "more than any noise" if math.isinf(extra) else f"{100 * (extra - 1):.3g} % more noise"
            raise ValueError(
                f"adaptive_clip: its bits would need {more} on the gradients, and at most "
                f"{100 * (MAX_EXTRA_NOISE - 1):.2g} % more is allowed: take expected_batch_size × √expected_clients of "
                f"at least {rounded_up(MIN_ROUND_BATCH * loudest.noise_multiplier, 3):g}, or a constant clip_norm"
            )
        self._require_bits_of_float32(self.adaptive_clip.bounds(self.clip_norm))
        return self

    def _require_bits_of_float32(self, norms: tuple[float, ...]) -> None:
        for norm, stage in itertools.product(norms, self.by_stage):
            if not fits_float32(norm, **stage._of_bits):
                raise ValueError(
                    f"adaptive_clip: at clip norm {norm:g} a bit is no number of float32: take min and max nearer to "
                    "1, or a smaller expected_batch_size"
                )

    @model_validator(mode="after")
    def _the_scheme_is_one_of_its_name(self) -> Self:
        schemes = schemes_called(self.scheme)
        if self.central_noise in schemes:
            return self
        raise ValueError("central_noise belongs to scheme client: in other schemes hospitals add noise of their own")

    @model_validator(mode="after")
    def _the_scheme_has_what_it_needs(self) -> Self:
        with naming_settings():
            require_limits(self.rules, self.limit_plans, self.bayesian_plan)
        if (self.client_clip_norm is not None) != self.rules.bounds_clients_too:
            raise ValueError("client_clip_norm belongs to scheme joint (both levels), which needs it")
        if self.client_clip_norm is not None and self.client_clip_norm < self.clip_norm:
            raise ValueError("client_clip_norm must be at least clip_norm: one record alone may reach that")
        if self.rules.pooled and (self.masking is None or not self.masking.mask_updates):
            raise ValueError(
                f"scheme {self.rules.display_name} counts on the sum alone being seen: it needs masked updates"
            )
        # One coordinate has the coarsest grid. A model of more may have noise too large for any grid: see `vectors_of`.
        for stage in self.by_stage:
            if (noise := stage.noise_of_updates(1)) is not None and (fault := noise.fault) is not None:
                raise ValueError(f"noise_multiplier: {fault}")
        self._require_reason_for_plain_updates()
        return self

    def _require_reason_for_plain_updates(self) -> None:
        if self.masking is None or self.masking.mask_updates:
            return
        if self.rules.central:
            read = "the coordinator reads the log-moments off the updates"
            raise ValueError(f"masking.mask_updates: in scheme {self.rules.display_name} {read}: mask both or neither")
        if self.bayesian is None:
            raise ValueError("masking without mask_updates is for log-moments: it needs a Bayesian limit")

    @model_validator(mode="after")
    def _noised_histograms_can_be_read(self) -> Self:
        noise = self.histogram_noise
        if (noise is not None) != (self.disclosure == "noised"):
            raise ValueError("histogram_noise and disclosure `noised` come together")
        if noise is None:
            return self
        if self.bayesian is None or self.bayesian.estimator not in MONOTONE:
            raise ValueError(
                "histogram_noise needs a Bayesian limit and an estimator that never falls: betting or band"
            )
        with naming_settings():
            require_release(self.rules, self.limit_plans, self.bayesian_plan)
        if not self.rules.counts_clients:
            if self.accounting_sample is None:
                reason = "without one the number of records would show"
                raise ValueError(f"histogram_noise at instance level needs accounting_sample: {reason}")
        elif self.masking is None:
            raise ValueError("histogram_noise of clients is for sums under masks: set masking")
        elif noise.std < 3 * math.sqrt(self.histogram_shares):
            # Ten times Σ_k e^{−2π²s²k/(k+1)} < 10⁻³⁷ at s = 3 bounds the difference (Kairouz, Liu & Steinke 2021).
            raise ValueError("histogram_noise.std: each share must be at least 3, for shares to sum like one noise")
        return self

    @model_validator(mode="after")
    def _an_accounting_sample_can_be_measured(self) -> Self:
        if self.accounting_sample is None:
            return self
        if self.bayesian is None or not self.estimates_records:
            there_is_none = "records are measured for a Bayesian limit at instance level, and there is none"
            raise ValueError(f"accounting_sample: {there_is_none}")
        if self.bayesian.estimator not in MONOTONE:
            filled = "it may have to be filled up, so the estimator must never fall"
            raise ValueError(f"accounting_sample: {filled}: betting or band")
        return self
