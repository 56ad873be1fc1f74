"""Studies driven through the use cases, without HTTP: hospitals, a coordinator on a fake clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.db.file_blobs import FileBlobs
from server.db.session import Database
from server.services import views
from server.services.coordinator import Coordinator
from server.services.studies import lifecycle, models
from server.signing_key import SigningKey
from server.worker import Worker
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins
from study_protocol.study.messages import (
    StudyCreate,
)
from study_protocol.wire.tensors import Array, decode, encode, spec_of
from tests.factories.hospital_double import MODEL, Hospital, UseCases
from tests.factories.settings import settings


@dataclass
class FakeClock:
    """Time that passes only when told to."""

    seconds: float = 1_800_000_000.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def coordinator_on(database: Database, home: Path) -> Coordinator:
    """Everything real: files, coins, noise, signatures."""
    return Coordinator(
        database=database,
        blobs=FileBlobs(home / "blobs"),
        coins=AddressedCoins(),
        noise=DiscreteGaussianNoise(),
        signer=SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32)))),
        origin="https://study.example.org",
    )


def open_study(
    coordinator: Coordinator,
    name: str = "sepsis",
    *,
    clients: int = 3,
    model: Mapping[str, Array] = MODEL,
    **options: Any,
) -> list[Hospital]:
    """A running study with enrolled hospitals h0, h1, …"""
    chosen = options.pop("settings", None) or settings(**options)
    lifecycle.create(coordinator, StudyCreate(study=name, settings=chosen))
    put_model(coordinator, name, model)
    hospitals = [Hospital(UseCases(coordinator), name, f"h{i}").enrol() for i in range(clients)]
    lifecycle.act(coordinator, name, "start")
    return hospitals


def put_model(coordinator: Coordinator, study: str, model: Mapping[str, Array] = MODEL) -> None:
    with coordinator.blobs.receive(1 << 24) as incoming:
        incoming.write(encode(model))
        models.put_initial(coordinator, study, incoming)


def read_model(coordinator: Coordinator, study: str, version: int | None = None) -> dict[str, Array]:
    return decode(views.locate_model(coordinator, study, version).open().read(0, 1 << 30), spec_of(MODEL))


def work(coordinator: Coordinator) -> None:
    """Everything that is due now."""
    worker = Worker(coordinator)
    while worker.step():
        pass
