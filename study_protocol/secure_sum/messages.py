"""Wire types of the secure sum: the signed parameters of a session and the messages of its five exchanges.

Signatures cover values (`transcript`), not JSON. Only `SessionParameters` is hashed as the bytes that travel.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from study_protocol.secure_sum.masking import TAG_BYTES
from study_protocol.secure_sum.shamir import SHARE_BYTES
from study_protocol.secure_sum.vectors import VectorName, VectorSpec
from study_protocol.study.masking import MAX_CLIENTS
from study_protocol.study.messages import SignedParameters
from study_protocol.wire.octets import Octets, SignatureOctets, as_text
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name, Sha256

# Beside the octets of a client's masked vectors: its manifest, as base64url of JSON.
MANIFEST_HEADER = "Wardround-Manifest"
SUITE = "ed25519-x25519-hkdfsha256-aes256gcm-aes256ctr2-shamir31"
# Both 36-byte shares of one client, sealed for one recipient.
SLOT_BYTES = 2 * SHARE_BYTES + TAG_BYTES


Key = Annotated[Octets, Field(min_length=32, max_length=32), as_text(32, 32)]
Digest = Annotated[Octets, Field(min_length=32, max_length=32), as_text(32, 32)]
Seconds = Annotated[int, Field(ge=0, lt=2**53, description="whole seconds since the epoch")]


class ParameterFault(ValueError):
    """The parameters of a session break a rule. `code` is stable, the text says which rule."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Deadlines(Message):
    """When the coordinator stops waiting at each of the steps that freeze a set."""

    keys: Seconds
    shares: Seconds
    masked: Seconds


_SINCE_2 = {"settings", "ledger_entries", "ledger_sha256", "query"}


