"""Studies, records and hospitals small enough for a test of the hospital's side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from client_sdk import tasks
from client_sdk.api.client import ServerClock
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.data import Table
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Identity
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.study.hospital import Hospital
from client_sdk.training.local import weights_of
from tests.factories.coordinator_in_process import ORIGIN, Coordinator

BAYESIAN = {
    "orders": [2.0, 4.0, 8.0],
    "filter_order": 4.0,
    "estimator": "betting",
    "composition": "running",
    "adversary": "adaptive",
    "conversion": "improved",
}
CLASSICAL_LIMIT = {"level": "instance", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}
BAYESIAN_LIMIT = {
    "level": "instance",
    "definition": "bayesian",
    "epsilon": 40.0,
    "delta": 1e-5,
    "estimator_failure_probability": 5e-6,
}
TASK = {"label": "ill", "column.age": "0..100", "column.rate": "0..10"}


def settings(*, bayesian: bool = False, training: dict[str, Any] | None = None, **privacy: Any) -> StudySettings:
    chosen: dict[str, Any] = {
        "scheme": "parallel",
        "limits": [BAYESIAN_LIMIT, CLASSICAL_LIMIT] if bayesian else [CLASSICAL_LIMIT],
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "sampling_rate": 0.5,
        "expected_batch_size": 20.0,
        "client_sampling_rate": 1.0,
        "expected_clients": 1.0,
        "max_steps": 3,
        "classical_order": 4.0,
        "bayesian": BAYESIAN if bayesian else None,
        "disclosure": "plain",
        "masking": None,
        "client_clip_norm": None,
        "histogram_noise": None,
        "accounting_sample": None,
    }
    how = {"task": "logistic-regression", "task_parameters": task_parameters(), "algorithm": "fedsgd", "local_steps": 1}
    return StudySettings.model_validate(
        {
            "training": how | (training or {}),
            "privacy": chosen | privacy,
            "schedule": {"min_clients": 1, "round_deadline_seconds": 3600.0},
        }
    )


def task_parameters() -> dict[str, Any]:
    return dict(TASK)


def records(count: int = 40, seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    age, rate = draw.uniform(0, 100, count), draw.uniform(0, 10, count)
    ill = (age / 100 + rate / 10 + draw.normal(0, 0.2, count) > 1).astype(float)
    return Table.of(
        {"age": age, "rate": rate, "ill": ill, "patient": [f"p{i}" for i in range(count)]}, patient_column="patient"
    )


def coordinator(chosen: StudySettings | None = None, **fields: Any) -> Coordinator:
    chosen = chosen or settings()
    model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
    return Coordinator(chosen, weights_of(model), **fields)


def plain_policy(**entries: Any) -> SitePolicy:
    return SitePolicy.model_validate({"plain_disclosure": True, **entries})


def hospital(
    other: Coordinator | Callable[[httpx.Request], httpx.Response],
    directory: Path,
    name: str = "mercy",
    *,
    clock: ServerClock | None = None,
    sleep: Callable[[float], None] = lambda seconds: None,
) -> Hospital:
    """A hospital enrolled at `other` under `name`; it does not really wait."""
    transport = httpx.MockTransport(other.answer if isinstance(other, Coordinator) else other)
    options: dict[str, Any] = {
        "connection": lambda url: Connection(url=url, patience_seconds=5.0),
        "transport": lambda connection: Transport(connection, handler=transport),
    }
    if isinstance(other, Coordinator) and name not in other.members:
        Hospital.enrol(ORIGIN, other.token(name), directory=directory, **options)
    return Hospital(Identity.open(directory), clock=clock, sleep=sleep, **options)
