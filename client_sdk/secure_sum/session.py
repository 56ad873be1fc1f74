"""A hospital's half of the secure sum: advertise → share → mask → confirm → unmask, with no I/O but its store.

Every step checks what the coordinator showed, writes the state, and only then returns the message to send
(Bonawitz et al. 2017, with signed keys, a consistency exchange and one release per round). Repeating a step with
the same input returns the same message; with another input it is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from client_sdk.protocol.secure_sum import masking, transcript
from client_sdk.protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    SignedParameters,
    SumResult,
    SurvivorList,
    UnmaskMessage,
)
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.secure_sum.vectors import RingVector
from client_sdk.secure_sum.refusals import (
    CohortRefused,
    ResultRefused,
    SharesRefused,
    StateRefused,
    SurvivorsRefused,
    VectorsRefused,
)
from client_sdk.secure_sum.steps import (
    Party,
    check_cohort,
    check_consistency,
    check_parameters,
    check_survivors,
    digests_of_words,
    mask_vector,
    open_inbox,
    opened_shares,
    seal_shares,
    shows_totals,
)
from client_sdk.secure_sum.store import Opened, RoundRecord, Secrets, SessionRecord, Store, opened_rounds

Phase = Literal["idle", "advertised", "shared", "masked", "confirmed", "unmasked", "ended"]


@dataclass(frozen=True)
class MaskedUpload:
    """The manifest and, by vector name, the masked words: little-endian, `vectors[name].tobytes()` is the body."""

    manifest: Manifest
    vectors: Mapping[str, RingVector]


@dataclass(frozen=True)
class _Current:
    """The session as stored, with what follows from it."""

    record: RoundRecord
    session: SessionRecord
    parameters: SessionParameters
    ph: bytes
    h1: bytes

    @property
    def secrets(self) -> Secrets:
        if self.session.secrets is None:
            raise StateRefused("session-over", "this session was unmasked, left or has expired: its secrets are erased")
        return self.session.secrets

    @property
    def identities(self) -> dict[str, Ed25519PublicKey]:
        return {name: Ed25519PublicKey.from_public_bytes(key) for name, key in self.session.identities.items()}


class SecureSumClient:
    """One hospital, one round. All state is in the store: a restarted process goes on where the old one stopped.

    Guarantees: keys are fresh for every session; one set of words is masked per round; one survivor set is opened
    per round; of each peer only one of the two secrets is ever opened; secrets leave the store after unmasking,
    abort or expiry (copies in the memory of a Python process cannot be wiped).
    """

    def __init__(
        self,
        party: Party,
        study: str,
        round_number: int,
        store: Store,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`randomness(n)` returns n bytes of a cryptographic generator."""
        self._party = party
        self._study = study
        self._round = round_number
        self._store = store
        self._randomness = randomness

    @property
    def phase(self) -> Phase:
        """The last step taken in the current session; `ended` when its secrets went without a release."""
        session = self._load().session
        if session is None:
            return "idle"
        if session.unmask is not None:
            return "unmasked"
        if session.secrets is None:
            return "ended"
        if session.consistency is not None:
            return "confirmed"
        if session.manifest is not None:
            return "masked"
        return "advertised" if session.shares is None else "shared"

    @property
    def released(self) -> bool:
        """Whether this hospital has opened shares for the round: for ever true once it has."""
        return self._load().released

    def advertise(self, signed: SignedParameters, plan: SessionPlan, now: int) -> KeysMessage:
        """Step 0: join the session. Joining another session of the round erases the earlier one's secrets.

        Raises:
            ParametersRefused: see `check_parameters`.
            StateRefused: the round was released, or the session is an earlier one or has other parameters.
        """
        record = self._unexpired(now)
        if record.released:
            raise StateRefused("already-released", "this hospital opened shares for the round and does so only once")
        parameters = check_parameters(signed, plan, self._party, now)
        if record.session is not None and record.session.parameters == signed.parameters:
            return self._live(now).session.keys
        if parameters.session in record.sessions:
            raise StateRefused("session-replayed", "this session was joined before, with other parameters or keys")
        secrets = Secrets(
            share_private=self._randomness(32), mask_private=self._randomness(32), seed=self._randomness(32)
        )
        keys = self._keys(secrets, transcript.parameters_hash(signed.parameters))
        session = SessionRecord(parameters=signed.parameters, secrets=secrets, keys=keys)
        self._save(record.model_copy(update={"session": session, "sessions": (*record.sessions, parameters.session)}))
        return keys

    def share(self, cohort: KeyList, now: int, previous_cohort: frozenset[str] | None = None) -> SharesMessage:
        """Step 1: check U1 and seal a share of both secrets for each of its members.

        `previous_cohort` is `opened_cohort()` where slowly changing totals are summed without noise: a cohort that
        differs from it by exactly one client is refused, since the two sums would show that client's value.

        Raises:
            CohortRefused: see `check_cohort`, or a second list for the same session.
            StateRefused: no session, an ended one, or one that was not joined.
        """
        current = self._live(now)
        session = current.session
        if session.shares is not None:
            if cohort.entries != session.cohort:
                raise CohortRefused("second-key-list", "the coordinator showed another list of keys before")
            return session.shares
        check_cohort(cohort.entries, session.keys, current.parameters, current.ph, self._party, previous_cohort)
        h1 = _cohort_hash(current.ph, cohort.entries)
        message, kept = self._seal(current, cohort.entries, h1)
        secrets = current.secrets.model_copy(update={"shares": {self._party.client: kept}})
        identities = {entry.client: self._party.roster[entry.client].public_bytes_raw() for entry in cohort.entries}
        self._update(current, secrets=secrets, cohort=cohort.entries, identities=identities, shares=message)
        return message

    def mask(self, inbox: Inbox, words: Mapping[str, RingVector], now: int) -> MaskedUpload:
        """Step 2: open the shares of U2 and mask the words of every vector (`secure_sum_vectors.encode`).

        Raises:
            SharesRefused: too few shares, one that does not open, or another U2 than before.
            VectorsRefused: words that do not fit the parameters, or differ from those first prepared for the round.
            StateRefused: shares were not sent yet, or the session is over.
        """
        current = self._live(now)
        if current.session.shares is None:
            raise StateRefused("step-out-of-order", "masking comes after sharing")
        received = self._open(current, inbox)
        sharers = tuple(sorted({*received, self._party.client}))
        if current.session.manifest is not None and sharers != current.session.sharers:
            raise SharesRefused("second-share-list", "the coordinator delivered the shares of other clients before")
        digests = digests_of_words(current.parameters, words)
        if current.record.words not in (None, digests):
            raise VectorsRefused("other-words", "other words were prepared for this round: a retry sends the same ones")
        vectors = self._masked(current, sharers, words)
        manifest = self._manifest(current, sharers, vectors)
        if current.session.manifest is None:
            secrets = current.secrets.model_copy(update={"shares": {**current.secrets.shares, **received}})
            record = current.record.model_copy(update={"words": digests})
            changes = {"secrets": secrets, "sharers": sharers, "manifest": manifest}
            self._save(record.with_session(current.session.model_copy(update=changes)))
        return MaskedUpload(manifest, vectors)

    def confirm(self, survivors: SurvivorList, now: int, *, exact: bool = False) -> ConsistencyMessage:
        """Step 3: check U3 and sign it.

        exact: the sums carry no noise of the hospitals. Then a U3 is refused that differs by one client from one that
        was opened for the same model: with the same weights to start from, the two sums would show that client's value.

        Raises:
            SurvivorsRefused: see `check_survivors`, a second survivor list, or `neighbouring-survivors`.
            StateRefused: nothing was masked yet, or the session is over.
        """
        current = self._live(now)
        session = current.session
        if session.manifest is None:
            raise StateRefused("step-out-of-order", "confirming comes after masking")
        if session.consistency is not None:
            if survivors.entries != session.survivors:
                raise SurvivorsRefused("second-survivor-list", "the coordinator showed another survivor list before")
            return session.consistency
        check_survivors(
            survivors.entries, session.manifest, session.sharers, current.parameters, current.h1, current.identities
        )
        if exact or shows_totals(current.parameters.vectors):
            self._check_neighbours(current, survivors)
        statement = transcript.consistency_statement(current.h1, _survivors_hash(current, survivors.entries))
        message = ConsistencyMessage(client=self._party.client, signature=self._sign(statement))
        self._update(current, survivors=survivors.entries, consistency=message)
        return message

    def unmask(self, signatures: ConsistencyList, now: int) -> UnmaskMessage:
        """Step 4: open one share per member of U2: of the seed in U3, of the mask key outside. Erases all secrets.

        Raises:
            SurvivorsRefused: fewer than t survivors signed the set that this hospital confirmed.
            StateRefused: nothing was confirmed yet, or the session ended without a release.
        """
        current = self._current(now)
        session = current.session
        if session.unmask is not None:
            return session.unmask
        if session.consistency is None:
            raise StateRefused("step-out-of-order", "unmasking comes after confirming")
        survivors = _survivors_hash(current, session.survivors)
        statement = transcript.consistency_statement(current.h1, survivors)
        check_consistency(signatures.entries, session.survivors, current.parameters, statement, current.identities)
        survivor_names = {entry.client for entry in session.survivors}
        shares = opened_shares(current.secrets, session.sharers, survivor_names)
        signature = self._sign(
            transcript.unmask_statement(
                current.h1, survivors, self._party.client, ((s.peer, s.kind, s.share) for s in shares)
            )
        )
        message = UnmaskMessage(client=self._party.client, shares=shares, signature=signature)
        session = session.model_copy(update={"unmask": message, "secrets": None})
        opened = Opened(
            cohort=tuple(entry.client for entry in session.cohort),
            survivors=tuple(entry.client for entry in session.survivors),
            model=current.parameters.model,
        )
        self._save(current.record.model_copy(update={"released": True, "opened": opened, "session": session}))
        return message

    def check_result(self, result: SumResult) -> None:
        """Compare the announced result with what this hospital saw, and drop the session from the store.

        Raises:
            ResultRefused: not signed by the coordinator, or over another survivor set.
            StateRefused: this hospital did not unmask in the current session.
        """
        record = self._load()
        session = record.session
        if session is None or session.unmask is None:
            raise StateRefused("step-out-of-order", "a result comes after unmasking")
        current = _current_of(record, session)
        if result.survivors != tuple(entry.client for entry in session.survivors):
            raise ResultRefused("other-survivors", "the result sums other clients than those that were confirmed")
        statement = transcript.result_statement(current.h1, _survivors_hash(current, session.survivors), result.digests)
        if not transcript.is_signed(self._party.coordinator, result.signature, statement):
            raise ResultRefused("unsigned-result", "the coordinator's signature on the result is not valid")
        self._save(record.with_session(None))

    def abort(self) -> None:
        """Leave the session: erase its secrets. What was sent so far cannot be unmasked with this hospital's help."""
        record = self._load()
        if record.session is not None and record.session.secrets is not None:
            self._save(record.with_session(record.session.model_copy(update={"secrets": None})))

    def forget_if_expired(self, now: int) -> None:
        """Erase the secrets of a session that has expired. Every step does so too; call it when none will come."""
        self._unexpired(now)

    def opened_cohort(self) -> frozenset[str] | None:
        """The cohort of the last earlier round for which this hospital opened shares; None if it never did."""
        newest = next(opened_rounds(self._store, self._study, self._round), None)
        return None if newest is None else frozenset(newest.cohort)

    def _check_neighbours(self, current: _Current, survivors: SurvivorList) -> None:
        names = frozenset(entry.client for entry in survivors.entries)
        for opened in opened_rounds(self._store, self._study, self._round):
            if opened.model == current.parameters.model and len(names ^ frozenset(opened.survivors)) == 1:
                raise SurvivorsRefused(
                    "neighbouring-survivors",
                    "an earlier sum from this very model was over one client more or less, whose value the two show",
                )

    def _keys(self, secrets: Secrets, ph: bytes) -> KeysMessage:
        client = self._party.client
        share_key, mask_key = masking.public_key(secrets.share_private), masking.public_key(secrets.mask_private)
        signature = self._sign(transcript.keys_statement(ph, client, share_key, mask_key))
        return KeysMessage(client=client, share_key=share_key, mask_key=mask_key, signature=signature)

    def _seal(self, current: _Current, cohort: tuple[KeysMessage, ...], h1: bytes) -> tuple[SharesMessage, bytes]:
        client, secrets = self._party.client, current.secrets
        slots, kept = seal_shares(client, secrets, cohort, h1, current.parameters.threshold, self._randomness(32))
        commitment = transcript.seed_commitment(h1, client, secrets.seed)
        signature = self._sign(transcript.shares_statement(h1, client, commitment, slots))
        return SharesMessage(client=client, commitment=commitment, slots=slots, signature=signature), kept

    def _open(self, current: _Current, inbox: Inbox) -> dict[str, bytes]:
        received = open_inbox(self._party.client, current.secrets, current.session.cohort, current.h1, inbox)
        least = max(current.parameters.threshold, current.parameters.min_survivors)
        if len(received) + 1 < least:
            raise SharesRefused("few-shares", f"only {len(received) + 1} clients shared their secrets, {least} must")
        return received

    def _masked(
        self, current: _Current, sharers: tuple[str, ...], words: Mapping[str, RingVector]
    ) -> dict[str, RingVector]:
        client, session = self._party.client, current.session
        return {
            spec.name: mask_vector(client, current.secrets, session.cohort, current.h1, sharers, spec, words[spec.name])
            for spec in current.parameters.vectors
        }

    def _manifest(self, current: _Current, sharers: tuple[str, ...], vectors: Mapping[str, RingVector]) -> Manifest:
        digests = {name: hashlib.sha256(vector.data).digest() for name, vector in vectors.items()}
        said = transcript.sharers_hash(current.h1, sharers)
        client = self._party.client
        signature = self._sign(transcript.masked_statement(current.h1, said, client, digests))
        return Manifest(client=client, digests=digests, signature=signature)

    def _sign(self, statement: bytes) -> bytes:
        return transcript.sign(self._party.identity, statement)

    def _load(self) -> RoundRecord:
        raw = self._store.load(self._study, self._round)
        return RoundRecord(study=self._study, round=self._round) if raw is None else RoundRecord.from_bytes(raw)

    def _save(self, record: RoundRecord) -> None:
        self._store.save(self._study, self._round, record.to_bytes())

    def _update(self, current: _Current, **changes: object) -> None:
        self._save(current.record.with_session(current.session.model_copy(update=changes)))

    def _current(self, now: int) -> _Current:
        record = self._unexpired(now)
        if record.session is None:
            raise StateRefused("no-session", "this hospital is in no session of this round")
        return _current_of(record, record.session)

    def _live(self, now: int) -> _Current:
        current = self._current(now)
        _ = current.secrets
        return current

    def _unexpired(self, now: int) -> RoundRecord:
        """The record, its session without secrets once it has expired."""
        record = self._load()
        session = record.session
        if session is not None and now > SessionParameters.from_bytes(session.parameters).expires:
            self.abort()
            return self._load()
        return record


def _current_of(record: RoundRecord, session: SessionRecord) -> _Current:
    ph = transcript.parameters_hash(session.parameters)
    parameters = SessionParameters.from_bytes(session.parameters)
    return _Current(record, session, parameters, ph, _cohort_hash(ph, session.cohort))


def _cohort_hash(ph: bytes, cohort: tuple[KeysMessage, ...]) -> bytes:
    return transcript.cohort_hash(ph, ((entry.client, entry.share_key, entry.mask_key) for entry in cohort))


def _survivors_hash(current: _Current, survivors: tuple[Manifest, ...]) -> bytes:
    said = transcript.sharers_hash(current.h1, current.session.sharers)
    return transcript.survivors_hash(
        current.h1,
        (
            (entry.client, transcript.masked_statement(current.h1, said, entry.client, entry.digests))
            for entry in survivors
        ),
    )
