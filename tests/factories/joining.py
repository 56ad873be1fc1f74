"""Hospitals that join over real HTTP, each in a thread, and a coordinator that looks into every sum it opens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from client_sdk.api.client import ServerClock
from client_sdk.api.config import Connection
from client_sdk.errors import WardroundError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.identity import Identity
from client_sdk.secure_sum import delivery
from client_sdk.study.hospital import Hospital
from server.db.blobs import Place, sum_of
from server.services.rounds import close
from server.services.secure_sum import lists
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.secure_sum.parameters import UPDATE, flatten
from study_protocol.secure_sum.vectors import Values, decode
from tests.factories.hospitals import plain_policy, records
from tests.factories.live_coordinator import Live

STUDY, DATASET = "sepsis", "icu"


class Site(threading.Thread):
    """One hospital that joins; `error` is what ended it before the study did. policy: replaces entries."""

    def __init__(self, here: Live, folder: Path, name: str, **policy: Any) -> None:
        super().__init__(name=name, daemon=True)
        self._here, self.directory, self.policy = here, folder / name, plain_policy(**policy)
        self.outcome: Any = None
        self.error: BaseException | None = None

    def connection(self, _: str) -> Connection:
        return Connection(url=self._here.url, patience_seconds=30.0)

    def enrol(self) -> Hospital:
        token = self._here.invite(STUDY, self.name)
        return Hospital.enrol(self._here.url, token, directory=self.directory, connection=self.connection)

    def hospital(self) -> Hospital:
        clock = ServerClock(self._here.now)
        return Hospital(Identity.open(self.directory), connection=self.connection, clock=clock)

    def again(self) -> Self:
        """The same hospital, to be started once more."""
        other = type(self)(self._here, self.directory.parent, self.name)
        other.policy = self.policy
        return other

    def run(self) -> None:
        data = records(20, seed=sum(self.name.encode()))
        try:
            self.outcome = self.hospital().join(STUDY, None, data, policy=self.policy, dataset=DATASET)
        except WardroundError as error:
            self.error = error

    def charged(self, rounds: int) -> list[int]:
        """Which of the first rounds its ledger has paid for; to be asked once the thread has ended."""
        path = ledger_path(self.directory, DATASET)
        if not path.exists():
            return []
        with HospitalLedger.open(path, read_only=True) as ledger:
            return [number for number in range(1, rounds + 1) if ledger.charged_round(STUDY, number) is not None]


def _read(blobs: Any, place: Place, sha256: str) -> bytes:
    with blobs.open(place, sha256) as file:
        return file.read(0, file.bytes)


class KeptSums:
    """`sums`: of updates, by round, as the coordinator opens them. `sent`: what each hospital's last update really was.

    Only the test knows the latter.
    """

    def __init__(self, here: Live, study: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sums: dict[int, Values] = {}
        self.sent: dict[str, Values] = {}
        decided, words = close._decided, delivery.ring_vectors_of

        def keep(blobs: Any, due: Any) -> Any:
            for place, sha256 in due.updates:
                number = next(n for n in range(1, 1000) if place == sum_of(study, n, UPDATE))
                view = lists.read_session(here.coordinator, study, number)[1]
                (spec,) = [v for v in SessionParameters.from_bytes(view.signed.parameters).vectors if v.name == UPDATE]
                self.sums[number] = decode(spec, np.frombuffer(_read(blobs, place, sha256), spec.dtype))
            return decided(blobs, due)

        def watch(privacy: Any, model: Any, vectors: Any, made: Any, *rest: Any, **options: Any) -> Any:
            self.sent[threading.current_thread().name] = flatten(made.update, model)
            return words(privacy, model, vectors, made, *rest, **options)

        monkeypatch.setattr(close, "_decided", keep)
        monkeypatch.setattr(delivery, "ring_vectors_of", watch)