class SessionParameters(Message):
    """The values that the parties agree on before a key exists. The coordinator signs their canonical JSON.

    Each hospital computes them from the values that it received itself. Its keys are signed over their hash. So
    hospitals that were shown two versions of any value accept no keys of each other.

    version        1 for a session that an earlier version opened. It names neither settings, ledger nor query, and for
                   a query's round `model` is the digest of its document. Only a client that has joined one goes on with
                   it
    session        32 random bytes, unique to this attempt at the round
    settings       digest of the study's settings
    ledger_entries, ledger_sha256  number and hash of the entry that charges the round. All entries before it hang on
                                   that
    roster         fingerprint of the pinned roster
    query          digest of the document that is asked. None: a round of training
    model          digest of the model that the round starts from, or that the query is about. None: it is about none
    clients        n, the planned cohort
    colluders      c, how many of them may share their knowledge with the coordinator
    threshold      t of the k + 1 shares of a secret rebuild it
    neighbours     k, with how many others a client exchanges shares and masks. It is n - 1 in the complete graph
    min_survivors  with fewer masked vectors the session fails, and no sum is opened
    expires        after this the session is dead and clients erase its secrets
    """

    version: Literal[1, 2] = 2
    suite: str = Field(default=SUITE, max_length=128)
    study: Name
    round: int = Field(ge=1, lt=2**53)
    session: Key
    settings: Sha256 | None = None
    ledger_entries: int | None = Field(default=None, ge=1, lt=2**53)
    ledger_sha256: Sha256 | None = None
    roster: Sha256
    query: Sha256 | None = None
    model: Sha256 | None
    clients: int = Field(ge=1, le=MAX_CLIENTS)
    colluders: int = Field(ge=0, le=MAX_CLIENTS)
    threshold: int = Field(ge=1, le=MAX_CLIENTS)
    neighbours: int = Field(ge=1, le=MAX_CLIENTS)
    min_survivors: int = Field(ge=1, le=MAX_CLIENTS)
    vectors: tuple[VectorSpec, ...] = Field(min_length=1, max_length=8)
    deadlines: Deadlines
    expires: Seconds

    @model_validator(mode="after")
    def _names_what_its_version_does(self) -> Self:
        bound = (self.settings, self.ledger_entries, self.ledger_sha256)
        if self.version == 1 and (bound != (None, None, None) or self.query is not None or self.model is None):
            raise ValueError("version 1 names a model, and neither settings, ledger nor query")
        if self.version > 1 and (None in bound or (self.query is None and self.model is None)):
            raise ValueError("settings, the charge's entry, and a query or a model are named")
        return self

    @property
    def subject(self) -> str:
        """Digest of what the round is about: the query's document, or the model that is trained."""
        return self.query or self.model or ""

    def to_bytes(self) -> bytes:
        """Return the canonical JSON, which travels, is hashed to ph, and is signed."""
        return canonical_json(self.model_dump(mode="json", exclude=_SINCE_2 if self.version == 1 else None))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Parse canonical JSON.

        Raises:
            ParameterFault: not these parameters, of a later version, or not in canonical form.
        """
        try:
            parameters = cls.model_validate_json(raw)
        except ValidationError as error:
            places = [".".join(str(part) for part in fault["loc"]) for fault in error.errors()]
            if "version" in places:
                detail = "the parameters are of another version of the protocol: bring the older program up to date"
                raise ParameterFault("other-version", detail) from error
            raise ParameterFault("malformed-parameters", f"the parameters are malformed at {places[0]!r}") from error
        # Only one spelling is signed and hashed: no two parties can hold other bytes for the same content.
        if parameters.to_bytes() != raw:
            raise ParameterFault("malformed-parameters", "the parameters are not in canonical form")
        return parameters

    def vector(self, name: str) -> VectorSpec | None:
        """Return the vector of this name, or None if the session sums none."""
        return next((spec for spec in self.vectors if spec.name == name), None)

    @property
    def quorum(self) -> int:
        """How many survivors must have signed one survivor list.

        No other list can have as many, even with all colluders.
        """
        return min_threshold(self.clients, self.colluders)

    @property
    def min_clients(self) -> int:
        """Fewest clients that must go on for the session to end in a sum."""
        return max(self.quorum, self.min_survivors)


# n clients are planned, c of them may collude with the coordinator, t shares rebuild a secret.
def min_threshold(holders: int, colluders: int) -> int:
    """Return floor((holders + c) / 2) + 1.

    That is more than half of the statements of holders that answer once, and colluders twice. Of the k + 1 holders of
    one client's secrets it is t. There 2t > k + 1 + c, so that no party ever holds t shares of both. Of the n clients
    it is the quorum of signatures, so that no two survivor lists have one.
    """
    return (holders + colluders) // 2 + 1


def min_survivors_of(clients: int, colluders: int, threshold: int) -> int:
    """Return max(t, quorum, c + 3): at least three honest values in every sum.

    Among three clients none may be missing.
    """
    return 3 if clients == 3 else max(threshold, min_threshold(clients, colluders), colluders + 3)


def require_sound(parameters: SessionParameters) -> None:
    """Apply the rules that coordinator and client both apply before a key exists.

    Raises:
        ParameterFault: with the rule that is broken.
    """
    n, c, t = parameters.clients, parameters.colluders, parameters.threshold
    if parameters.suite != SUITE:
        raise ParameterFault("unknown-suite", f"the suite {parameters.suite!r} is not known here")
    _require_sound_graph(n, c, t, parameters.neighbours)
    if parameters.min_survivors > n:
        raise ParameterFault("unreachable-threshold", f"{n} clients cannot reach {parameters.min_survivors}")
    if (survivors := parameters.min_survivors) < min_survivors_of(n, c, t):
        raise ParameterFault("low-survivors", f"min_survivors {survivors} is below {min_survivors_of(n, c, t)}")
    names = [spec.name for spec in parameters.vectors]
    if len(set(names)) != len(names):
        raise ParameterFault("repeated-vector", "two vectors share a name, and with it their masks")
    for spec in parameters.vectors:
        if (fault := spec.fault(n)) is not None:
            raise ParameterFault("unsound-vector", f"vector {spec.name}: {fault}")
    times = (*parameters.deadlines.model_dump().values(), parameters.expires)
    if list(times) != sorted(times):
        raise ParameterFault("unordered-deadlines", "deadlines follow the order of the steps and end before expiry")


def _require_sound_graph(n: int, c: int, t: int, k: int) -> None:
    if n < 3:
        raise ParameterFault("too-few-clients", f"with {n} clients each would learn the other's value")
    # Two of three colluding take their own values off the sum and have the third.
    if n == 3 and c > 1:
        raise ParameterFault("too-few-clients", f"three clients cannot bear {c} colluders")
    # Else the colluders among the neighbours on one side could be all that survives there.
    if k != n - 1 and not (k % 2 == 0 and c < k < n - 1):
        detail = f"{k} neighbours for {n} clients: all {n - 1} others, or fewer, an even number above c = {c}"
        raise ParameterFault("unsound-graph", detail)
    if t < (lowest := min_threshold(k + 1, c)):
        raise ParameterFault("low-threshold", f"threshold {t} is below {lowest} for {k} neighbours, c = {c}")
    if t > k + 1:
        raise ParameterFault("unreachable-threshold", f"{k + 1} holders of a secret cannot reach {t}")


class SessionView(Message):
    """A session as it stands.

    signed   the parameters that were agreed on, signed by the coordinator
    phase    what the session waits for
    failure  why there is no sum
    """

    signed: SignedParameters
    phase: Literal["keys", "shares", "masked", "consistency", "unmask", "summed", "failed"]
    failure: Text | None = None


class ClientStatement(Message):
    """By one client, under its signature.

    signature  Ed25519 over the message's statement, in base64url
    """

    client: Name
    signature: SignatureOctets


class KeysMessage(ClientStatement):
    """Step 0: two X25519 public keys.

    share_key  shares for this client are sealed with it
    mask_key   the masks with each neighbour come from it
    """

    share_key: Key
    mask_key: Key


class KeyList(Message):
    """U1.

    entries  one of each client, in the order of the names
    """

    entries: tuple[KeysMessage, ...] = Field(max_length=MAX_CLIENTS)


class SharesMessage(ClientStatement):
    """Step 1.

    commitment  to the seed that is shared
    slots       88 sealed bytes for each neighbour in U1, in the order of their names
    """

    commitment: Digest
    slots: Annotated[Octets, Field(max_length=MAX_CLIENTS * SLOT_BYTES), as_text(0, MAX_CLIENTS * SLOT_BYTES)]


class Inbox(Message):
    """The message to one client.

    sharers  U2, in the order of the names
    slots    the 88 bytes that each neighbour in U2 sealed for it, in the same order
    """

    sharers: tuple[Name, ...] = Field(max_length=MAX_CLIENTS)
    slots: Annotated[Octets, Field(max_length=MAX_CLIENTS * SLOT_BYTES), as_text(0, MAX_CLIENTS * SLOT_BYTES)]


class Manifest(ClientStatement):
    """Step 2, beside the octets.

    digests  SHA-256 of the octets of each masked vector, by the vector's name
    """

    digests: dict[VectorName, Digest] = Field(min_length=1, max_length=8)


class SurvivorList(Message):
    """U3.

    entries  each survivor's manifest, in the order of the names
    """

    entries: tuple[Manifest, ...] = Field(max_length=MAX_CLIENTS)


class ConsistencyMessage(ClientStatement):
    """Step 3: a survivor's signature over the survivor set that it was shown."""


