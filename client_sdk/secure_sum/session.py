"""A hospital's half of the secure sum: advertise → share → mask → confirm → unmask, with no I/O but its store.

Every step checks what the coordinator showed, writes the state, and only then returns the message to send
(Bonawitz et al. 2017, with signed keys, a consistency exchange and one release per round). Repeating a step with the
same input returns the same message. With another input it is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from client_sdk.secure_sum import checks, steps
from client_sdk.secure_sum.refusals import (
    CohortRefused,
    ResultRefused,
    SharesRefused,
    StateRefused,
    SurvivorsRefused,
    VectorsRefused,
)
from client_sdk.secure_sum.steps import Current, Party
from client_sdk.secure_sum.store import (
    Opened,
    RoundRecord,
    Secrets,
    SessionRecord,
    Store,
    keep_opened,
    newest_opened,
    opened_from,
    record_of,
)
from study_protocol.secure_sum import masking, transcript
from study_protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SharesMessage,
    SumResult,
    SurvivorList,
    UnmaskMessage,
)
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import RingVector
from study_protocol.study.messages import SignedParameters

Derived = Callable[[bytes, str, bytes], bytes]
Phase = Literal["idle", "advertised", "shared", "masked", "confirmed", "unmasked", "ended"]


@dataclass(frozen=True, repr=False)
class MaskedUpload:
    """The manifest and the masked words by name. Their little-endian octets in the parameters' order are the body."""

    manifest: Manifest
    vectors: Mapping[str, RingVector]


