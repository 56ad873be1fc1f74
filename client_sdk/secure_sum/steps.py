"""What a hospital checks and computes at each step of the secure sum. Pure, given secrets and randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from client_sdk.guard.policy import Floors
from client_sdk.protocol.secure_sum import masking, shamir, transcript
from client_sdk.protocol.secure_sum import vectors as secure_sum_vectors
from client_sdk.protocol.secure_sum.messages import (
    SAME_MODEL_AGAIN,
    ConsistencyMessage,
    Inbox,
    KeysMessage,
    Manifest,
    OpenedShare,
    ParameterFault,
    SessionParameters,
    SignedParameters,
    require_sound,
)
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.secure_sum.vectors import EncodingError, RingVector, VectorSpec
from client_sdk.protocol.wire.signing import MOST_SKEW_SECONDS, public_key_of
from client_sdk.secure_sum.refusals import (
    CohortRefused,
    ParametersRefused,
    SharesRefused,
    StateRefused,
    SurvivorsRefused,
    VectorsRefused,
)
from client_sdk.secure_sum.store import Opened, RoundRecord, Secrets, SessionRecord


@dataclass(frozen=True)
class Party:
    """One hospital in one study. `roster` holds the members whose fingerprint `roster_fingerprint` was pinned."""

    client: str
    identity: Ed25519PrivateKey
    coordinator: Ed25519PublicKey
    roster: Mapping[str, Ed25519PublicKey]
    roster_fingerprint: str
    floors: Floors


@dataclass(frozen=True)
class Current:
    """The session as stored, with what follows from it."""

    record: RoundRecord
    session: SessionRecord

    @cached_property
    def parameters(self) -> SessionParameters:
        return SessionParameters.from_bytes(self.session.parameters)

    @cached_property
    def ph(self) -> bytes:
        """The hash of the parameters as they were signed."""
        return transcript.parameters_hash(self.session.parameters)

    @cached_property
    def h1(self) -> bytes:
        """The hash of ph and of U1: who has which masking keys."""
        members = ((entry.client, entry.share_key, entry.mask_key) for entry in self.session.cohort)
        return transcript.cohort_hash(self.ph, members)

    @cached_property
    def u2(self) -> bytes:
        """The hash of h1 and of U2: whose shares arrived here."""
        return transcript.sharers_hash(self.h1, self.session.sharers)

    @property
    def client(self) -> str:
        return self.session.keys.client

    @property
    def secrets(self) -> Secrets:
        """Raises StateRefused once they are erased."""
        if self.session.secrets is None:
            raise StateRefused("session-over", "this session was unmasked, left or has expired: its secrets are erased")
        return self.session.secrets

    @property
    def least(self) -> int:
        """Fewest clients that must go on for the session to end in a sum."""
        return max(self.parameters.threshold, self.parameters.min_survivors)

    def identity(self, client: str) -> Ed25519PublicKey | None:
        """What a member's masking keys were checked with; whoever left the study since is still in the sum."""
        raw = self.session.identities.get(client)
        return None if raw is None else public_key_of(raw)

    @cached_property
    def u3(self) -> bytes:
        """The hash of h1 and of U3: who sent which vectors."""
        entries = self.session.survivors
        said = ((entry.client, self.masked_statement(entry.client, entry.digests)) for entry in entries)
        return transcript.survivors_hash(self.h1, said)

    @property
    def consistency_statement(self) -> bytes:
        """What every survivor signs: that this U3 was shown to it."""
        return transcript.consistency_statement(self.h1, self.u3)

    def masked_statement(self, client: str, digests: Mapping[str, bytes]) -> bytes:
        """What a client signs over its vectors: it names U2."""
        return transcript.masked_statement(self.h1, self.u2, client, digests)

    def having(self, **changes: object) -> Current:
        """The same with other fields of the session."""
        session = self.session.model_copy(update=changes)
        return Current(self.record.model_copy(update={"session": session}), session)


