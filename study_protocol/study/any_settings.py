"""The settings of any study: one that trains, with queries or without, or one of queries alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from accounting.plan.limits import LimitPlan, require_limits
from accounting.plan.schemes import SCHEMES, Scheme
from study_protocol.study.cohort import COHORT_SECTION, Cohort, require_columns
from study_protocol.study.limits import Limit, Schedule
from study_protocol.study.masking import Masking
from study_protocol.study.settings import StudySettings
from study_protocol.study.statistics import Statistics
from study_protocol.study.synthesis import Synthesis, names_in, require_synthesis
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Message


class StatisticsPrivacy(Message):
    """The limits of a study of queries alone, and how its sums are made."""

    scheme: Literal["statistics"] = Field(description="no training, queries alone")
    limits: Annotated[tuple[Limit, ...], Field(min_length=1, max_length=8)] = Field(
        description="none is ever passed. A query that could pass one is refused before any hospital computes"
    )
    masking: Masking | None = Field(
        description="the secure sum: one hospital's counts stay hidden, and the noise is shared. Left out: every "
        "hospital adds the whole noise"
    )

    @property
    def rules(self) -> Scheme:
        """The rules of the scheme."""
        return SCHEMES[self.scheme]

    @property
    def limit_plans(self) -> tuple[LimitPlan, ...]:
        """The limits as the accounts know them."""
        return tuple(limit.plan() for limit in self.limits)

    @model_validator(mode="after")
    def _keeps_its_limits(self) -> Self:
        require_limits(self.rules, self.limit_plans, None)
        return self


class StatisticsSettings(Message):
    """Everything that a study of queries alone freezes."""

    statistics: Statistics = Field(description="what it allows of queries")
    privacy: StatisticsPrivacy = Field(description="its limits, and how sums are made")
    schedule: Schedule = Field(description="how many hospitals a round waits for, and how long")
    synthesis: Synthesis | None = Field(
        default=None,
        # Settings of earlier versions keep their digest.
        exclude_if=lambda synthesis: synthesis is None,
        description="synthetic records from three questions",
    )
    cohort: Cohort | None = Field(
        default=None,
        # Settings of earlier versions keep their digest.
        exclude_if=lambda cohort: cohort is None,
        description=COHORT_SECTION,
    )
    beyond_bounds: bool = Field(default=False, description="set by --i-know: beyond usual bounds. Hospitals see it")

    @model_validator(mode="after")
    def _a_round_can_be_closed(self) -> Self:
        self.schedule.require_sessions(self.privacy.masking)
        if self.statistics.allowance is not None:
            raise ValueError("statistics.allowance belongs to a Bayesian limit, which a study of queries alone has not")
        if self.statistics.share is not None:
            raise ValueError("statistics.share belongs to a study that trains: here questions may use the whole limit")
        return self

    @model_validator(mode="after")
    def _synthesis_fits_the_study(self) -> Self:
        if self.synthesis is not None:
            require_synthesis(self.synthesis, self.statistics, self.privacy.limit_plans, trains=False)
        return self

    @model_validator(mode="after")
    def _columns_are_of_the_cohort(self) -> Self:
        if self.cohort is not None:
            require_columns(self.cohort, {}, names_in(self.synthesis))
        return self

    @property
    def rounds(self) -> int:
        """Number of rounds of training: none."""
        return 0

    @property
    def evaluation(self) -> None:
        """Evaluation of released models: there is none."""

    @property
    def monitoring(self) -> None:
        """Monitoring of a released model: there is none."""

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the canonical JSON, over which an assignment is signed."""
        return hashlib.sha256(canonical_json(self.as_json())).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def trains(value: object) -> bool:
    """Return whether these are, or are meant to be, the settings of a study that trains."""
    if isinstance(value, StatisticsSettings):
        return False
    privacy = cast("Mapping[str, Any]", value).get("privacy") if isinstance(value, Mapping) else None
    scheme = cast("Mapping[str, Any]", privacy).get("scheme") if isinstance(privacy, Mapping) else None
    return scheme != "statistics"


def _kind(value: object) -> str:
    return "training" if trains(value) else "statistics"


AnySettings = StudySettings | StatisticsSettings
Settings = Annotated[
    Annotated[StudySettings, Tag("training")] | Annotated[StatisticsSettings, Tag("statistics")], Discriminator(_kind)
]
_SETTINGS: TypeAdapter[AnySettings] = TypeAdapter(Settings)


def settings_from(value: object) -> AnySettings:
    """Raises pydantic's ValidationError: it is no study's settings."""
    return _SETTINGS.validate_python(value)


def require_training(settings: AnySettings) -> StudySettings:
    """Return the settings of a study that trains. Raises ValueError: this one has queries alone."""
    if isinstance(settings, StatisticsSettings):
        raise ValueError("a study of queries alone (scheme statistics) has no rounds of training")
    return settings
