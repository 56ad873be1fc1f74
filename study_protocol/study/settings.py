"""The frozen settings of a study: what is trained, how, and which privacy limits are kept."""

from __future__ import annotations

import hashlib
from typing import Any, Self

from pydantic import Field, model_validator

from accounting.plan.limits import require_queries
from accounting.plan.schedule import require_schedule, stage_of
from accounting.units import Level
from study_protocol.study.cohort import COHORT_SECTION, Cohort, require_columns
from study_protocol.study.evaluation import EvaluationSettings
from study_protocol.study.limits import Schedule
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.privacy import Privacy
from study_protocol.study.robustness import Robustness, max_records
from study_protocol.study.setting_names import naming_settings
from study_protocol.study.statistics import Statistics
from study_protocol.study.synthesis import Synthesis, names_in, require_synthesis
from study_protocol.study.training import Training
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Message, Sha256


class StudySettings(Message):
    """Everything that a study freezes."""

    training: Training = Field(description="what is computed")
    privacy: Privacy = Field(description="the mechanism and its limits")
    schedule: Schedule = Field(description="how many hospitals a round waits for, and how long")
    robustness: Robustness = Field(
        default=Robustness(), description="bounds on the effect of one hospital on the model"
    )
    statistics: Statistics | None = Field(default=None, description="questions about the patients, on the same budget")
    evaluation: EvaluationSettings | None = Field(
        default=None,
        description="patients who are never trained on, and questions to them about released models. Needs "
        "[statistics]",
    )
    monitoring: MonitoringSettings | None = Field(
        default=None,
        # Settings of earlier versions keep their digest.
        exclude_if=lambda monitoring: monitoring is None,
        description="the released model on later patients, in windows, with alarms. Needs [statistics]",
    )
    synthesis: Synthesis | None = Field(
        default=None,
        # Settings of earlier versions keep their digest.
        exclude_if=lambda synthesis: synthesis is None,
        description="synthetic records from three questions. Needs [statistics]",
    )
    cohort: Cohort | None = Field(
        default=None,
        # Settings of earlier versions keep their digest.
        exclude_if=lambda cohort: cohort is None,
        description=COHORT_SECTION,
    )
    audit_sha256: Sha256 | None = Field(
        default=None,
        # Settings of earlier versions keep their digest.
        exclude_if=lambda digest: digest is None,
        description="of the page that `wardround audit` wrote about these settings, before this entry was added. The "
        "lead's own statement: certificates repeat it, and ask the lead for the page",
    )
    beyond_bounds: bool = Field(default=False, description="set by --i-know: beyond usual bounds. Hospitals see it")

    @property
    def audit_in_words(self) -> str | None:
        """Return a sentence about the page of an audit, or None where the settings name none."""
        if self.audit_sha256 is None:
            return None
        return (
            "The study lead states that these settings were attacked before the study, and that the page about it has "
            f"the SHA-256 {self.audit_sha256}. Ask the lead for the page. Only the lead vouches for it."
        )

    @model_validator(mode="after")
    def _a_round_can_be_closed(self) -> Self:
        if self.steps_per_round > self.privacy.max_steps:
            raise ValueError("privacy.max_steps must be at least the steps of one round (training.local_steps)")
        self.schedule.require_sessions(self.privacy.masking)
        rules = self.privacy.rules
        # A whole update is noised once, after any number of steps.
        if rules.pooled and not rules.clips_updates and self.training.algorithm != "fedsgd":
            reason = "in a later step a record has moved the point where all gradients are taken"
            raise ValueError(
                f"privacy.scheme {rules.display_name} has one noisy step a round: set training.algorithm to fedsgd, as "
                f"{reason}"
            )
        return self

    @model_validator(mode="after")
    def _the_schedule_is_as_long_as_the_study(self) -> Self:
        if (stages := self.privacy.noise_stages) is not None:
            with naming_settings():
                require_schedule(stages, rounds=self.rounds, estimates=self.privacy.bayesian is not None)
        return self

    @model_validator(mode="after")
    def _questions_fit_the_scheme(self) -> Self:
        if self.statistics is not None:
            privacy, queries = self.privacy, self.statistics.plan(self.evaluation, later=self.monitoring is not None)
            with naming_settings():
                require_queries(privacy.rules, privacy.limit_plans, queries, privacy.bayesian_plan)
        return self

    @model_validator(mode="after")
    def _evaluations_fit_the_study(self) -> Self:
        if self.evaluation is None:
            return self
        if Level.CLIENT in self.privacy.rules.levels:
            raise ValueError(
                f"evaluation: scheme {self.privacy.rules.display_name} protects whole hospitals, and a query counts "
                "patients: evaluate its models on a declared public set instead (wardround evaluate)"
            )
        if self.statistics is None:
            raise ValueError("evaluation needs the section statistics, which says how many queries there may be")
        plan, question = self.evaluation.plan(), self.evaluation.question
        if (scheduled := plan.due_by(self.rounds)) > self.statistics.max_queries:
            raise ValueError(f"statistics.max_queries must be at least {scheduled}: so many evaluations are scheduled")
        if question is not None and question.cells > self.statistics.max_cells:
            raise ValueError(f"statistics.max_cells must be at least {question.cells}, as evaluation.question has")
        return self

    @model_validator(mode="after")
    def _windows_fit_the_study(self) -> Self:
        if (monitoring := self.monitoring) is None:
            return self
        if Level.CLIENT in self.privacy.rules.levels:
            raise ValueError(
                f"monitoring: scheme {self.privacy.rules.display_name} protects whole hospitals, and a query counts "
                "patients: evaluate its models on a declared public set instead (wardround evaluate)"
            )
        if self.privacy.bayesian is not None:
            raise ValueError("monitoring does not go with a Bayesian limit: its account takes no later patients")
        if self.statistics is None:
            raise ValueError("monitoring needs the section statistics, which says how many queries there may be")
        scheduled = 0 if self.evaluation is None else self.evaluation.plan().due_by(self.rounds)
        if (needed := scheduled + monitoring.windows) > self.statistics.max_queries:
            raise ValueError(f"statistics.max_queries must be at least {needed}: so many questions are scheduled")
        if (cells := monitoring.cost().cells) > self.statistics.max_cells:
            raise ValueError(f"statistics.max_cells must be at least {cells}, as monitoring.question has")
        return self

    @model_validator(mode="after")
    def _synthesis_fits_the_study(self) -> Self:
        if self.synthesis is not None:
            require_synthesis(self.synthesis, self.statistics, self.privacy.limit_plans, trains=True)
        return self

    @model_validator(mode="after")
    def _columns_are_of_the_cohort(self) -> Self:
        if self.cohort is not None:
            require_columns(self.cohort, self.training.task_parameters, names_in(self.synthesis))
        return self

    @model_validator(mode="after")
    def _clipping_fits_the_scheme(self) -> Self:
        rules = self.privacy.rules
        if self.privacy.adaptive_clip is not None:
            self._require_one_norm_for_all()
        if self.training.clipping == "per-layer" and rules.clips_updates:
            raise ValueError(
                f"training.clipping per-layer is for records: scheme {rules.display_name} clips whole updates"
            )
        if self.training.clipping_centre == "zero":
            return self
        if rules.clips_updates or self.privacy.masking is not None:
            raise ValueError(
                "training.clipping_centre previous-update belongs to scheme parallel (local noise) without masking"
            )
        # Only then is the difference of two models the last noised mean gradient.
        if self.training.algorithm != "fedsgd" or self.training.optimiser.name != "plain":
            raise ValueError(
                "training.clipping_centre previous-update needs fedsgd and the coordinator's plain optimiser"
            )
        return self

    def _require_one_norm_for_all(self) -> None:
        training = self.training
        if training.algorithm != "fedsgd":
            raise ValueError(
                "privacy.adaptive_clip needs training.algorithm fedsgd: one noised step a round, whose bits move the "
                "norm once"
            )
        if training.clipping != "flat" or training.clipping_centre != "zero":
            raise ValueError(
                "privacy.adaptive_clip needs training.clipping flat, and training.clipping_centre zero: its bits are "
                "about whole gradients"
            )

    @model_validator(mode="after")
    def _views_have_an_account(self) -> Self:
        if self.training.augmentation is not None and self.privacy.estimates_records:
            raise ValueError(
                "training.augmentation and a Bayesian limit at instance level do not go together: that account takes "
                "a record's cost as fixed by record and model, and views are drawn anew. Use classical limits"
            )
        return self

    @model_validator(mode="after")
    def _robustness_fits_the_scheme(self) -> Self:
        privacy, masking = self.privacy, self.privacy.masking
        summed = masking is not None and masking.mask_updates
        self.robustness.require(privacy.rules, privacy.clip_norm, summed=summed, min_clients=self.schedule.min_clients)
        return self

    def at_clip_norm(self, clip_norm: float | None) -> Self:
        """Return the settings of a round with this clip norm, which noise, grids and bounds of the round follow.

        sum_radius keeps its ratio to the norm. The digest is not that of the study.

        Args:
            clip_norm: as the released model names it. None: that of the settings.

        Raises:
            ValueError: it is another one, and the study's is constant.
        """
        first = self.privacy.clip_norm
        if clip_norm is None or clip_norm == first:
            return self
        if self.privacy.adaptive_clip is None:
            raise ValueError("clip_norm: no round has another one than the settings, as the study's is constant")
        changed: dict[str, Any] = {"privacy": self.privacy.model_copy(update={"clip_norm": clip_norm})}
        if (radius := self.robustness.sum_radius) is not None:
            # One patient alone may reach the norm, after any rounding of the ratio.
            scaled = max(radius * (clip_norm / first), clip_norm)
            changed["robustness"] = self.robustness.model_copy(update={"sum_radius": scaled})
        return self.model_copy(update=changed)

    @property
    def sum_radius(self) -> float | None:
        """L2 bound on a client's clipped sum in one local step, or None if the whole update is clipped instead."""
        if (privacy := self.privacy).rules.clips_updates:
            return None
        radius = self.robustness.sum_radius or privacy.client_clip_norm
        return radius or privacy.clip_norm * max_records(privacy.expected_batch_size)

    @property
    def steps_per_round(self) -> int:
        """Noised steps that one round adds at the level this study protects."""
        return 1 if self.privacy.rules.clips_updates else self.training.local_steps

    @property
    def rounds(self) -> int:
        """Most rounds within max_steps."""
        return self.privacy.max_steps // self.steps_per_round

    def at_attempt(self, attempt: int | None) -> Self:
        """Return the settings as one round sees them: with the noise of its place in the noise schedule.

        They compute and bound the round. The settings are frozen and signed with the schedule.

        Args:
            attempt: the round's place, from 1. None without a schedule.

        Raises:
            ValueError: there is a schedule, and no place in it is named.
        """
        stages = self.privacy.noise_stages
        if stages is None:
            return self
        if attempt is None:
            raise ValueError("a round under a noise schedule names its place in it")
        return self.model_copy(update={"privacy": self.privacy.by_stage[stage_of(stages, attempt)]})

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the canonical JSON, over which an assignment is signed."""
        return hashlib.sha256(canonical_json(self.as_json())).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
