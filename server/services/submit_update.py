"""Take one client's update: let it in, check it, keep it, record it."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk.protocol.messages import UpdateReceipt
from server.services.ports import Coordinator, Incoming, Written


@dataclass(frozen=True)
class Slot:
    """Permission to send one body of at most `limit` bytes."""

    study: str
    round: int
    client: str
    limit: int


def begin(coordinator: Coordinator, study: str, round: int, client: str, signed_sha256: str) -> Slot | UpdateReceipt:
    """Before the body is read. A receipt instead of a slot: these very bytes are recorded already.

    From here on the coordinator may have seen something of the update, and the round's charge stands.

    Raises:
        Rejected: `unknown-study`, `round-unknown`, `not-sampled`, `round-closed`, `different-update`,
            `study-finished`.
    """
    raise NotImplementedError


def submit(coordinator: Coordinator, slot: Slot, incoming: Incoming, signed_sha256: str) -> Written[UpdateReceipt]:
    """The whole body is in `incoming`. Durable when this returns.

    Raises:
        Rejected: as `begin`, and `digest-mismatch`, `malformed-tensors`, `wrong-names`, `wrong-shape`, `wrong-dtype`,
            `not-finite`, `clip-exceeded`, `terms-missing`, `body-too-large`.
    """
    raise NotImplementedError
