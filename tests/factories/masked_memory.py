"""Masked rounds in one process: every hospital's own half and the coordinator's values, without a network.

Keys, shares, masks, the comparison of survivors and the recovery are those of a study; only the sending is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.session import MaskedUpload, SecureSumClient
from client_sdk.secure_sum.steps import Party
from server.domain import secure_sum as domain
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum_total import ReadWords, unmasked
from study_protocol.randomness.source import SecureSource
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import RingVector, VectorSpec, canary_sum
from study_protocol.study.any_settings import AnySettings, require_training
from study_protocol.study.messages import SignedParameters
from study_protocol.study.queries import QueryDocument
from study_protocol.wire.tensors import Spec

STUDY, ROSTER, MODEL = "audit", "ab" * 32, "cd" * 32
Words = Mapping[str, RingVector]
T = TypeVar("T")


class MaskedRoundFailed(Exception):
    """A session in which everybody is there did not end with a sum: a defect."""


@dataclass
class _Memory:
    """A hospital's file of sessions."""

    records: dict[tuple[str, int], bytes] = field(default_factory=dict[tuple[str, int], bytes])

    def load(self, study: str, round_number: int) -> bytes | None:
        return self.records.get((study, round_number))

    def save(self, study: str, round_number: int, record: bytes) -> None:
        self.records[study, round_number] = record


class MaskedHospitals:
    """Hospitals that know one another, and a coordinator whose key they have.

    model  names and shapes of the parameters; none where nothing is trained
    """

    def __init__(self, settings: AnySettings, model: Spec, names: list[str]) -> None:
        masking = settings.privacy.masking
        if masking is None:
            raise ValueError("masking: this study has no sums under masks")
        self._settings, self._model = settings, model
        self._coordinator = Ed25519PrivateKey.generate()
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        self._roster = {name: key.public_key() for name, key in keys.items()}
        floors = Floors(masking.colluders, masking.min_survivors, masking.allow_three)
        coordinator = self._coordinator.public_key()
        self._parties = {
            name: Party(name, key, coordinator, self._roster, ROSTER, floors) for name, key in keys.items()
        }
        self._stores = {name: _Memory() for name in names}

    def summed(
        self,
        round: int,
        words: Callable[[str, tuple[VectorSpec, ...]], Words],
        *,
        asked: QueryDocument | None = None,
        lost: Collection[str] = (),
    ) -> dict[str, tuple[VectorSpec, RingVector]]:
        """Vector name -> (its specification, the sum over all hospitals that are not lost).

        words  what a hospital writes, given the session's vectors
        asked  the query of the round; None: it is one of training
        lost   who fall silent once they have shared their keys
        """
        plan = self._plan(round, asked)
        parameters = plan.parameters(len(self._parties), session=SecureSource().read(32), now=0)
        raw = parameters.to_bytes()
        statement = transcript.parameters_statement(transcript.parameters_hash(raw))
        signed = SignedParameters(parameters=raw, signature=transcript.sign(self._coordinator, statement))
        session = domain.Session(parameters, self._roster)
        clients = {
            name: SecureSumClient(party, STUDY, round, self._stores[name]) for name, party in self._parties.items()
        }
        for client in clients.values():
            session = _taken(domain.admit_keys(session, client.advertise(signed, plan, 0)))
        for client in clients.values():
            session = _taken(domain.admit_shares(session, client.share(_given(domain.key_list(session)), 0)))
        uploads: dict[str, MaskedUpload] = {}
        for name in lost:
            del clients[name]
        for name, client in clients.items():
            upload = client.mask(_given(domain.inbox(session, name)), words(name, parameters.vectors), 0)
            session = _taken(domain.admit_manifest(session, upload.manifest))
            uploads[name] = upload
        if lost:
            # At the deadline, where whoever is silent is waited for no longer.
            session = domain.advance(session, parameters.deadlines.masked)
        for client in clients.values():
            survivors = _given(domain.survivor_list(session))
            session = _taken(domain.admit_consistency(session, client.confirm(survivors, 0)))
        for client in clients.values():
            stories = _given(domain.consistency_list(session))
            session = _taken(domain.admit_unmask(session, client.unmask(stories, 0)))
        return _opened(session, uploads)

    def _plan(self, round: int, asked: QueryDocument | None) -> SessionPlan:
        ledger = (round, ROSTER)
        if asked is not None:
            of = SessionPlan.of_query
            return of(self._settings, asked, study=STUDY, round_number=round, roster=ROSTER, model=None, ledger=ledger)
        of = SessionPlan.of
        settings = require_training(self._settings)
        return of(settings, self._model, study=STUDY, round_number=round, roster=ROSTER, model=MODEL, ledger=ledger)


def _opened(session: domain.Session, uploads: Mapping[str, MaskedUpload]) -> dict[str, tuple[VectorSpec, RingVector]]:
    recovered = _given(recovery.recover(session))
    found: dict[str, tuple[VectorSpec, RingVector]] = {}
    for spec in session.parameters.vectors:
        total = sum_of(session, recovered, spec, [uploads[name].vectors[spec.name] for name in session.survivors])
        if total is None:
            raise MaskedRoundFailed(spec.name)
        found[spec.name] = (spec, total)
    return found


def sum_of(
    session: domain.Session, recovered: recovery.Recovered, spec: VectorSpec, vectors: Sequence[RingVector]
) -> RingVector | None:
    """The survivors' sum, of shape (spec.words,), the canary's words last. None: the masks did not cancel."""

    def reader(vector: RingVector) -> ReadWords:
        def read(start: int, room: RingVector) -> None:
            room[:] = vector[start : start + room.size]

        return read

    keys = recovery.mask_keys_of(session, recovered, spec)
    # A piece's memory is used again for the next.
    total = np.concatenate([part.copy() for part in unmasked(spec, [reader(one) for one in vectors], keys)])
    return total if canary_holds(spec, total, session.h1, session.survivors) else None


def canary_holds(spec: VectorSpec, total: RingVector, h1: bytes, clients: Iterable[str]) -> bool:
    """Tell whether an unmasked sum ends in the canary words of exactly these clients."""
    return total.shape == (spec.words,) and bool(
        np.array_equal(total[spec.data_words :], canary_sum(spec, h1, clients))
    )


def _taken(outcome: domain.Session | domain.Repeated | domain.Declined) -> domain.Session:
    if not isinstance(outcome, domain.Session):
        raise MaskedRoundFailed(str(outcome))
    return domain.advance(outcome, 0)


def _given(shown: T | domain.Declined) -> T:
    if isinstance(shown, domain.Declined):
        raise MaskedRoundFailed(str(shown))
    return shown
