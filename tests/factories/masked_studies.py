"""Masked studies driven through the use cases: real hospitals' halves, drop-outs wherever asked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel

from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.delivery import ring_vectors_of
from client_sdk.secure_sum.session import MaskedUpload, SecureSumClient
from client_sdk.secure_sum.steps import Party
from private_learning.training import Contribution
from server.db.blobs import Blob
from server.domain.errors import Rejected
from server.domain.secure_sum import Message
from server.services import views
from server.services.coordinator import Coordinator
from server.services.secure_sum import exchanges, lists
from server.services.secure_sum.exchanges import Heard
from server.services.secure_sum.lists import ListName
from study_protocol.randomness.source import SeededRandomness
from study_protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    SurvivorList,
    UnmaskMessage,
)
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import decode_public_key
from study_protocol.wire.tensors import Array, spec_of
from tests.factories.hospital_double import Hospital
from tests.factories.secure_sum import MemoryStore

STEPS = ("keys", "shares", "masked", "consistency", "unmask")


M = TypeVar("M", bound=BaseModel)


def shown(coordinator: Coordinator, study: str, round: int, what: ListName, model: type[M], client: str = "") -> M:
    """A list that is frozen. Raises Rejected `too-early` where it is not, as nobody waits here."""
    found = lists.read_list(coordinator, study, round, what, client)[1]
    if found is None:
        raise Rejected("too-early", f"{what} is not there yet")
    return model.model_validate_json(found)


def said(
    coordinator: Coordinator, round: int, message: Message, study: str = "sepsis", octets: Blob | None = None
) -> Heard:
    """What the coordinator answers when a client has said this."""
    return asyncio.run(exchanges.put(coordinator, study, round, message, octets=octets))


def octets_said(coordinator: Coordinator, round: int, manifest: Manifest, body: bytes, study: str = "sepsis") -> bool:
    """A manifest with its octets. Whether they were not here before."""
    slot = exchanges.begin_octets(coordinator, study, round, manifest)
    if slot.repeated:
        return False
    with coordinator.blobs.receive(slot.limit) as incoming:
        incoming.write(body)
        octets = exchanges.keep_octets(coordinator, slot, incoming, hashlib.sha256(body).hexdigest())
    return said(coordinator, round, manifest, study, octets).created


def body_of(upload: MaskedUpload) -> bytes:
    """The octets of all vectors."""
    return b"".join(words.tobytes() for words in upload.vectors.values())


@dataclass
class MaskedHospital:
    """One enrolled client with its half of the secure sum; `reported` are its cumulative bounds, `distance` its own."""

    hospital: Hospital
    update: Mapping[str, Array]
    reported: tuple[float, ...] | None = None
    distance: float | None = None
    store: MemoryStore = field(default_factory=MemoryStore)

    def session(self, coordinator: Coordinator, chosen: StudySettings, round: int) -> Turn:
        members = views.roster(coordinator, self.hospital.study, round)
        key: Ed25519PrivateKey = self.hospital.key
        party = Party(
            client=self.hospital.name,
            identity=key,
            coordinator=decode_public_key(coordinator.signer.public_key),
            roster={m.client: decode_public_key(m.public_key) for m in members.members if m.state == "active"},
            roster_fingerprint=members.fingerprint,
            floors=Floors(1, 4, False),
        )
        study = self.hospital.study
        return Turn(self, coordinator, chosen, study, round, SecureSumClient(party, study, round, self.store))


class _Told:
    """Stands for a hospital's running sums: the bounds are given."""

    def __init__(self, reported: tuple[float, ...]) -> None:
        self._reported = reported

    def tensors(self) -> dict[str, Array]:
        return {"log-moments/filter": np.array(self._reported[:1]), "log-moments/moments": np.array(self._reported[1:])}

    def paper_costs(self) -> Array:
        # One for each order of the report; the filter order, which comes first, has none.
        return np.full(len(self._reported) - 1, 0.001)


def reported_log_moments(bounds: tuple[float, ...]) -> Any:
    """Running sums whose bounds are these: [at the filter order, at every order of the report]."""
    return _Told(bounds)


@dataclass
class Turn:
    """One hospital's steps in one session."""

    owner: MaskedHospital
    coordinator: Coordinator
    settings: StudySettings
    study: str
    round: int
    client: SecureSumClient
    # Where `FakeClock` begins.
    now: int = 1_800_000_000

    @property
    def name(self) -> str:
        return self.owner.hospital.name

    def take(self, step: str) -> None:
        getattr(self, step)()

    def say(self, message: Message) -> None:
        said(self.coordinator, self.round, message, self.study)

    def keys(self) -> None:
        self.say(self.keys_message())

    def shares(self) -> None:
        self.say(self.shares_message())

    def masked(self) -> None:
        upload = self.upload()
        self.send_octets(upload.manifest, body_of(upload))

    def send_octets(self, manifest: Manifest, body: bytes) -> bool:
        """Whether they were not here before."""
        return octets_said(self.coordinator, self.round, manifest, body, self.study)

    def consistency(self) -> None:
        self.say(self.consistency_message())

    def unmask(self) -> None:
        self.say(self.unmask_message())

    def keys_message(self) -> KeysMessage:
        view = lists.read_session(self.coordinator, self.study, self.round)[1]
        parameters = SessionParameters.from_bytes(view.signed.parameters)
        plan = SessionPlan.of(
            self.settings,
            spec_of(self.owner.update),
            study=self.study,
            round_number=self.round,
            roster=parameters.roster,
            model=parameters.model or "",
            ledger=(parameters.ledger_entries or 0, parameters.ledger_sha256 or ""),
        )
        return self.client.advertise(view.signed, plan, self.now)

    def shares_message(self) -> SharesMessage:
        return self.client.share(self.shown("keys", KeyList), self.now)

    def upload(self) -> MaskedUpload:
        inbox = self.shown("inbox", Inbox)
        return self.client.mask(inbox, self.words(), self.now)

    def consistency_message(self) -> ConsistencyMessage:
        return self.client.confirm(self.shown("survivors", SurvivorList), self.now)

    def unmask_message(self) -> UnmaskMessage:
        return self.client.unmask(self.shown("consistency", ConsistencyList), self.now)

    def shown(self, what: ListName, model: type[M]) -> M:
        """A list that is frozen."""
        return shown(self.coordinator, self.study, self.round, what, model, self.name)

    def words(self) -> dict[str, Any]:
        view = lists.read_session(self.coordinator, self.study, self.round)[1]
        vectors = SessionParameters.from_bytes(view.signed.parameters).vectors
        owner = self.owner
        made = Contribution(dict(owner.update), owner.distance)
        reported = None if owner.reported is None else _Told(owner.reported)
        # The same words however often they are asked for.
        randomness = SeededRandomness(1, allow_insecure=True).in_round(self.name, self.round)
        return ring_vectors_of(
            self.settings.privacy, spec_of(owner.update), vectors, made, reported,  # type: ignore[arg-type]
            records=100, randomness=randomness,
        )  # fmt: skip