def check_parameters(signed: SignedParameters, plan: SessionPlan, party: Party, now: int) -> SessionParameters:
    """The parameters, if this hospital may join their session.

    plan  known from the signed assignment, the settings and this hospital's own task, not from the session

    Raises:
        ParametersRefused: unsigned, malformed, unsound, below the floors, expired, or not what had to be signed.
    """
    ph = transcript.parameters_hash(signed.parameters)
    # Nothing in the bytes is read before they are known to be the coordinator's.
    if not transcript.is_signed(party.coordinator, signed.signature, transcript.parameters_statement(ph)):
        raise ParametersRefused("unsigned-parameters", "the coordinator's signature on the parameters is not valid")
    try:
        parameters = SessionParameters.from_bytes(signed.parameters)
        require_sound(parameters)
        _check_floors(parameters, party)
        if now > parameters.expires:
            raise ParametersRefused("session-expired", "the session has expired")
        _check_due(parameters, plan.due(parameters))
        # Else its secrets would live for as long as the coordinator likes.
        if plan.start(parameters) > now + MOST_SKEW_SECONDS:
            raise ParametersRefused("future-session", "the session begins later than now, by this machine's clock")
    except ParameterFault as fault:
        raise ParametersRefused(fault.code, str(fault)) from fault
    return parameters


_OTHER = {
    "study": ("wrong-round", "the session belongs to another study"),
    "round": ("wrong-round", "the session belongs to another round, not to this one"),
    "model": ("wrong-model", "the session names another model than the assignment"),
    "roster": ("wrong-roster", "the session names another roster than the pinned one"),
    "vectors": ("wrong-vectors", "the session sums other vectors, lengths or ranges than expected"),
}


def _check_due(parameters: SessionParameters, due: SessionParameters) -> None:
    for name in SessionParameters.model_fields:
        if getattr(parameters, name) != getattr(due, name):
            raise ParametersRefused(
                *_OTHER.get(name, ("wrong-parameters", f"{name} is not what follows from the study's settings"))
            )


def _check_floors(parameters: SessionParameters, party: Party) -> None:
    floors = party.floors
    if parameters.clients == 3 and not floors.allow_three:
        raise ParametersRefused("too-few-clients", "sums of three clients are not allowed by this hospital")
    if parameters.clients > len(party.roster):
        raise ParametersRefused("too-many-clients", "the session plans more clients than the roster has")
    if parameters.colluders < floors.colluders:
        detail = f"the session bears {parameters.colluders} colluders, this hospital asks {floors.colluders}"
        raise ParametersRefused("few-colluders", detail)
    if parameters.min_survivors < floors.min_survivors:
        detail = f"sums of {parameters.min_survivors} would be opened, this hospital asks {floors.min_survivors}"
        raise ParametersRefused("low-survivors", detail)


def check_cohort(
    entries: Sequence[KeysMessage], current: Current, party: Party, previous_cohort: frozenset[str] | None
) -> None:
    """U1: sorted, of allowed size, everyone on the roster and signed for this session, no key twice, ours unaltered.

    Raises:
        CohortRefused: with the first of these that fails.
    """
    _require_sorted(entries, "unsorted-cohort", CohortRefused)
    least, most = current.least, current.parameters.clients
    if not least <= len(entries) <= most:
        raise CohortRefused("cohort-size", f"{len(entries)} clients have keys; the session allows {least} to {most}")
    for entry in entries:
        identity = party.roster.get(entry.client)
        if identity is None:
            raise CohortRefused("outside-roster", f"{entry.client} is not on the pinned roster")
        statement = transcript.keys_statement(current.ph, entry.client, entry.share_key, entry.mask_key)
        if not transcript.is_signed(identity, entry.signature, statement):
            raise CohortRefused("unsigned-key", f"the masking keys of {entry.client} are not signed for this session")
    if current.session.keys not in entries:
        raise CohortRefused("own-key-altered", "this hospital's own keys are missing or altered")
    keys = [key for entry in entries for key in (entry.share_key, entry.mask_key)]
    if len(set(keys)) != len(keys):
        raise CohortRefused("repeated-key", "a masking key occurs twice")
    names = frozenset(entry.client for entry in entries)
    if previous_cohort is not None and len(names ^ previous_cohort) == 1:
        detail = "the cohort differs from the last one by one client, whose value the two sums show"
        raise CohortRefused("neighbouring-cohort", detail)


