"""Studies so small that a round takes a fraction of a second: for killing processes and looking at what is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from accounting.budget.budget import Budget
from accounting.plan.schemes import SchemeName
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from wardround.demo.live import LiveHospital
from wardround.demo.processes import Processes

FEATURES = 4
# Longer than any jump of a clock: a round must not end because somebody's clock says so.
DEADLINE_SECONDS = 900.0
# All hospitals of a masked study are needed: whoever was killed comes back long before.
STEP_SECONDS = 400.0


def settings(
    scheme: SchemeName,
    *,
    clients: int,
    rounds: int,
    epsilon: float = 50.0,
    bayesian: bool | Mapping[str, Any] = True,
    deadline_seconds: float = 60.0,
    step_seconds: float | None = None,
    training: Mapping[str, Any] | None = None,
    **privacy: Any,
) -> StudySettings:
    """Logistic regression on four features; ends after `rounds` unless `epsilon` (Bayesian) ends it before.

    step_seconds  deadline of a step of the secure sum; None: nothing is masked
    bayesian      whether there is such a limit; a mapping replaces single choices of its estimate
    training, and keyword by keyword the section `privacy`: replace single settings
    """
    limit = {"level": "client" if scheme == "client" else "instance", "delta": 1e-3}
    bayesian_limits = (
        [{"definition": "bayesian", "epsilon": epsilon, "estimator_failure_probability": 1e-4}] if bayesian else []
    )
    limits = [limit | limit_values for limit_values in [*bayesian_limits, {"definition": "classical", "epsilon": 20.0}]]
    mechanism = {
        "scheme": scheme,
        "limits": limits,
        "clip_norm": 1.0,
        "client_clip_norm": None,
        # Enough for a thousand rounds within the limit.
        "noise_multiplier": 12.0,
        "sampling_rate": 0.5,
        "expected_batch_size": 10.0,
        "client_sampling_rate": 1.0,
        "expected_clients": float(clients),
        "max_steps": rounds,
        "classical_order": 4.0,
        "bayesian": _bayesian(scheme) | ({} if isinstance(bayesian, bool) else dict(bayesian)) if bayesian else None,
        "disclosure": "plain",
        "histogram_noise": None,
        "accounting_sample": None,
        "masking": None if step_seconds is None else _masking(clients, step_seconds),
    }
    training_values = {
        "task": "logistic-regression",
        "task_parameters": {"label": "y", **{f"column.x{i}": "-1..1" for i in range(FEATURES)}},
        "algorithm": "fedavg" if scheme == "client" else "fedsgd",
        "local_steps": 1,
        "learning_rate": 0.5,
    }
    schedule = {"min_clients": clients, "round_deadline_seconds": deadline_seconds}
    values = {"training": training_values | dict(training or {}), "privacy": mechanism | privacy, "schedule": schedule}
    return StudySettings.model_validate(values)


def study_settings(scheme: SchemeName, clients: int, rounds: int, *, masked: bool, by_limit: bool) -> StudySettings:
    """A study that ends after `rounds`, or when its classical limit allows no more than so many at their worst."""
    common: dict[str, Any] = {
        "clients": clients,
        "deadline_seconds": DEADLINE_SECONDS,
        "step_seconds": STEP_SECONDS if masked else None,
    }
    if not by_limit:
        return settings(scheme, rounds=rounds, **common)
    loose = settings(scheme, rounds=4 * rounds, **common)
    budget = Budget(plan_of(loose))
    for number in range(1, rounds + 1):
        budget.reserve(number)
        budget.charge_in_full(number, "the worst case")
    limits = [limit.model_dump(mode="json") for limit in loose.privacy.limits]
    for limit, account in zip(limits, budget.accounts, strict=True):
        if limit["definition"] == "classical":
            limit["epsilon"] = account.epsilon()
    return settings(scheme, rounds=4 * rounds, limits=limits, **common)


def _bayesian(scheme: SchemeName) -> dict[str, Any]:
    return {
        "orders": [2.0, 4.0, 8.0],
        "filter_order": 4.0,
        "estimator": "student-t",
        "composition": "holder" if scheme == "client" else "running",
        "adversary": "path",
        "conversion": "improved",
    }


def _masking(clients: int, step_seconds: float) -> dict[str, Any]:
    return {
        "colluders": 1,
        "neighbours": None,
        "min_survivors": clients,
        "mask_updates": True,
        "allow_three": False,
        "step_deadline_seconds": step_seconds,
        "expiry_seconds": 3600.0,
    }


def hospitals(folder: Path, names: Mapping[str, int], processes: Processes) -> dict[str, LiveHospital]:
    """Hospitals with synthetic patients; `names`: how many each has."""
    hospitals_by_name: dict[str, LiveHospital] = {}
    for seed, (name, rows) in enumerate(names.items()):
        random = np.random.default_rng(seed)
        inputs = random.uniform(-1, 1, (rows, FEATURES))
        labels = (inputs.sum(axis=1) + random.normal(size=rows) > 0).astype(int)
        columns = {f"x{i}": inputs[:, i] for i in range(FEATURES)}
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        path = home / "records.csv"
        pd.DataFrame({"who": [f"{name}-{i}" for i in range(rows)], **columns, "y": labels}).to_csv(path, index=False)
        hospitals_by_name[name] = LiveHospital(name, home / "wardround", path, "who", processes)
    return hospitals_by_name
