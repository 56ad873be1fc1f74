"""Hospitals in a masked study, each a thread with a connection of its own, through the SDK and its checks.

What hospitals compute twice in one process is computed once: a signature that one has verified, all have; the secret of
two keys is the same on both sides. What is measured is the coordinator.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.api.client import Client
from client_sdk.api.config import Connection
from client_sdk.api.transport import Call, HttpAnswer, Transport
from client_sdk.errors import ConflictError
from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.steps import Party
from client_sdk.secure_sum.store import FileStore, Store
from research.benchmarks.load.meter import Meter
from research.benchmarks.load.studies import Member
from study_protocol.secure_sum import masking, transcript
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.study.messages import Assignment, Roster
from study_protocol.wire.signing import decode_public_key
from study_protocol.wire.tensors import spec_of


class CountingTransport(Transport):
    """Counts requests and the bytes of bodies in both directions."""

    requests = up = down = 0

    def send(self, call: Call[Any], headers: Mapping[str, str]) -> HttpAnswer:
        self.requests += 1
        answer = super().send(call, headers)
        self.up, self.down = self.up + len(call.body), self.down + len(answer.body)
        return answer


class MemoryStore:
    """A hospital's state without its disk."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int | str], bytes] = {}

    def load(self, study: str, key: int | str) -> bytes | None:
        return self._records.get((study, key))

    def save(self, study: str, key: int | str, record: bytes) -> None:
        self._records[study, key] = record


def share_computations() -> None:
    """From now on hospitals of this process verify every signature once and agree on every pair's secret once."""
    verify, agree = transcript.is_signed, masking.agree
    verified: dict[tuple[bytes, bytes, bytes], bool] = {}
    secrets: dict[tuple[bytes, bytes], bytes] = {}

    def is_signed(key: Any, signature: bytes, statement: bytes) -> bool:
        key_message = (key.public_bytes_raw(), signature, statement)
        if key_message not in verified:
            verified[key_message] = verify(key, signature, statement)
        return verified[key_message]

    def agreed(private: Any, public: bytes) -> bytes:
        low, high = sorted((private.public_key().public_bytes_raw(), public))
        if (low, high) not in secrets:
            secrets[low, high] = agree(private, public)
        return secrets[low, high]

    transcript.is_signed, masking.agree = is_signed, agreed


class _Handler(logging.Handler):
    """Counts why the SDK says that it sends a request again."""

    _reason = re.compile(r"did not answer \((\w+)\)|(status \d+)")

    def __init__(self, troubles: Counter[str]) -> None:
        super().__init__()
        self._troubles = troubles

    def emit(self, record: logging.LogRecord) -> None:
        match = self._reason.search(record.getMessage())
        self._troubles["other" if match is None else match[1] or match[2]] += 1


@dataclass
class MaskedLoad:
    """A masked study's hospitals at once. Those whose number is below `case.lost` fall silent after their shares.

    on_disk  hospitals keep their state there, as real ones do, and what they sync is counted; else in memory
    """

    members: Sequence[Member]
    meter: Meter
    url: str
    on_disk: Path | None = None
    syncs: int = 0
    troubles: Counter[str] = field(default_factory=Counter[str])
    requests: int = 0
    up: int = 0
    down: int = 0
    _roster: dict[str, Roster] = field(default_factory=dict[str, Roster])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        share_computations()
        logging.getLogger("client_sdk.api.attempts").addHandler(_Handler(self.troubles))
        if self.on_disk is not None:
            self._count_syncs()
        with ThreadPoolExecutor(len(self.members)) as pool:
            for done in [pool.submit(self._client, index, member) for index, member in enumerate(self.members)]:
                done.result()

    def _client(self, index: int, member: Member) -> None:
        connection = Connection(url=self.url, read_seconds=900.0, patience_seconds=900.0)
        transport = CountingTransport(connection)
        store = MemoryStore() if self.on_disk is None else FileStore(self.on_disk / str(index))
        client = Client(connection, member.credentials, transport=transport)
        hospital = self.hospital(member, client, store)
        while (assignment := hospital.assignment()) is not None:
            if index < member.case.lost:
                hospital.prepare(assignment)
                break
            with self.meter.round(assignment.assignment.round):
                hospital.take_part(assignment)
        hospital.client.close()
        with self._lock:
            self.requests, self.up, self.down = (
                self.requests + transport.requests,
                self.up + transport.up,
                self.down + transport.down,
            )

    def hospital(self, member: Member, client: Client, store: Store) -> MaskedHospital:
        return MaskedHospital(member, client, self.roster, store)

    def _count_syncs(self) -> None:
        sync = os.fsync

        def counted_sync(file: int) -> None:
            with self._lock:
                self.syncs += 1
            sync(file)

        os.fsync = counted_sync  # type: ignore[assignment]

    def roster(self, client: Client, study: str, fingerprint: str) -> Roster:
        """Fetched once for all: a real hospital asks when the roster changes, not in a round."""
        with self._lock:
            if fingerprint not in self._roster:
                self._roster[fingerprint] = client.roster(study)
            return self._roster[fingerprint]


@dataclass
class MaskedHospital:
    """One member through the SDK's own steps."""

    member: Member
    client: Client
    roster: Callable[[Client, str, str], Roster]
    store: Store

    def assignment(self) -> Assignment | None:
        """None when the study has ended."""
        while True:
            try:
                assignment = self.client.assignment(self.member.case.name)
            except ConflictError as error:
                if error.code == "study-finished":
                    return None
                raise
            if assignment is not None:
                return assignment

    def take_part(self, assignment: Assignment) -> None:
        round, (spec,) = self.prepare(assignment)
        words = (np.arange(self.member.case.values) % 1000).astype(spec.dtype)
        round.complete({spec.name: words})

    def prepare(self, assignment: Assignment) -> tuple[MaskedRound, Sequence[VectorSpec]]:
        """Keys and shares."""
        round = self._round(assignment)
        return round, round.prepare(assignment.session)

    def plan(self, given: Assignment) -> SessionPlan:
        case, assignment = self.member.case, given.assignment
        return SessionPlan.of(
            case.settings(),
            spec_of(case.model),
            study=case.name,
            round_number=assignment.round,
            roster=assignment.roster_sha256,
            model=assignment.model.sha256,
            ledger=(assignment.ledger.entries, assignment.ledger.sha256),
        )

    def _round(self, given: Assignment) -> MaskedRound:
        case, assignment = self.member.case, given.assignment
        roster = self.roster(self.client, case.name, assignment.roster_sha256)
        membership = self.member.membership
        party = Party(
            client=membership.client,
            identity=self.member.credentials.key,
            coordinator=decode_public_key(membership.coordinator_key),
            roster={member.client: decode_public_key(member.public_key) for member in roster.members},
            roster_fingerprint=assignment.roster_sha256,
            floors=Floors(1, 4, False),
        )
        return MaskedRound(self.client, party, self.plan(given), self.store)