def seal_shares(current: Current, seed: bytes) -> tuple[bytes, bytes]:
    """The sealed slots for the others, in their order, and the share that stays here.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    client, secrets, cohort = current.client, current.secrets, current.session.cohort
    shares = shamir.split((secrets.seed, secrets.mask_private), len(cohort), current.parameters.threshold, seed)
    agreement = masking.Agreement(client, secrets.share_private, current.h1)
    slots, kept = b"", b""
    for entry, share in zip(cohort, shares, strict=True):
        # Its own share counts among the t; it never leaves before it is opened.
        if entry.client == client:
            kept = share
            continue
        try:
            key = agreement.share_key(entry.client, entry.share_key)
        except masking.MaskingError as error:
            raise CohortRefused("unusable-key", str(error)) from error
        slots += masking.seal_share(key, current.h1, client, entry.client, share)
    return slots, kept


def open_inbox(current: Current, inbox: Inbox) -> dict[str, bytes]:
    """The shares of the other members of U2, by sender.

    Raises:
        SharesRefused: too few, from outside the cohort, twice from one sender, not opening, or no field elements.
    """
    client, h1 = current.client, current.h1
    public = {entry.client: entry.share_key for entry in current.session.cohort if entry.client != client}
    agreement = masking.Agreement(client, current.secrets.share_private, h1)
    received: dict[str, bytes] = {}
    for entry in inbox.entries:
        if entry.sender not in public or entry.sender in received:
            raise SharesRefused("unexpected-share", f"a share from {entry.sender} is not expected here")
        # Cannot fail: shares were sealed to these very keys.
        key = agreement.share_key(entry.sender, public[entry.sender])
        try:
            share = masking.open_share(key, h1, entry.sender, client, entry.sealed)
            shamir.parse_share(share)
        except (masking.MaskingError, shamir.SharingError) as error:
            raise SharesRefused("malformed-share", f"the share from {entry.sender} is refused: {error}") from error
        received[entry.sender] = share
    if len(received) + 1 < current.least:
        found = len(received) + 1
        raise SharesRefused("few-shares", f"only {found} clients shared their secrets, {current.least} must")
    return received


def digests_of_words(parameters: SessionParameters, words: Mapping[str, RingVector]) -> dict[str, bytes]:
    """SHA-256 of each vector before masking.

    Raises:
        VectorsRefused: a vector too many or too few, of the wrong size, or with a word beyond its cap.
    """
    if set(words) != {spec.name for spec in parameters.vectors}:
        raise VectorsRefused("other-vectors", "exactly the vectors of the session are sent, no fewer and no more")
    try:
        for spec in parameters.vectors:
            # A word beyond its cap may wrap the sum around, and a large total would read as a small one.
            secure_sum_vectors.require_in_range(spec, words[spec.name])
    except EncodingError as error:
        raise VectorsRefused("out-of-range", str(error)) from error
    return {name: hashlib.sha256(np.ascontiguousarray(vector).data).digest() for name, vector in words.items()}


def mask_vector(current: Current, spec: VectorSpec, words: RingVector) -> RingVector:
    """A fresh buffer: words, canary and self mask, plus the masks with later names, minus those with earlier ones.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    client, secrets = current.client, current.secrets
    public = {entry.client: entry.mask_key for entry in current.session.cohort}
    agreement = masking.Agreement(client, secrets.mask_private, current.h1)
    try:
        keys = {
            peer: agreement.mask_key(peer, public[peer], spec.name)
            for peer in current.session.sharers
            if peer != client
        }
    except masking.MaskingError as error:
        raise CohortRefused("unusable-key", str(error)) from error
    own = masking.self_mask_key(secrets.seed, current.h1, spec.name)
    buffer = secure_sum_vectors.canary_buffer(spec, current.h1, client)
    masking.apply_masks(
        buffer,
        head=words,
        add=[own, *(key for peer, key in keys.items() if client < peer)],
        subtract=[key for peer, key in keys.items() if peer < client],
    )
    return buffer


def check_survivors(entries: Sequence[Manifest], current: Current) -> None:
    """U3: sorted, within U2, large enough, ourselves in it unaltered, everybody's manifest signed over the same U2.

    Raises:
        SurvivorsRefused: with the first of these that fails.
    """
    _require_sorted(entries, "unsorted-survivors", SurvivorsRefused)
    parameters = current.parameters
    if len(entries) < parameters.min_survivors:
        detail = f"{len(entries)} clients survive; fewer than {parameters.min_survivors} are never opened"
        raise SurvivorsRefused("few-survivors", detail)
    if current.session.manifest not in entries:
        raise SurvivorsRefused("own-vector-altered", "this hospital's own vectors are missing or altered")
    names = {spec.name for spec in parameters.vectors}
    for entry in entries:
        identity = current.identity(entry.client)
        if entry.client not in current.session.sharers or identity is None:
            raise SurvivorsRefused("outside-cohort", f"{entry.client} did not share its secrets with this hospital")
        statement = current.masked_statement(entry.client, entry.digests)
        if set(entry.digests) != names or not transcript.is_signed(identity, entry.signature, statement):
            raise SurvivorsRefused("unsigned-vector", f"the vectors of {entry.client} are not signed for this session")