class ConsistencyList(Message):
    """The confirmations of the survivors.

    entries  one of each that confirmed, in the order of the names
    """

    entries: tuple[ConsistencyMessage, ...] = Field(max_length=MAX_CLIENTS)


class UnmaskMessage(ClientStatement):
    """Step 4.

    shares  36 bytes for each member of U2 that is the sender or its neighbour, in the order of their names

    Of which of the two secrets a share is follows from U3 (`opened_shares`) and is signed. There is room for one only:
    both would open the peer's vector alone.
    """

    shares: Annotated[
        Octets,
        Field(min_length=SHARE_BYTES, max_length=MAX_CLIENTS * SHARE_BYTES),
        as_text(SHARE_BYTES, MAX_CLIENTS * SHARE_BYTES),
    ]


def opened_shares(
    peers: Iterable[str], survivors: Container[str], shares: bytes
) -> Iterator[tuple[str, Literal["seed", "mask-key"], bytes]]:
    """Return (peer, kind, share) of the shares of an unmask message.

    Each share is of a survivor's seed or of a lost client's mask key.
    """
    for index, peer in enumerate(peers):
        kind = "seed" if peer in survivors else "mask-key"
        yield peer, kind, shares[SHARE_BYTES * index : SHARE_BYTES * (index + 1)]


class SumResult(Message):
    """The result of the sum.

    survivors  U3, the clients in the sum, in the order of the names
    digests    SHA-256 of the octets of each unmasked sum, by the vector's name
    signature  the coordinator's Ed25519 over the result's statement, in base64url
    """

    survivors: tuple[Name, ...] = Field(min_length=1, max_length=MAX_CLIENTS)
    digests: dict[VectorName, Digest] = Field(min_length=1, max_length=8)
    signature: SignatureOctets
