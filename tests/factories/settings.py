"""The one builder of studies' settings for tests: small, and valid as it stands in every scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.plan.schemes import TRAINING_SCHEMES
from study_protocol.study.any_settings import StatisticsSettings
from study_protocol.study.settings import StudySettings

TASK_PARAMETERS = {"label": "ill", "column.age": "0..100", "column.rate": "0..10"}
ORDERS = (2.0, 4.0, 8.0, 16.0)
BAYESIAN = {
    "orders": list(ORDERS),
    "filter_order": 4.0,
    "estimator": "betting",
    "composition": "running",
    "adversary": "adaptive",
    "conversion": "improved",
}
MASKING = {
    "colluders": 1,
    "neighbours": None,
    "min_survivors": 4,
    "mask_updates": True,
    "allow_three": False,
    "step_deadline_seconds": 60.0,
    "expiry_seconds": 3600.0,
}


def settings(scheme: str = "parallel", **options: Any) -> StudySettings:
    """A study of 4 hospitals and 3 steps, or of 5 hospitals under masks; options as of `settings_json`."""
    return StudySettings.model_validate(settings_json(scheme, **options))


def settings_json(
    scheme: str = "parallel",
    *,
    bayesian: bool | Mapping[str, Any] = False,
    masked: bool | None = None,
    training: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | None = None,
    robustness: Mapping[str, Any] | None = None,
    statistics: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    **privacy: Any,
) -> dict[str, Any]:
    """What a request would say, unchecked; new containers at every call.

    bayesian  a Bayesian limit beside every classical one; a mapping replaces single choices of its estimate
    scheme    the id of a row of `SCHEMES`: its two kinds of central noise are told apart by it
    masked    None: where the scheme cannot do without
    training, schedule, robustness, statistics, evaluation, and keyword by keyword the section `privacy`: replace single
    settings
    """
    masked = TRAINING_SCHEMES[scheme].pooled if masked is None else masked
    return {
        "training": _training() | dict(training or {}),
        "privacy": _privacy(scheme, bayesian, masked) | privacy,
        "schedule": {"min_clients": 4 if masked else 2, "round_deadline_seconds": 600.0} | dict(schedule or {}),
        # Limits so wide that they end no test, and sometimes next to no noise.
        "beyond_bounds": True,
        "robustness": dict(robustness or {}),
        **({} if statistics is None else {"statistics": dict(statistics)}),
        **({} if evaluation is None else {"evaluation": dict(evaluation)}),
    }


def changed(chosen: StudySettings, **privacy: Any) -> StudySettings:
    """The same study with other entries in the section `privacy`, checked again."""
    # Not model_copy, which checks nothing.
    values = chosen.as_json()
    return StudySettings.model_validate(values | {"privacy": values["privacy"] | privacy})


def limit(level: str, definition: str = "classical", **values: Any) -> dict[str, Any]:
    """One limit; wide enough that it does not end a study of a few steps."""
    if definition == "classical":
        return {"level": level, "definition": definition, "epsilon": 50.0, "delta": 1e-5} | values
    wide = {"epsilon": 40.0, "delta": 1e-5, "estimator_failure_probability": 5e-6}
    return {"level": level, "definition": definition} | wide | values


def _training() -> dict[str, Any]:
    how = {"algorithm": "fedsgd", "local_steps": 1}
    return {"task": "logistic-regression", "task_parameters": dict(TASK_PARAMETERS)} | how


def _privacy(scheme: str, bayesian: bool | Mapping[str, Any], masked: bool) -> dict[str, Any]:
    definitions = ("bayesian", "classical") if bayesian else ("classical",)
    rules = TRAINING_SCHEMES[scheme]
    return {
        "scheme": rules.papers or rules.id,
        "central_noise": rules.central_noise,
        "limits": [
            limit(level.value, definition) for level in TRAINING_SCHEMES[scheme].levels for definition in definitions
        ],
        "clip_norm": 1.0,
        "client_clip_norm": 2.0 if rules.bounds_clients_too else None,
        "noise_multiplier": 4.0 if masked else 1.0,
        "sampling_rate": 0.5,
        "expected_batch_size": 20.0,
        "client_sampling_rate": 1.0,
        "expected_clients": 5.0 if masked else 4.0,
        "max_steps": 3,
        "classical_order": 4.0,
        "bayesian": _bayesian(scheme, {} if isinstance(bayesian, bool) else bayesian) if bayesian else None,
        "disclosure": "plain",
        "histogram_noise": None,
        "accounting_sample": None,
        "masking": dict(MASKING) if masked else None,
    }


def _bayesian(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    # Running sums, where the scheme can have them.
    composition = TRAINING_SCHEMES[scheme].compositions[-1]
    return BAYESIAN | {"orders": list(ORDERS), "composition": composition} | dict(given)


def statistics_settings(
    *, masked: bool = True, epsilon: float = 5.0, synthesis: Mapping[str, Any] | None = None, **options: Any
) -> StatisticsSettings:
    """A study of queries alone; options: of the section `statistics`."""
    return StatisticsSettings.model_validate(
        {
            "statistics": {"max_queries": 50, "max_cells": 1000} | options,
            "privacy": {
                "scheme": "statistics",
                "limits": [limit("instance", epsilon=epsilon)],
                "masking": dict(MASKING) if masked else None,
            },
            "schedule": {"min_clients": 4 if masked else 2, "round_deadline_seconds": 60.0},
            **({} if synthesis is None else {"synthesis": dict(synthesis)}),
        }
    )
