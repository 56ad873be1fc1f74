"""A whole secure sum in one process: real clients and the real coordinator values, with drop-outs wherever asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.session import MaskedUpload, SecureSumClient
from client_sdk.secure_sum.steps import Party
from client_sdk.secure_sum.store import SessionRecord, record_of
from server.domain import secure_sum as domain
from server.domain import secure_sum as views
from server.domain import secure_sum_recovery as recovery
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.messages import Deadlines, SessionParameters
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import RingVector, VectorSpec, count_vector
from study_protocol.study.masking import Masking
from study_protocol.study.messages import SignedParameters
from tests.factories.masked_memory import sum_of

STUDY, ROUND, MODEL, ROSTER = "sepsis", 7, "ab" * 32, "cd" * 32
SETTINGS, LEDGER = "ef" * 32, (9, "12" * 32)
NOW, DEADLINES, EXPIRES = 1_000, Deadlines(keys=2_000, shares=3_000, masked=4_000), 100_000
STEPS = ("keys", "shares", "masked", "consistency", "unmask")


def plan_of_session(
    vectors: Sequence[VectorSpec],
    colluders: int,
    min_survivors: int = 3,
    neighbours: int | None = None,
    *,
    study: str = STUDY,
    round: int = ROUND,
    roster: str = ROSTER,
    query: str | None = None,
    model: str | None = MODEL,
    settings: str = SETTINGS,
    ledger: tuple[int, str] = LEDGER,
    start: int = NOW,
    deadlines: Deadlines = DEADLINES,
    expires: int = EXPIRES,
) -> SessionPlan:
    """What is expected of a session with these times; nobody's study, so that also 0 colluders are possible."""
    masking = Masking.model_construct(
        colluders=colluders,
        neighbours=neighbours,
        min_survivors=min_survivors,
        mask_updates=True,
        allow_three=True,
        step_deadline_seconds=float(deadlines.keys - start),
        expiry_seconds=float(expires - deadlines.masked),
    )
    seconds = float(deadlines.masked - deadlines.shares)
    return SessionPlan(study, round, settings, ledger, roster, query, model, masking, seconds, lambda _: tuple(vectors))


def stream(seed: str) -> Callable[[int], bytes]:
    """Reproducible bytes in place of the system's generator."""
    state = hashlib.shake_256(seed.encode()).digest(32)

    def draw(size: int) -> bytes:
        nonlocal state
        block = hashlib.shake_256(state).digest(32 + size)
        state = block[:32]
        return block[32:]

    return draw


@dataclass
class MemoryStore:
    """Keeps records, and every version of a round's record ever saved."""

    records: dict[tuple[str, int | str], bytes] = field(default_factory=dict)
    history: list[bytes] = field(default_factory=list)

    def load(self, study: str, key: int | str) -> bytes | None:
        return self.records.get((study, key))

    def save(self, study: str, key: int | str, record: bytes) -> None:
        self.records[study, key] = record
        if isinstance(key, int):
            self.history.append(record)


@dataclass
class Hospital:
    name: str
    identity: Ed25519PrivateKey
    party: Party
    store: MemoryStore
    randomness: Callable[[int], bytes]

    @property
    def client(self) -> SecureSumClient:
        """A new object each time, as after a restart."""
        return SecureSumClient(self.party, STUDY, ROUND, self.store, self.randomness)

    @property
    def session(self) -> SessionRecord:
        """What is stored of the session that it joined last."""
        record = record_of(self.store, STUDY, ROUND).session
        assert record is not None
        return record


class World:
    """n hospitals with pinned roster, and a coordinator's key."""

    def __init__(
        self,
        clients: int,
        colluders: int = 1,
        vectors: Sequence[VectorSpec] | None = None,
        tag: str = "",
        neighbours: int | None = None,
    ) -> None:
        draw = stream(f"world {clients} {colluders} {tag}")
        self.vectors = tuple(vectors or [count_vector("terms", 3, clients + 2)])
        self.colluders, self.min_survivors, self.neighbours = colluders, 3, neighbours
        self.coordinator = Ed25519PrivateKey.from_private_bytes(draw(32))
        # Padded, so that the order of names is that of numbers, with 100 hospitals, too.
        identities = {f"h{i:03d}": Ed25519PrivateKey.from_private_bytes(draw(32)) for i in range(clients)}
        self.roster: dict[str, Ed25519PublicKey] = {name: key.public_key() for name, key in identities.items()}
        floors = Floors(colluders=colluders, min_survivors=3 if clients == 3 else 4, allow_three=clients == 3)
        self.hospitals = {
            name: Hospital(
                name,
                key,
                Party(name, key, self.coordinator.public_key(), self.roster, ROSTER, floors),
                MemoryStore(),
                stream(f"{name} {tag}"),
            )
            for name, key in identities.items()
        }
        self.draw = draw

    @property
    def names(self) -> list[str]:
        return list(self.hospitals)

    @property
    def plan(self) -> SessionPlan:
        return plan_of_session(self.vectors, self.colluders, self.min_survivors, self.neighbours)

    def parameters(self, **changes: object) -> SessionParameters:
        made = self.plan.parameters(len(self.hospitals), session=self.draw(32), now=NOW)
        return SessionParameters.model_validate({**made.model_dump(), **changes})

    def signed(self, parameters: SessionParameters) -> SignedParameters:
        raw = parameters.to_bytes()
        statement = transcript.parameters_statement(transcript.parameters_hash(raw))
        return SignedParameters(parameters=raw, signature=transcript.sign(self.coordinator, statement))


