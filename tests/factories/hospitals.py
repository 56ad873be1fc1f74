"""Records and hospitals small enough for a test of the hospital's side."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk.api.client import ServerClock
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Identity
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.records import Table
from private_learning.training.weights import weights_of
from study_protocol.study.settings import StudySettings
from tests.factories.coordinator_in_process import ORIGIN, Coordinator
from tests.factories.settings import settings


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


# Of the factories' studies: shown log-moments, limits beyond the bounds, and hospitals that nobody has telephoned.
LAX = {
    "plain_disclosure": True,
    "least_noise_multiplier": 1e-9,
    "largest_epsilon": 1e9,
    "largest_delta": 0.5,
    "unpinned_roster": "laboratory",
}


def lax_toml() -> str:
    """The same as a file, for hospitals that are started as commands."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in LAX.items())


def plain_policy(**entries: Any) -> SitePolicy:
    """A policy that allows what tests do and no hospital should, each in so many words."""
    return SitePolicy.model_validate(LAX | entries)


def one_round_policy() -> SitePolicy:
    """Its own limit has room for one round of the factories' studies: every later one is refused.

    A hospital joins under it with `room_when_joining` alone.
    """
    return plain_policy(limits={"instance": {"epsilon": 5.0, "delta": 1e-6, "order": 4.0}})


@contextmanager
def room_when_joining() -> Generator[None]:
    """There was room for the whole study when it joined: another one on these records has spent it since."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("client_sdk.study.agreed.admit", lambda *_: None)
        yield


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