def shows_totals(vectors: Iterable[VectorSpec]) -> bool:
    """Whether sums of two rounds over almost the same clients would show one client's value.

    Costs are summed as they are, and a hospital's number of records is the same in every round. Updates carry noise or
    are new in every round, histograms are of one round, and a maximum is no sum.
    """
    return any(spec.encoding == "costs" for spec in vectors)


_NAMED_AT_MOST = 3


def check_may_be_summed_again(opened: Opened | None, cohort: Iterable[str]) -> None:
    """Whether the survivors of this cohort can be those whose updates from the same model were summed before.

    opened  that sum; None: there was none

    Raises:
        CohortRefused: somebody of them is not in it.
    """
    if opened is not None and (gone := frozenset(opened.survivors) - frozenset(cohort)):
        raise CohortRefused(SAME_MODEL_AGAIN, _same_model(opened, gone, "not here now"))


def check_is_summed_again(opened: Opened | None, survivors: Iterable[str]) -> None:
    """Whether these survivors are those whose updates from the same model were summed before.

    opened  that sum; None: there was none

    Raises:
        SurvivorsRefused: they are not.
    """
    if opened is not None and (other := frozenset(opened.survivors) ^ frozenset(survivors)):
        raise SurvivorsRefused(SAME_MODEL_AGAIN, _same_model(opened, other, "in one of the two sums only"))


def _same_model(opened: Opened, others: frozenset[str], where: str) -> str:
    named = sorted(others)[:_NAMED_AT_MOST]
    more = "" if len(others) == len(named) else f" and {len(others) - len(named)} more"
    return (
        f"round {opened.round} opened a sum of updates from this very model over other hospitals ({', '.join(named)}"
        f"{more}: {where}); sums over different sets show single updates, so no other set is opened. If a hospital has "
        "left for good, the operator has to end the study (wardround study stop)"
    )


def check_consistency(entries: Sequence[ConsistencyMessage], current: Current) -> None:
    """At least t distinct survivors signed the very survivor set that this hospital was shown.

    Raises:
        SurvivorsRefused: too few valid signatures.
    """
    names = {entry.client for entry in current.session.survivors}
    statement, threshold = current.consistency_statement, current.parameters.threshold
    valid: set[str] = set()
    for entry in entries:
        # Enough; every further signature costs its check.
        if len(valid) == threshold:
            return
        identity = current.identity(entry.client) if entry.client in names else None
        if identity is not None and transcript.is_signed(identity, entry.signature, statement):
            valid.add(entry.client)
    if len(valid) < threshold:
        detail = f"{len(valid)} survivors signed this survivor set; {threshold} must before anything is opened"
        raise SurvivorsRefused("few-signatures", detail)


def opened_shares(current: Current) -> tuple[OpenedShare, ...]:
    """For each member of U2 one share: of its seed if it survived, of its mask key if it was lost."""
    survivors = {entry.client for entry in current.session.survivors}
    opened: list[OpenedShare] = []
    for peer in current.session.sharers:
        # One slot holds both shares, the seed's first. Never both are opened: together they would unmask the peer.
        both = current.secrets.shares[peer]
        if peer in survivors:
            opened.append(OpenedShare(peer=peer, kind="seed", share=both[: shamir.SHARE_BYTES]))
        else:
            opened.append(OpenedShare(peer=peer, kind="mask-key", share=both[shamir.SHARE_BYTES :]))
    return tuple(opened)


def _require_sorted(
    entries: Sequence[KeysMessage] | Sequence[Manifest],
    code: str,
    refusal: type[CohortRefused] | type[SurvivorsRefused],
) -> None:
    # Strictly: the transcript hashes the list, and nobody may stand in it twice.
    if any(a.client >= b.client for a, b in pairwise(entries)):
        raise refusal(code, "the list is not in the order of the client names, each once")
