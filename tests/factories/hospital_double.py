"""The hospital's double in the coordinator's tests: a key, a name, and a way for what it says.

It computes nothing and believes everything: what the real hospital checks, its own tests show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.services.coordinator import Coordinator, Written
from server.services.rounds import submit as submit_update
from server.services.rounds.assign import find_assignment
from server.services.studies import enrolment
from study_protocol.study.messages import (
    Assignment,
    EnrolmentRequest,
    InvitationCreate,
    KeyRotation,
    Refusal,
    UpdateReceipt,
)
from study_protocol.versions import PROTOCOL, ProgramVersion, program_version
from study_protocol.wire.signing import ENROLMENT, encode_public_key, sign_document
from study_protocol.wire.tensors import TERMS, UPDATE, Array, encode

MODEL: dict[str, Array] = {"bias": np.zeros(2, np.float32), "weight": np.zeros((3, 2), np.float32)}


class Way(Protocol):
    """How what a hospital says reaches the coordinator: in this process, or over HTTP."""

    def invite(self, study: str, client: str) -> str: ...
    def enrol(self, request: EnrolmentRequest) -> None: ...
    def assignment(self, who: Hospital) -> Assignment | None: ...
    def send(self, who: Hospital, round: int, body: bytes) -> Written[UpdateReceipt]: ...
    def refuse(self, who: Hospital, round: int, refusal: Refusal) -> Written[Refusal]: ...


@dataclass
class Hospital:
    """One client of one study, as the coordinator sees it."""

    way: Way
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

    def rotation(self) -> KeyRotation:
        """To this key, signed by it."""
        proven = {"client": self.name, "study": self.study, "key": self.public_key}
        return KeyRotation(public_key=self.public_key, proof=sign_document(self.key, ENROLMENT, proven))

    def enrol(self) -> Hospital:
        self.way.enrol(self.enrolment(self.way.invite(self.study, self.name)))
        return self

    def assignment(self) -> Assignment | None:
        return self.way.assignment(self)

    def send(self, round: int, body: bytes) -> Written[UpdateReceipt]:
        return self.way.send(self, round, body)

    def refuse(self, round: int, code: str = "own-limit") -> Written[Refusal]:
        return self.way.refuse(self, round, Refusal(code=code))


@dataclass(frozen=True)
class UseCases:
    """The coordinator's use cases, called as its API calls them."""

    coordinator: Coordinator

    def invite(self, study: str, client: str) -> str:
        return enrolment.invite(self.coordinator, study, InvitationCreate(client=client)).token

    def enrol(self, request: EnrolmentRequest) -> None:
        enrolment.enrol(self.coordinator, request, ProgramVersion(program_version(), PROTOCOL))

    def assignment(self, who: Hospital) -> Assignment | None:
        return find_assignment(self.coordinator, who.study, who.name)[1]

    def send(self, who: Hospital, round: int, body: bytes) -> Written[UpdateReceipt]:
        """Begin, stream, submit."""
        digest = hashlib.sha256(body).hexdigest()
        slot = submit_update.begin(self.coordinator, who.study, round, who.name, digest)
        if isinstance(slot, UpdateReceipt):
            return Written(slot, created=False)
        with self.coordinator.blobs.receive(slot.limit) as incoming:
            incoming.write(body)
            return submit_update.submit(self.coordinator, slot, incoming, digest)

    def refuse(self, who: Hospital, round: int, refusal: Refusal) -> Written[Refusal]:
        return submit_update.refuse(self.coordinator, who.study, round, who.name, refusal)


def update(
    value: float = 0.1, *, model: Mapping[str, Array] = MODEL, log_moments: tuple[float, ...] | None = None
) -> bytes:
    """Every parameter moves by `value`; `log_moments` are the filter's moment and those of the report."""
    tensors: dict[str, Array] = {UPDATE + name: np.full_like(array, value) for name, array in model.items()}
    if log_moments is not None:
        tensors |= {TERMS + "filter": np.array(log_moments[:1]), TERMS + "moments": np.array(log_moments[1:])}
    return encode(tensors)