def admitted(outcome: domain.Session | domain.Repeated | domain.Declined) -> domain.Session:
    assert isinstance(outcome, domain.Session), outcome
    return outcome


@dataclass
class Run:
    """One session driven step by step. `lost[step]` are the hospitals that fall silent before sending that step."""

    world: World
    words: Mapping[str, Mapping[str, RingVector]]
    lost: Mapping[str, set[str]] = field(default_factory=dict)
    parameters: SessionParameters | None = None

    def __post_init__(self) -> None:
        parameters = self.parameters or self.world.parameters()
        self.parameters = parameters
        self.signed = self.world.signed(parameters)
        self.session = domain.Session(parameters, self.world.roster)
        self.uploads: dict[str, MaskedUpload] = {}
        self.silent: set[str] = set()

    def present(self, step: str, among: Sequence[str]) -> list[str]:
        self.silent |= self.lost.get(step, set())
        return [name for name in among if name not in self.silent]

    def hospital(self, name: str) -> SecureSumClient:
        return self.world.hospitals[name].client

    def keys(self) -> None:
        for name in self.present("keys", self.world.names):
            message = self.hospital(name).advertise(self.signed, self.world.plan, NOW)
            self.session = admitted(domain.admit_keys(self.session, message))
        # At the deadline, where whoever is silent is waited for no longer.
        self.session = domain.advance(self.session, DEADLINES.keys)

    def shares(self) -> None:
        for name in self.present("shares", self.session.members):
            message = self.hospital(name).share(views.key_list(self.session), NOW)
            self.session = admitted(domain.admit_shares(self.session, message))
        self.session = domain.advance(self.session, DEADLINES.shares)

    def masked(self) -> None:
        for name in self.present("masked", self.session.sharers):
            upload = self.hospital(name).mask(views.inbox(self.session, name), self.words[name], NOW)
            self.uploads[name] = upload
            self.session = admitted(domain.admit_manifest(self.session, upload.manifest))
        self.session = domain.advance(self.session, DEADLINES.masked)

    def consistency(self) -> None:
        for name in self.present("consistency", self.session.survivors):
            message = self.hospital(name).confirm(views.survivor_list(self.session), NOW)
            self.session = admitted(domain.admit_consistency(self.session, message))
        self.session = domain.advance(self.session, NOW)

    def unmask(self) -> None:
        if self.session.phase != "unmask":
            return
        for name in self.present("unmask", self.session.survivors):
            message = self.hospital(name).unmask(views.consistency_list(self.session), NOW)
            self.session = admitted(domain.admit_unmask(self.session, message))

    def upto(self, step: str) -> Run:
        """Run every step before `step`."""
        for earlier in STEPS[: STEPS.index(step)]:
            if self.session.phase != "failed":
                getattr(self, earlier)()
        return self

    def finish(self) -> Run:
        self.upto("unmask")
        if self.session.phase != "failed":
            self.unmask()
        return self

    def totals(self) -> dict[str, RingVector] | domain.Declined:
        """The unmasked sums, or why there are none."""
        recovered = recovery.recover(self.session)
        if isinstance(recovered, domain.Declined):
            return recovered
        totals: dict[str, RingVector] = {}
        for spec in self.session.parameters.vectors:
            vectors = [self.uploads[name].vectors[spec.name] for name in self.session.survivors]
            total = sum_of(self.session, recovered, spec, vectors)
            assert total is not None, f"the masks on {spec.name} did not cancel"
            totals[spec.name] = total
        return totals


def small_counts(world: World) -> dict[str, dict[str, RingVector]]:
    """Different counts for every hospital, for worlds with the default vector."""
    return {
        name: {"terms": np.array([1, 10 + index, 1_000 * index], dtype="<u4")} for index, name in enumerate(world.names)
    }
