"""The secure sum of one round: five steps, each a write that may be repeated and a list that may be waited for."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from client_sdk.protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionView,
    SharesMessage,
    SumResult,
    SurvivorList,
    UnmaskMessage,
)
from client_sdk.protocol.secure_sum.vectors import VectorName
from server.api.auth import (
    Context,
    Here,
    Itself,
    Member,
    RoundNumber,
    SignedRoute,
    StreamingItself,
    StudyName,
    Wait,
    Witness,
    poll,
)
from server.api.bodies import BODY, discarded, received
from server.api.problems import ApiProblem
from server.domain.secure_sum import Message, Phase
from server.services.secure_sum import exchanges

router = APIRouter(prefix="/v1/studies/{study}/rounds/{round}/secure-sum", tags=["secure sum"], route_class=SignedRoute)

OfVector = Annotated[VectorName, Path(description="which vector")]
Left = Annotated[Phase | None, Query(description="wait until the session has left this phase")]


@router.get("")
async def session(
    study: StudyName, round: RoundNumber, me: Member, here: Here, phase: Left = None, wait: Wait = 25
) -> SessionView:
    """The signed parameters and the phase; with `phase`, as soon as it is another one or the time is up."""
    look = partial(exchanges.read_session, here.coordinator, study, round)
    return await poll(here, me, study, wait, look, lambda found: found.phase != phase)


def _said(here: Context, me: Itself, round: int, message: Message, reply: Response, witness: str | None = None) -> None:
    # `Itself` has compared the path with the signer; the message names its sender once more.
    if message.client != me.name:
        raise ApiProblem("forbidden", "a client speaks for itself only")
    reply.status_code = 201 if exchanges.put(here.coordinator, me.study, round, message, witness) else 200


@router.put("/keys/{client}", status_code=201)
def put_keys(
    round: RoundNumber, message: KeysMessage, reply: Response, me: Itself, here: Here, witness: Witness = None
) -> None:
    """Step 0: two public keys of this session, signed by the identity key."""
    _said(here, me, round, message, reply, witness)


@router.get("/keys")
def get_keys(round: RoundNumber, me: Member, here: Here) -> KeyList:
    """Everybody's keys, once the set is frozen."""
    return exchanges.key_list(here.coordinator, me.study, round)


@router.put("/shares/{client}", status_code=201)
def put_shares(round: RoundNumber, message: SharesMessage, reply: Response, me: Itself, here: Here) -> None:
    """Step 1: shares of this client's secrets, sealed for each other client."""
    _said(here, me, round, message, reply)


@router.get("/shares/{client}")
def get_shares(round: RoundNumber, me: Itself, here: Here) -> Inbox:
    """The shares that the others sealed for this client."""
    return exchanges.inbox(here.coordinator, me.study, round, me.name)


@router.put("/masked/{client}", status_code=201)
def put_manifest(round: RoundNumber, message: Manifest, reply: Response, me: Itself, here: Here) -> None:
    """Step 2: the digests of this client's masked vectors, signed."""
    _said(here, me, round, message, reply)


@router.put("/masked/{client}/{vector}", status_code=201, openapi_extra=BODY)
async def put_masked(
    round: RoundNumber, vector: OfVector, request: Request, reply: Response, me: StreamingItself, here: Here
) -> None:
    """Step 2: the octets of one masked vector, after the manifest that names them. Durable when this answers."""
    slot = await run_in_threadpool(
        exchanges.begin_octets, here.coordinator, me.study, round, me.name, vector, me.body_sha256
    )
    if slot.repeated:
        await discarded(request, slot.limit)
        reply.status_code = 200
        return
    async with received(request, here.coordinator.blobs, slot.limit) as incoming:
        created = await run_in_threadpool(exchanges.keep_octets, here.coordinator, slot, incoming, me.body_sha256)
    reply.status_code = 201 if created else 200


@router.get("/survivors")
def get_survivors(round: RoundNumber, me: Member, here: Here) -> SurvivorList:
    """Whose vectors are in the sum, with their signed manifests."""
    return exchanges.survivor_list(here.coordinator, me.study, round)


@router.put("/consistency/{client}", status_code=201)
def put_consistency(round: RoundNumber, message: ConsistencyMessage, reply: Response, me: Itself, here: Here) -> None:
    """Step 3: this client's signature over the survivor set that it was shown."""
    _said(here, me, round, message, reply)


@router.get("/consistency")
def get_consistency(round: RoundNumber, me: Member, here: Here) -> ConsistencyList:
    """Enough signatures over one survivor set."""
    return exchanges.consistency_list(here.coordinator, me.study, round)


@router.put("/unmask/{client}", status_code=201)
def put_unmask(round: RoundNumber, message: UnmaskMessage, reply: Response, me: Itself, here: Here) -> None:
    """Step 4: one share of every client, of the kind that the survivor set prescribes."""
    _said(here, me, round, message, reply)
    # What follows is a worker's; every earlier set freezes in the transaction of the message that completes it.
    here.wake()


@router.get("/result")
def get_result(round: RoundNumber, me: Member, here: Here) -> SumResult:
    """The digests of the opened sums, signed."""
    return exchanges.result(here.coordinator, me.study, round)


@router.put("/left/{client}", status_code=204)
def put_left(round: RoundNumber, me: Itself, here: Here) -> None:
    """This client sends nothing more in this session: nobody waits for it."""
    exchanges.leave(here.coordinator, me.study, round, me.name)
    here.wake()
