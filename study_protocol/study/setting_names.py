"""From the fields of an accounting plan to the settings that a person writes, for errors that say what to change."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from accounting.errors import InvalidArgument
from accounting.plan.limits import PlanError

_OF_PRIVACY = (
    *("scheme", "limits", "clip_norm", "client_clip_norm", "noise_multiplier", "sampling_rate", "noise_schedule"),
    *("max_steps", "classical_order", "bayesian", "disclosure", "histogram_noise"),
)
SETTINGS: Mapping[str, str] = MappingProxyType(
    {name: f"privacy.{name}" for name in _OF_PRIVACY}
    | {name: f"privacy.limits.{name}" for name in ("level", "epsilon", "enforcement")}
    | {name: f"privacy.bayesian.{name}" for name in ("filter_order", "composition")}
    | {name: f"statistics.{name}" for name in ("share", "allowance")}
    | {
        "honest_survivors": "privacy.masking.min_survivors",
        "sample": "privacy.accounting_sample.source",
        "release": "privacy.histogram_noise",
        "steps_per_round": "training.local_steps",
        "queries": "statistics",
        "evaluation": "evaluation",
    }
)
"""The settings that a plan's fields come from, by the names that its errors give to the fields."""


@contextmanager
def naming_settings() -> Generator[None]:
    """Let errors about a plan name the setting, such as `statistics.share` for `share`."""
    try:
        yield
    except PlanError as error:
        error.field = SETTINGS.get(error.field, error.field)
        raise
    except InvalidArgument as error:
        raise InvalidArgument(SETTINGS.get(error.argument, error.argument), error.reason) from error
