"""Studies for a load: their settings, their members with keys in memory, what every member sends."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api.client import Client, Signature
from client_sdk.api.config import Connection
from client_sdk.identity import Identity, Membership
from client_sdk.study.enrolment import enrol
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import UPDATE, encode
from tests.harness import tiny
from wardround.demo.live import LiveCoordinator

# At once: as many as keep the coordinator busy while they wait for each other.
_ENROLLING = 8


@dataclass(frozen=True)
class Case:
    """One study.

    clients, rounds
    values      of the model; a masked update has as many words of 64 bits
    masked      by a secure sum; `neighbours` of each client on the ring, None: everybody
    lost        so many masked clients fall silent after their shares, in a study of one round
    """

    name: str
    clients: int
    rounds: int
    values: int = 256
    masked: bool = False
    neighbours: int | None = None
    lost: int = 0

    @property
    def model(self) -> dict[str, np.ndarray]:
        # A plain update has as many bytes as the masked one: two float32 for a word of 64 bits.
        return {"weight": np.zeros(self.values * (1 if self.masked else 2), np.float32)}

    def settings(self) -> StudySettings:
        """Scheme parallel with a classical limit only: an update is the whole message."""
        return tiny.settings(
            "parallel",
            clients=self.clients,
            rounds=self.rounds,
            bayesian=False,
            deadline_seconds=60.0 if self.lost else 1200.0,
            training={"task": "last-layer", "task_parameters": {}, "algorithm": "fedsgd", "learning_rate": 1.0},
            limits=[{"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-5}],
            noise_multiplier=8.0,
            sampling_rate=0.1,
            masking=self._masking() if self.masked else None,
        )

    def _masking(self) -> dict[str, Any]:
        # All settings of a masked study, then those that matter here.
        whole = tiny.settings("parallel", clients=self.clients, rounds=1, step_seconds=60.0).as_json()
        masking: dict[str, Any] = whole["privacy"]["masking"] | {
            "mask_updates": True,
            "allow_three": False,
            # Nobody waits for it but who waits for the lost.
            "step_deadline_seconds": 60.0 if self.lost else 1200.0,
            "expiry_seconds": 3600.0,
        }
        if self.neighbours is None:
            colluders = self.clients // 5
            return masking | {"colluders": colluders, "min_survivors": colluders + 3}
        survivors = self.clients * 3 // 5
        return masking | {"colluders": self.neighbours // 5, "min_survivors": survivors, "neighbours": self.neighbours}


@dataclass(frozen=True)
class Member:
    """One hospital of a study."""

    case: Case
    membership: Membership
    credentials: Signature


def open_study(coordinator: LiveCoordinator, case: Case) -> list[Member]:
    """Create it, upload its model if it has one, enrol everybody; not started."""
    with coordinator.operator() as operator:
        operator.create_study(StudyCreate(study=case.name, settings=case.settings()))
        # Where nothing is trained there is none.
        if case.model:
            operator.put_initial_model(case.name, encode(case.model))
    names = [f"client-{number:04d}" for number in range(case.clients)]
    with ThreadPoolExecutor(_ENROLLING) as pool:
        parts = pool.map(lambda part: _enrolled(coordinator, case, part), _parts(names))
        return sorted((member for part in parts for member in part), key=lambda member: member.membership.client)


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    return [part for index in range(_ENROLLING) if (part := names[index::_ENROLLING])]


def _enrolled(coordinator: LiveCoordinator, case: Case, names: Sequence[str]) -> list[Member]:
    members: list[Member] = []
    with coordinator.operator() as operator, Client(Connection(url=coordinator.address)) as anonymous:
        for name in names:
            token = operator.invite(case.name, InvitationCreate(client=name)).token
            # Its directory is never written: the key lives in memory.
            identity = Identity(Path("nowhere"), Ed25519PrivateKey.generate())
            membership = enrol(anonymous, identity, token)
            credentials = Signature(identity.key, name, case.name, membership.origin)
            members.append(Member(case, membership, credentials))
    return members


def plain_update(case: Case) -> bytes:
    return encode({UPDATE + name: np.full_like(array, 1e-9) for name, array in case.model.items()})
