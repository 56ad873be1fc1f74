"""What the coordinator shows of a secure-sum session: the lists that clients check before their next step."""

from __future__ import annotations

from client_sdk.protocol.secure_sum.messages import (
    SLOT_BYTES,
    ConsistencyList,
    DeliveredShare,
    Inbox,
    KeyList,
    SurvivorList,
)
from server.domain.secure_sum import Declined, Session


def key_list(session: Session) -> KeyList | Declined:
    """U1, once frozen."""
    if not session.cohort:
        return Declined("too-early", "keys are still being collected")
    return KeyList(entries=session.cohort)


def inbox(session: Session, client: str) -> Inbox | Declined:
    """The shares of the other members of U2 for `client`, once U2 is frozen."""
    if not session.sharers:
        return Declined("too-early", "shares are still being collected")
    if client not in session.sharers:
        return Declined("unknown-client", f"{client} sent no shares in this session")
    members = session.members
    # A sender's slots are those of the other members, in their order.
    place = members.index(client)
    return Inbox(
        entries=tuple(
            DeliveredShare(sender=sender, sealed=_slot(session.shares[sender].slots, place - (sender < client)))
            for sender in session.sharers
            if sender != client
        )
    )


def survivor_list(session: Session) -> SurvivorList | Declined:
    """U3 with the survivors' manifests, once frozen."""
    if not session.survivors:
        return Declined("too-early", "masked vectors are still being collected")
    return SurvivorList(entries=tuple(session.manifests[name] for name in session.survivors))


def consistency_list(session: Session) -> ConsistencyList | Declined:
    """The survivors' signatures, once there are t of them."""
    if len(session.consistency) < session.parameters.threshold or not session.survivors:
        return Declined("too-early", "signatures over the survivor list are still being collected")
    return ConsistencyList(entries=tuple(session.consistency[name] for name in sorted(session.consistency)))


def _slot(slots: bytes, place: int) -> bytes:
    return slots[SLOT_BYTES * place : SLOT_BYTES * (place + 1)]
