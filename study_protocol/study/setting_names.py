"""From the fields of an accounting plan to the settings that a person writes, for errors that say what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from accounting.errors import InvalidArgument
from accounting.plan.limits import PlanError

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "scheme": "privacy.scheme",
        "limits": "privacy.limits",
        "level": "privacy.limits",
        "epsilon": "privacy.limits.epsilon",
        "enforcement": "privacy.limits.enforcement",
        "clip_norm": "privacy.clip_norm",
        "client_clip_norm": "privacy.client_clip_norm",
        "noise_multiplier": "privacy.noise_multiplier",
        "honest_survivors": "privacy.masking.min_survivors",
        "sampling_rate": "privacy.sampling_rate",
        "noise_schedule": "privacy.noise_schedule",
        "steps_per_round": "training.local_steps",
        "max_steps": "privacy.max_steps",
        "classical_order": "privacy.classical_order",
        "bayesian": "privacy.bayesian",
        "filter_order": "privacy.bayesian.filter_order",
        "composition": "privacy.bayesian.composition",
        "sample": "privacy.accounting_sample.source",
        "disclosure": "privacy.disclosure",
        "release": "privacy.histogram_noise",
        "histogram_noise": "privacy.histogram_noise",
        "queries": "statistics",
        "share": "statistics.share",
        "allowance": "statistics.allowance",
        "evaluation": "evaluation",
    }
)
"""The settings that a plan's fields come from, by the names that its errors give to the fields."""


@contextmanager
def naming_settings() -> Iterator[None]:
    """Let errors about a plan name the setting, such as `statistics.share` for `share`."""
    try:
        yield
    except PlanError as error:
        error.field = SETTINGS.get(error.field, error.field)
        raise
    except InvalidArgument as error:
        raise InvalidArgument(SETTINGS.get(error.argument, error.argument), error.reason) from error
