"""A session of the secure sum as the coordinator knows it: a frozen value, with what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.graph import Graph, graph_of
from study_protocol.secure_sum.messages import (
    ConsistencyMessage,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    UnmaskMessage,
)

Phase = Literal["keys", "shares", "masked", "consistency", "unmask", "summed", "failed"]
Inadmissible = Literal[
    "unknown-client", "bad-signature", "malformed", "conflict", "too-early", "phase-closed", "session-failed"
]
Code = Literal[Inadmissible, "too-few-replies", "wrong-shares", "canary-mismatch"]
Failure = Literal[
    "too-few-keys",
    "too-few-shares",
    "too-few-survivors",
    "too-sparse-survivors",
    "too-few-replies",
    "expired",
    "canary-mismatch",
    "stopped",
]
# Values that are computed once, and their inputs: while these stay, the next session need not compute them again.
_WORKED_OUT = {
    "ph": {"parameters"},
    "advertised_keys": {"keys"},
    "h1": {"parameters", "cohort"},
    "members": {"cohort"},
    "graph": {"parameters", "cohort"},
    "sharer_set": {"sharers"},
    "sharers_hash": {"parameters", "cohort", "sharers"},
    "shared": {"parameters", "cohort", "sharers"},
    "replied": {"parameters", "cohort", "unmasks"},
    "survivor_set": {"survivors"},
    "survivors_hash": {"parameters", "cohort", "sharers", "survivors"},
}


@dataclass(frozen=True)
class Declined:
    """A message that was not accepted. `code` is stable. `detail` tells the caller what to do and quotes no secret."""

    code: Code
    detail: str


@dataclass(frozen=True)
class Repeated:
    """The very same message is already there."""


@dataclass(frozen=True)
class Session:
    """The coordinator's knowledge of one session.

    keys … unmasks    messages by client. A manifest is here only once the octets that it names are stored durably
    departed          clients that said they will not go on
    cohort, sharers, survivors   U1, U2, U3 once frozen, in the order of the names

    To admit keys all keys are needed. A later message only needs the rows of its client, and the survivors' manifests
    once U3 is frozen. `advance` also needs the senders of each step, and recovery needs everything. None of it is read
    again for a session that `changed` has made of one that had it.
    """

    parameters: SessionParameters
    roster: Mapping[str, Ed25519PublicKey]
    phase: Phase = "keys"
    keys: Mapping[str, KeysMessage] = field(default_factory=dict[str, KeysMessage])
    shares: Mapping[str, SharesMessage] = field(default_factory=dict[str, SharesMessage])
    manifests: Mapping[str, Manifest] = field(default_factory=dict[str, Manifest])
    consistency: Mapping[str, ConsistencyMessage] = field(default_factory=dict[str, ConsistencyMessage])
    unmasks: Mapping[str, UnmaskMessage] = field(default_factory=dict[str, UnmaskMessage])
    departed: frozenset[str] = frozenset()
    cohort: tuple[KeysMessage, ...] = ()
    sharers: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    failure: Failure | None = None

    @cached_property
    def ph(self) -> bytes:
        """H(parameters), 32 bytes."""
        return transcript.parameters_hash(self.parameters.to_bytes())

    @cached_property
    def advertised_keys(self) -> frozenset[bytes]:
        """Return every public key that a client has advertised."""
        return frozenset(key for entry in self.keys.values() for key in (entry.share_key, entry.mask_key))

    @cached_property
    def h1(self) -> bytes:
        """H(U1), 32 bytes: the salt of every key of this session."""
        return transcript.cohort_hash(self.ph, ((e.client, e.share_key, e.mask_key) for e in self.cohort))

    @cached_property
    def members(self) -> tuple[str, ...]:
        """U1 by name."""
        return tuple(entry.client for entry in self.cohort)

    @cached_property
    def graph(self) -> Graph:
        """Return the graph of the members of U1 that exchange shares and masks."""
        return graph_of(self.h1, self.members, self.parameters.neighbours)

    @cached_property
    def sharer_set(self) -> frozenset[str]:
        """U2."""
        return frozenset(self.sharers)

    @cached_property
    def sharers_hash(self) -> bytes:
        """H(U2)."""
        return transcript.sharers_hash(self.h1, self.sharers)

    @cached_property
    def shared(self) -> NDArray[np.bool_]:
        """By place in U1, who is in U2."""
        return self.graph.mask(self.sharers)

    @cached_property
    def replied(self) -> NDArray[np.intp]:
        """By place in U1, how many holders of that member's secrets have opened their shares."""
        return self.graph.holders_among(self.graph.mask(self.unmasks))

    @cached_property
    def survivor_set(self) -> frozenset[str]:
        """U3."""
        return frozenset(self.survivors)

    @property
    def lost(self) -> tuple[str, ...]:
        """U2 without U3: masks of theirs are in the others' vectors."""
        return tuple(name for name in self.sharers if name not in self.survivor_set)

    @cached_property
    def survivors_hash(self) -> bytes:
        """H(U3), over the survivors' signed manifests."""
        statements = (
            (name, transcript.masked_statement(self.h1, self.sharers_hash, name, self.manifests[name].digests))
            for name in self.survivors
        )
        return transcript.survivors_hash(self.h1, statements)

    def peers(self, client: str) -> tuple[str, ...]:
        """Return the owners of the secrets that `client` opens a share of: its neighbours in U2 and itself, by name."""
        return tuple(name for name in self.graph.holders(client) if name in self.sharer_set)


def changed(session: Session, **fields: Any) -> Session:
    """Return the session with other fields, and with all cached values of fields that stay."""
    moved = replace(session, **fields)
    cached = vars(session)
    stays = (name for name, inputs in _WORKED_OUT.items() if name in cached and inputs.isdisjoint(fields))
    vars(moved).update({name: cached[name] for name in stays})
    return moved
