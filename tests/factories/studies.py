"""Studies driven through the use cases, without HTTP: settings, hospitals, a coordinator on a fake clock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.protocol.randomness.coins import AddressedCoins, DiscreteGaussianNoise
from client_sdk.protocol.study.messages import (
    Assignment,
    EnrolmentRequest,
    InvitationCreate,
    Refusal,
    StudyCreate,
    UpdateReceipt,
)
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.signing import ENROLMENT, encode_public_key, sign_document
from client_sdk.protocol.wire.tensors import TERMS, UPDATE, Array, decode, encode, spec_of
from server.db.blobs import FileBlobs
from server.db.session import Database
from server.services import views
from server.services.coordinator import Coordinator, Written
from server.services.rounds import submit as submit_update
from server.services.studies import enrolment, lifecycle, models
from server.signing_key import SigningKey
from server.worker import Worker

MODEL: dict[str, Array] = {"bias": np.zeros(2, np.float32), "weight": np.zeros((3, 2), np.float32)}
ORDERS = (2.0, 4.0, 8.0, 16.0)


@dataclass
class FakeClock:
    """Time that passes only when told to."""

    seconds: float = 1_800_000_000.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def settings(
    *,
    scheme: str = "parallel",
    bayesian: bool = False,
    training: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | None = None,
    **privacy: Any,
) -> StudySettings:
    """A small study; keyword arguments replace single settings."""
    level = "client" if scheme == "client" else "instance"
    limits: list[dict[str, Any]] = [{"level": level, "definition": "classical", "epsilon": 20.0, "delta": 1e-5}]
    if bayesian:
        limits.append(
            {
                "level": level,
                "definition": "bayesian",
                "epsilon": 15.0,
                "delta": 1e-5,
                "estimator_failure_probability": 1e-6,
            }
        )
    chosen: dict[str, Any] = {
        "scheme": scheme,
        "limits": limits,
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
        "sampling_rate": 0.1,
        "expected_batch_size": 10.0,
        "client_sampling_rate": 1.0,
        "expected_clients": 4.0,
        "max_steps": 5,
        "classical_order": 8.0,
        "bayesian": _bayesian(scheme) if bayesian else None,
        "disclosure": "plain",
        "masking": None,
        "client_clip_norm": None,
        "histogram_noise": None,
        "accounting_sample": None,
    }
    return StudySettings.model_validate(
        {
            "training": {"task": "logistic", "algorithm": "fedavg", "local_steps": 1} | dict(training or {}),
            "privacy": chosen | privacy,
            "schedule": {"min_clients": 2, "round_deadline_seconds": 600.0} | dict(schedule or {}),
        }
    )


def _bayesian(scheme: str) -> dict[str, Any]:
    return {
        "orders": ORDERS,
        "filter_order": 4.0,
        "estimator": "betting",
        "composition": "holder" if scheme == "client" else "running",
        "adversary": "path",
        "conversion": "improved",
    }


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


@dataclass
class Hospital:
    """One client of one study, as the coordinator sees it."""

    coordinator: Coordinator
    study: str
    name: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def public_key(self) -> str:
        return encode_public_key(self.key.public_key())

    def enrolment(self, token: str) -> EnrolmentRequest:
        proven = {"invitation": token.split("_")[1], "key": self.public_key}
        return EnrolmentRequest(
            token=token, public_key=self.public_key, proof=sign_document(self.key, ENROLMENT, proven)
        )

    def enrol(self) -> Hospital:
        token = enrolment.invite(self.coordinator, self.study, InvitationCreate(client=self.name)).token
        enrolment.enrol(self.coordinator, self.enrolment(token))
        return self

    def assignment(self) -> Assignment | None:
        return views.find_assignment(self.coordinator, self.study, self.name)

    def send(self, round: int, body: bytes) -> Written[UpdateReceipt]:
        """As the API does: begin, stream, submit."""
        digest = hashlib.sha256(body).hexdigest()
        slot = submit_update.begin(self.coordinator, self.study, round, self.name, digest)
        if isinstance(slot, UpdateReceipt):
            return Written(slot, created=False)
        with self.coordinator.blobs.receive(slot.limit) as incoming:
            incoming.write(body)
            return submit_update.submit(self.coordinator, slot, incoming, digest)

    def refuse(self, round: int, code: str = "own-limit") -> Written[Refusal]:
        return submit_update.refuse(self.coordinator, self.study, round, self.name, Refusal(code=code))


def update(
    value: float = 0.1, *, model: Mapping[str, Array] = MODEL, log_moments: tuple[float, ...] | None = None
) -> bytes:
    """Every parameter moves by `value`; `log_moments` are the filter's moment and those of the report."""
    tensors: dict[str, Array] = {UPDATE + name: np.full_like(array, value) for name, array in model.items()}
    if log_moments is not None:
        tensors |= {TERMS + "filter": np.array(log_moments[:1]), TERMS + "moments": np.array(log_moments[1:])}
    return encode(tensors)


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
    hospitals = [Hospital(coordinator, name, f"h{i}").enrol() for i in range(clients)]
    lifecycle.act(coordinator, name, "start")
    return hospitals


def put_model(coordinator: Coordinator, study: str, model: Mapping[str, Array] = MODEL) -> None:
    with coordinator.blobs.receive(1 << 24) as incoming:
        incoming.write(encode(model))
        models.put_initial(coordinator, study, incoming)


def read_model(coordinator: Coordinator, study: str, version: int | None = None) -> dict[str, Array]:
    return decode(views.locate_model(coordinator, study, version).path.read_bytes(), spec_of(MODEL))


def work(coordinator: Coordinator) -> None:
    """Everything that is due now."""
    worker = Worker(coordinator)
    while worker.step():
        pass