class SecureSumClient:
    """One hospital, one round. All state is in the store: a restarted process goes on where the old one stopped.

    Guarantees: keys are fresh for every session. One set of words is masked per round, and one survivor set is opened
    per round. Of each peer only one of the two secrets is ever opened. Secrets leave the store after unmasking, abort
    or expiry (copies in the memory of a Python process cannot be wiped).
    """

    def __init__(
        self,
        party: Party,
        study: str,
        round_number: int,
        store: Store,
        randomness: Callable[[int], bytes] = os.urandom,
        derived: Derived = lambda fresh, use, context: fresh,
    ) -> None:
        """`randomness(n)` returns n bytes of a cryptographic generator, and `derived` is `Randomness.derived`."""
        self._party = party
        self._study = study
        self._round = round_number
        self._store = store
        self._randomness, self._derived = randomness, derived

    @property
    def phase(self) -> Phase:
        """Return the last step taken in the current session, or `ended` when its secrets went without a release."""
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
        record = self.forget_if_expired(now)
        if record.released:
            raise StateRefused("already-released", "this hospital opened shares for the round and does so only once")
        joined = record.session is not None and record.session.parameters == signed.parameters
        parameters = checks.check_parameters(signed, plan, self._party, now, joined=joined)
        if joined:
            # The same keys again, also after a restart: others would not fit what was sent.
            return self._live(now).session.keys
        if parameters.session in record.sessions:
            raise StateRefused("session-replayed", "this session was joined before, with other parameters or keys")
        # Two pairs, because one private half is opened if this client is lost, and must not open shares.
        ph, client = transcript.parameters_hash(signed.parameters), self._party.client
        share, mask, seed = (self._draw(use, ph) for use in ("share-key", "mask-key", "seed"))
        secrets = Secrets(share_private=share, mask_private=mask, seed=seed)
        share_key, mask_key = masking.public_key(secrets.share_private), masking.public_key(secrets.mask_private)
        signature = self._sign(transcript.keys_statement(ph, client, share_key, mask_key))
        keys = KeysMessage(client=client, share_key=share_key, mask_key=mask_key, signature=signature)
        session = SessionRecord(parameters=signed.parameters, secrets=secrets, keys=keys)
        self._save(record.model_copy(update={"session": session, "sessions": (*record.sessions, parameters.session)}))
        return keys

    def share(
        self, cohort: KeyList, now: int, previous_cohort: frozenset[str] | None = None, *, exact: bool = False
    ) -> SharesMessage:
        """Step 1: check U1 and seal a share of both secrets for each neighbour in it.

        `previous_cohort` is `opened_cohort()` where slowly changing totals are summed without noise: a cohort that
        differs from it by exactly one client is refused, since the two sums would show that client's value.
        exact: as in `confirm`. Here, before anything is paid, a U1 is refused of which no set can come that it allows.

        Raises:
            CohortRefused: see `check_cohort`, a second list for the same session, or `same-model-again`.
            StateRefused: no session, an ended one, or one that was not joined.
        """
        current = self._live(now)
        session = current.session
        if session.shares is not None:
            if cohort.entries != session.cohort:
                lists = {"keys": cohort.entries, "keys_before": session.cohort}
                proof = {name: [entry.model_dump(mode="json") for entry in entries] for name, entries in lists.items()}
                raise CohortRefused("second-key-list", "the coordinator showed another list of keys before", proof)
            return session.shares
        checks.check_cohort(cohort.entries, current, self._party, previous_cohort)
        if exact or checks.shows_totals(current.parameters.vectors):
            checks.check_may_be_summed_again(self._opened_from(current), (entry.client for entry in cohort.entries))
        # Kept: a member may leave or change its key before the sum is opened.
        identities = {entry.client: self._party.roster[entry.client].public_bytes_raw() for entry in cohort.entries}
        current = current.having(cohort=cohort.entries, identities=identities)
        slots, kept_shares = steps.seal_shares(current, self._draw("shares", current.h1))
        client, secrets = current.client, current.secrets
        commitment = transcript.seed_commitment(current.h1, client, secrets.seed)
        signature = self._sign(transcript.shares_statement(current.h1, client, commitment, slots))
        message = SharesMessage(client=client, commitment=commitment, slots=slots, signature=signature)
        secrets = secrets.model_copy(update={"shares": {client: kept_shares}})
        self._save(current.having(secrets=secrets, shares=message).record)
        return message

    def mask(self, inbox: Inbox, words: Mapping[str, RingVector], now: int) -> MaskedUpload:
        """Step 2: open the shares of U2 and mask the words of every vector (`secure_sum_vectors.encode`).

        Raises:
            SharesRefused: too few shares, one that does not open, or another U2 than before.
            VectorsRefused: words that do not fit the parameters, or differ from those first prepared for the round.
            StateRefused: shares were not sent yet, or the session is over.
        """
        current = self._live(now)
        session, secrets = current.session, current.secrets
        if session.shares is None:
            raise StateRefused("step-out-of-order", "masking comes after sharing")
        received = steps.open_inbox(current, inbox)
        if session.manifest is not None and inbox.sharers != session.sharers:
            raise SharesRefused("second-share-list", "the coordinator delivered the shares of other clients before")
        digests = steps.digests_of_words(current.parameters, words)
        if current.record.words not in (None, digests):
            raise VectorsRefused("other-words", "other words were prepared for this round: a retry sends the same ones")
        current = current.having(sharers=inbox.sharers)
        vectors = steps.mask_vectors(current, words)
        written = {name: hashlib.sha256(vector.data).digest() for name, vector in vectors.items()}
        signature = self._sign(current.masked_statement(current.client, written))
        manifest = Manifest(client=current.client, digests=written, signature=signature)
        # A second time the vectors come out the same: the masks follow from the stored secrets.
        if session.manifest is None:
            secrets = secrets.model_copy(update={"shares": {**secrets.shares, **received}})
            masked = current.having(secrets=secrets, manifest=manifest)
            self._save(masked.record.model_copy(update={"words": digests}))
        return MaskedUpload(manifest, vectors)

    def confirm(self, survivors: SurvivorList, now: int, *, exact: bool = False) -> ConsistencyMessage:
        """Step 3: check U3 and sign it.

        exact: the sums carry no noise of the hospitals. Then any other U3 is refused than the one that was opened for
        the same model: enough sums over different sets, from the same weights, can be solved for every client's value.

        Raises:
            SurvivorsRefused: see `check_survivors`, a second survivor list, or `same-model-again`.
            StateRefused: no vector was masked yet, or the session is over.
        """
        current = self._live(now)
        session = current.session
        if session.manifest is None:
            raise StateRefused("step-out-of-order", "confirming comes after masking")
        if session.consistency is not None:
            if survivors.entries != session.survivors:
                raise SurvivorsRefused("second-survivor-list", "the coordinator showed another survivor list before")
            return session.consistency
        checks.check_survivors(survivors.entries, current)
        if exact or checks.shows_totals(current.parameters.vectors):
            names = (entry.client for entry in survivors.entries)
            checks.check_is_summed_again(self._opened_from(current), names)
        confirmed = current.having(survivors=survivors.entries)
        message = ConsistencyMessage(client=current.client, signature=self._sign(confirmed.consistency_statement))
        self._save(confirmed.having(consistency=message).record)
        return message

    def unmask(self, signatures: ConsistencyList, now: int) -> UnmaskMessage:
        """Step 4: open one share of each neighbour in U2: of the seed in U3, of the mask key outside. Erases all
        secrets.

        Raises:
            SurvivorsRefused: too few survivors signed the set that this hospital confirmed.
            StateRefused: no set was confirmed yet, or the session ended without a release.
        """
        # Not `_live`: after the first time the secrets are gone, and the same message is given again.
        current = self._current(now)
        session = current.session
        if session.unmask is not None:
            return session.unmask
        if session.consistency is None:
            raise StateRefused("step-out-of-order", "unmasking comes after confirming")
        checks.check_consistency(signatures.entries, current)
        shares = steps.shares_to_open(current)
        signature = self._sign(steps.unmask_statement(current, shares))
        message = UnmaskMessage(client=current.client, shares=shares, signature=signature)
        released = Opened(
            round=self._round,
            cohort=tuple(entry.client for entry in session.cohort),
            survivors=tuple(entry.client for entry in session.survivors),
            model=current.parameters.subject,
        )
        # First: killed in between, the shares count as opened though they never left. The other way round they would
        # be forgotten.
        keep_opened(self._store, self._study, released)
        # In one write: opened and erased, or neither.
        record = current.having(unmask=message, secrets=None).record
        self._save(record.model_copy(update={"released": True}))
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
        current = Current(record, session)
        if result.survivors != tuple(entry.client for entry in session.survivors):
            raise ResultRefused("other-survivors", "the result sums other clients than those that were confirmed")
        statement = transcript.result_statement(current.h1, current.u3, result.digests)
        if not transcript.is_signed(self._party.coordinator, result.signature, statement):
            raise ResultRefused("unsigned-result", "the coordinator's signature on the result is not valid")
        self._save(record.checked)

    def abort(self) -> None:
        """Leave the session: erase its secrets. Messages sent so far cannot be unmasked with this hospital's help."""
        record = self._load()
        if record.session is not None and record.session.secrets is not None:
            self._save(Current(record, record.session).having(secrets=None).record)

    def forget_if_expired(self, now: int) -> RoundRecord:
        """Erase the secrets of a session that has expired. Every step does so too. Call it when none will come."""
        record = self._load()
        if record.session is not None and now > Current(record, record.session).parameters.expires:
            self.abort()
            return self._load()
        return record

    def opened_cohort(self) -> frozenset[str] | None:
        """Return the cohort of the last earlier round for which this hospital opened shares, or None if it never
        did."""
        newest = newest_opened(self._store, self._study)
        return None if newest is None or newest.round >= self._round else frozenset(newest.cohort)

    def _opened_from(self, current: Current) -> Opened | None:
        # The last one stands for all that went before: they were over the same set, or refused.
        return opened_from(self._store, self._study, current.parameters.subject)

    def _draw(self, use: str, context: bytes) -> bytes:
        """32 secret bytes. context: digest of what they are for, so that no other session has them."""
        return self._derived(self._randomness(32), use, context)

    def _sign(self, statement: bytes) -> bytes:
        return transcript.sign(self._party.identity, statement)

    def _load(self) -> RoundRecord:
        return record_of(self._store, self._study, self._round)

    def _save(self, record: RoundRecord) -> None:
        self._store.save(self._study, self._round, record.to_bytes())

    def _current(self, now: int) -> Current:
        record = self.forget_if_expired(now)
        if record.session is None:
            raise StateRefused("no-session", "this hospital is in no session of this round")
        return Current(record, record.session)

    def _live(self, now: int) -> Current:
        current = self._current(now)
        # Raises where they are erased.
        _ = current.secrets
        return current
