"""From choices to a study's settings, and the records that its hospitals have."""

from __future__ import annotations

from typing import Any

import numpy as np

from accounting.errors import AccountingError
from private_learning import tasks
from private_learning.records import Examples
from private_learning.tasks import TaskDataset
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.goldens.combinations import Combination

Json = dict[str, Any]

CLIENTS, RECORDS, ROUNDS = 3, 48, 2
_TASK, _TASK_PARAMETERS = "last-layer", {"features": 3, "classes": 2, "bound": 1.0}
_DISCLOSURES = {"plain": "plain", "noised": "noised", "final": "at-end"}
_MASKING = {
    "colluders": 1,
    "neighbours": None,
    "min_survivors": CLIENTS,
    "mask_updates": True,
    "allow_three": True,
    "step_deadline_seconds": 60.0,
    "expiry_seconds": 3600.0,
}
# Of scheme client, whose noise the coordinator adds, or every hospital a share of.
_CENTRAL_NOISE = {"client": "coordinator", "client-distributed": "distributed"}
_OPTIMISERS = {
    "client": "plain",
    "client-distributed": "momentum",
    "parallel": "momentum",
    "sequential": "adam",
    "joint": "plain",
}


class NoStudy(ValueError):
    """These choices exclude each other."""


def settings_of(chosen: Combination) -> StudySettings:
    """The study of these choices.

    Raises:
        NoStudy: settings or accounting refuse it.
    """
    try:
        settings = StudySettings.model_validate(
            {
                "training": _training(chosen.scheme),
                "privacy": _privacy(chosen),
                "schedule": {"min_clients": _least_clients(chosen), "round_deadline_seconds": 600.0},
                "beyond_bounds": True,
            }
        )
        plan_of(settings)
    except (ValueError, AccountingError) as error:
        raise NoStudy(str(error)) from error
    return settings


def _steps(scheme: str) -> int:
    """Local steps in a round."""
    return 2 if scheme in ("client", "client-distributed", "parallel") else 1


def _least_clients(chosen: Combination) -> int:
    return 0 if chosen.scheme == "client" and chosen.masking == "none" else CLIENTS


def _training(scheme: str) -> Json:
    return {
        "task": _TASK,
        "task_parameters": _TASK_PARAMETERS,
        "algorithm": "fedsgd" if _steps(scheme) == 1 else "fedavg",
        "local_steps": _steps(scheme),
        "learning_rate": 0.25,
        "optimiser": {"name": _OPTIMISERS[scheme], "learning_rate": 0.5},
    }


def _privacy(chosen: Combination) -> Json:
    scheme = chosen.scheme
    return {
        "scheme": scheme.removesuffix("-distributed"),
        "central_noise": _CENTRAL_NOISE.get(scheme),
        "limits": _limits(chosen),
        "clip_norm": 1.0,
        "client_clip_norm": 2.0 if scheme == "joint" else None,
        "noise_multiplier": 1.0 if scheme in _CENTRAL_NOISE else 2.0,
        "sampling_rate": 0.5,
        "expected_batch_size": 24.0,
        "client_sampling_rate": 0.75 if _least_clients(chosen) == 0 else 1.0,
        "expected_clients": float(CLIENTS),
        "max_steps": ROUNDS * (1 if scheme in _CENTRAL_NOISE else _steps(scheme)),
        "classical_order": 6.0,
        "bayesian": None if chosen.limits == "classical" else _estimation(chosen),
        "disclosure": _DISCLOSURES[chosen.disclosure],
        # The second round publishes, the first does not.
        "histogram_noise": {"std": 6.0, "every": 2} if chosen.disclosure == "noised" else None,
        "accounting_sample": {"records": 32, "source": chosen.accounting_sample}
        if chosen.accounting_sample in ("members", "held-out")
        else None,
        "masking": None if chosen.masking == "none" else _MASKING | {"mask_updates": chosen.masking == "updates"},
    }


def _estimation(chosen: Combination) -> Json:
    return {
        "orders": [1.5, 4.0, 9.0],
        "filter_order": 4.0,
        "estimator": chosen.estimator,
        "composition": chosen.composition,
        "adversary": chosen.adversary,
        "conversion": chosen.conversion,
    }


def _limits(chosen: Combination) -> list[Json]:
    levels = {"joint": ["instance", "client"]} | {scheme: ["client"] for scheme in _CENTRAL_NOISE}
    levels = levels.get(chosen.scheme, ["instance"])
    limits: list[Json] = [
        {"level": level, "definition": "classical", "epsilon": 500.0, "delta": 1e-5} for level in levels
    ]
    if chosen.limits == "classical":
        return limits
    # Far from any sensible promise, so that estimates of a few clients and records say more than the worst case.
    wide = {"client": (0.5, 0.4), "instance": (0.05, 0.04)}
    for level in ["client"] if chosen.limits == "clients" else levels:
        delta, failure = wide[level]
        limits.append(
            {
                "level": level,
                "definition": "bayesian",
                "epsilon": 400.0,
                "delta": delta,
                "estimator_failure_probability": failure,
            }
        )
    return limits


def records_of(number: int) -> TaskDataset:
    """Points around two means; every hospital has its own."""
    draw = np.random.Generator(np.random.PCG64(1000 + number))
    labels = draw.integers(0, 2, RECORDS)
    inputs = draw.uniform(-0.4, 0.4, (RECORDS, 3)) + 0.2 * (2 * labels[:, None] - 1)
    task = tasks.load(_TASK, _TASK_PARAMETERS)
    return task.dataset(Examples.of(inputs, labels, [f"p{number}-{i}" for i in range(RECORDS)]))
