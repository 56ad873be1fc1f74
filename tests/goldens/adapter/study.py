"""A study from its creation to its end, and what it shows on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.delivery import ring_vectors_of
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.steps import Party
from private_learning import tasks
from private_learning.training import Contribution, LocalTraining
from private_learning.training.weights import weights_of
from server.db.blobs import sum_of
from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.secure_sum import lists
from server.services.studies import lifecycle, models
from server.worker import Worker
from study_protocol.randomness.source import Purpose, SeededRandomness
from study_protocol.secure_sum.messages import (
    ConsistencyList,
    Inbox,
    KeyList,
    SessionParameters,
    SumResult,
    SurvivorList,
)
from study_protocol.secure_sum.parameters import SessionPlan, sums_as_in_papers, vectors_of
from study_protocol.secure_sum.vectors import decode as decode_sum
from study_protocol.study.messages import Roster, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import decode_public_key
from study_protocol.wire.tensors import UPDATE, Array, decode, encode, spec_of
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.masked_studies import body_of, octets_said, said, shown
from tests.factories.secure_sum import MemoryStore
from tests.goldens.adapter.settings import CLIENTS, RECORDS, ROUNDS, Json, records_of
from tests.goldens.adapter.words import ENDS, ENTRIES, VECTORS, fingerprint, limit_of, report_of, rounded

NOW = 1_800_000_000


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"key of {name}".encode()).digest())


@dataclass
class _Side:
    """One hospital: its records, its accounts as they lie on its disk, its half of every secure sum."""

    hospital: Hospital
    training: LocalTraining
    saved: bytes | None = None
    told_records: bool = False
    store: MemoryStore = field(default_factory=MemoryStore)

    def log_moments(self) -> LogMomentBounds | None:
        settings, patients = self.training.settings, self.training.dataset.patients
        if not any((x.level, x.definition) == ("instance", "bayesian") for x in settings.privacy.limits):
            return None
        if self.saved is not None:
            return LogMomentBounds.restore(settings, patients, self.saved)
        return LogMomentBounds(settings, patients, self.training.randomness_in(0).of(Purpose.ACCOUNTING_SAMPLE))

    def train(
        self, weights: Mapping[str, Array], round: int, total: float | None
    ) -> tuple[Contribution, LogMomentBounds | None]:
        log_moments = self.log_moments()
        made = self.training.contribution(weights, log_moments, round_number=round, total_records=total)
        self.saved = None if log_moments is None else log_moments.to_bytes()
        return made, log_moments


class Study:
    """One study on the coordinator, driven to its end."""

    def __init__(
        self, coordinator: Coordinator, name: str, settings: StudySettings, randomness: SeededRandomness
    ) -> None:
        self._coordinator, self._name, self._settings = coordinator, name, settings
        self._worker = Worker(coordinator, owner="goldens")
        task = tasks.load(settings.training.task, settings.training.task_parameters)
        self._model = weights_of(task.model())
        self._sums: list[Json] = []
        self._statements: list[Json] = []
        lifecycle.create(coordinator, StudyCreate(study=name, settings=settings))
        with coordinator.blobs.receive(1 << 20) as incoming:
            incoming.write(encode(self._model))
            models.put_initial(coordinator, name, incoming)
        self._sides = [
            _Side(
                Hospital(UseCases(coordinator), name, f"h{i}", _key(f"h{i}")).enrol(),
                LocalTraining(task, records_of(i), settings, randomness, party=f"h{i}"),
            )
            for i in range(CLIENTS)
        ]
        lifecycle.act(coordinator, name, "start")

    def run(self) -> Json:
        self._work()
        while lifecycle.show(self._coordinator, self._name).state != "finished":
            round = self._look()
            if self._settings.privacy.masking is None:
                self._clear_round(round)
            else:
                self._masked_round(round)
            self._work()
        self._look()
        return {
            "end": ENDS[lifecycle.show(self._coordinator, self._name).stop_reason],
            "models": [self._released(version) for version in range(1, ROUNDS + 1)],
            "sums": self._sums,
            "ledger": self._ledger(),
            "statements": self._statements,
        }

    # -- rounds

    def _clear_round(self, round: int) -> None:
        weights = self._weights(round - 1)
        for side in self._sides:
            if side.hospital.assignment() is not None:
                self._send(side, round, *side.train(weights, round, None))

    def _send(self, side: _Side, round: int, made: Contribution, log_moments: LogMomentBounds | None) -> None:
        update = {UPDATE + name: array for name, array in made.update.items()}
        hidden = self._settings.privacy.masking is not None
        side.hospital.send(round, encode(update | ({} if log_moments is None or hidden else log_moments.tensors())))

    def _masked_round(self, round: int) -> None:
        at, place = self._coordinator, (self._name, round)
        view = lists.read_session(at, *place)[1]
        parameters = SessionParameters.from_bytes(view.signed.parameters)
        expected = SessionPlan.of(
            self._settings,
            spec_of(self._model),
            study=self._name,
            round_number=round,
            roster=parameters.roster,
            model=parameters.model or "",
            ledger=(parameters.ledger_entries or 0, parameters.ledger_sha256 or ""),
        )
        members = views.roster(at, *place)
        halves = {side.hospital.name: self._half(side, members, round) for side in self._sides}
        for half in halves.values():
            said(at, round, half.advertise(view.signed, expected, NOW), self._name)
        # What all are shown alike is read once.
        keys = shown(at, *place, "keys", KeyList)
        for half in halves.values():
            said(at, round, half.share(keys, NOW), self._name)
        for side in self._sides:
            self._upload(side, halves[side.hospital.name], round)
        survivors = shown(at, *place, "survivors", SurvivorList)
        for half in halves.values():
            said(at, round, half.confirm(survivors, NOW), self._name)
        confirmed = shown(at, *place, "consistency", ConsistencyList)
        for half in halves.values():
            said(at, round, half.unmask(confirmed, NOW), self._name)
        self._worker.step()
        self._sums.append(self._opened(round, parameters))

    def _half(self, side: _Side, members: Roster, round: int) -> SecureSumClient:
        party = Party(
            client=side.hospital.name,
            identity=side.hospital.key,
            coordinator=decode_public_key(self._coordinator.signer.public_key),
            roster={m.client: decode_public_key(m.public_key) for m in members.members},
            roster_fingerprint=members.fingerprint,
            floors=Floors(1, CLIENTS, True),
        )
        return SecureSumClient(party, self._name, round, side.store)

    def _upload(self, side: _Side, half: SecureSumClient, round: int) -> None:
        total = self._total_records() if round > 1 else None
        made, log_moments = side.train(self._weights(round - 1), round, total)
        masking, name = self._settings.privacy.masking, side.hospital.name
        if masking is not None and not masking.mask_updates:
            self._send(side, round, made, log_moments)
        vectors = vectors_of(self._settings, spec_of(self._model), CLIENTS)
        # Told once, as a hospital does.
        records = 0 if total is not None or side.told_records else RECORDS
        side.told_records = True
        drawn = side.training.randomness_in(round)
        words = ring_vectors_of(
            self._settings.privacy, spec_of(self._model), vectors, made, log_moments, records=records, randomness=drawn
        )
        inbox = shown(self._coordinator, self._name, round, "inbox", Inbox, name)
        upload = half.mask(inbox, words, NOW)
        octets_said(self._coordinator, round, upload.manifest, body_of(upload), self._name)

    def _total_records(self) -> float | None:
        if not sums_as_in_papers(self._settings.privacy):
            return None
        for entry in ledger_page(self._coordinator, self._name).entries:
            reported = (entry.body.get("report") or {}) if entry.kind == "settled" else {}
            if "records" in reported:
                return float(reported["records"])
        return None

    def _work(self) -> None:
        while self._worker.step():
            pass

    # -- what came out

    def _weights(self, version: int) -> dict[str, Array]:
        found = views.locate_model(self._coordinator, self._name, version)
        return decode(found.open().read(0, 1 << 30), spec_of(self._model))

    def _released(self, version: int) -> Json:
        """All parameters of a released model in order of their names, as float32."""
        weights = self._weights(version)
        flat = np.concatenate([weights[name].astype("<f4").reshape(-1) for name in sorted(weights)])
        return fingerprint(flat.tobytes(), flat)

    def _opened(self, round: int, parameters: SessionParameters) -> Json:
        """What the opened sums of every vector mean; to the last bit they are in the models and in the ledger."""
        result = shown(self._coordinator, self._name, round, "result", SumResult)
        found: Json = {}
        for spec in parameters.vectors:
            place = sum_of(self._name, round, spec.name)
            file = self._coordinator.blobs.open(place, result.digests[spec.name].hex())
            if file is None:
                raise AssertionError(f"the opened sum {spec.name} is gone")
            # Not the words: behind the sum they carry a check that is drawn anew by every hospital.
            values = decode_sum(spec, np.frombuffer(file.read(0, file.bytes), spec.dtype))
            found[VECTORS[spec.name]] = {"values": rounded(values)}
        return found

    def _ledger(self) -> list[Json]:
        """What became of every round's reservation, and on what report."""
        entries = ledger_page(self._coordinator, self._name).entries
        return [
            {"what": ENTRIES[entry.kind], "round": entry.round, "evidence": report_of(entry.body.get("report"))}
            for entry in entries
            # Who is a member is in no figure; the entries of roster and models are younger than the goldens.
            if entry.kind not in ("roster", "released")
        ]

    def _look(self) -> int:
        """Write down the budget as everybody may read it now; the round that is under way."""
        reported = views.read_budget(self._coordinator, self._name)
        shares = [number for one in reported.percentiles for number in (one.population, one.epsilon, one.delta)]
        limits = [limit_of(limit.model_dump(mode="json")) for limit in reported.limits]
        self._statements.append(
            {"round": reported.round, "goes on": reported.can_continue, "limits": limits, "shares": shares}
        )
        return reported.round
