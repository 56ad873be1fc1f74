"""The secure sum of one round: five steps. Each step is a write that may be repeated.

The answer to a write is the list of the next step, which all participants make together. A write waits for it as long
as it is asked to. When the time is up it is answered with `null`: it is recorded, and the list has a request of its
own.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from server.api.auth import (
    Context,
    Member,
    RequestContext,
    RoundNumber,
    SignedRoute,
    StudyName,
    Wait,
    Witness,
    streamed,
)
from server.api.bodies import BODY, discarded, json_answer, received
from server.api.polling import poll, require_standing
from server.api.problems import ApiProblem
from server.domain.secure_sum import Message, Phase
from server.services.secure_sum import exchanges, lists
from server.services.secure_sum.exchanges import Heard
from server.services.secure_sum.lists import ListName
from study_protocol.secure_sum.messages import (
    MANIFEST_HEADER,
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
from study_protocol.wire.documents import load_json
from study_protocol.wire.signing import from_base64url

router = APIRouter(prefix="/v1/studies/{study}/rounds/{round}/secure-sum", tags=["secure sum"], route_class=SignedRoute)

LeftPhase = Annotated[Phase | None, Query(description="wait until the session has left this phase")]
Next = Annotated[float, Query(ge=0, le=55, allow_inf_nan=False, description="seconds to wait for the list")]
_NOTHING_YET: dict[int | str, dict[str, Any]] = {204: {"description": "Not frozen yet"}}


@router.get("")
async def session(
    study: StudyName,
    round_number: RoundNumber,
    me: Member,
    context: RequestContext,
    phase: LeftPhase = None,
    wait: Wait = 25,
) -> SessionView:
    """Return the signed parameters and the phase. With `phase`, wait until the phase has changed or the time is up."""

    def look() -> tuple[int, SessionView | None]:
        mark, view = lists.read_session(context.coordinator, study, round_number)
        return mark, None if view.phase == phase else view

    view = await poll(context, me, study, wait, look)
    return view or (await run_in_threadpool(lists.read_session, context.coordinator, study, round_number))[1]


async def _list(context: Context, me: Member, round_number: int, name: ListName, wait: float) -> bytes | None:
    """Return the list once it is frozen."""
    # Without a thread, a database and a second look at who asks: that was looked at a moment ago.
    listed = lists.frozen_list(context.coordinator, me.study, round_number, name, me.name)
    return listed or await _awaited(context, me, round_number, name, wait)


async def _awaited(
    context: Context, me: Member, round_number: int, name: ListName, wait: float, mark: int | None = None
) -> bytes | None:
    """As `_list`. mark: the newest event by the time that was looked last."""
    arguments = context.coordinator, me.study, round_number, name, me.name
    return await poll(
        context, me, me.study, wait, partial(lists.read_list, *arguments), mark, partial(lists.glance, *arguments)
    )


async def _put_message(
    context: Context,
    me: Member,
    round_number: int,
    message: Message,
    then: tuple[ListName, float],
    witness: str | None = None,
) -> Response:
    # `Member` has compared the path with the signer. The message names its sender once more.
    if message.client != me.name:
        raise ApiProblem("forbidden", "a client speaks for itself only")
    heard = await exchanges.put(context.coordinator, me.study, round_number, message, witness)
    return await _answered(context, me, round_number, heard, then)


async def _answered(
    context: Context, me: Member, round_number: int, heard: Heard, then: tuple[ListName, float]
) -> Response:
    name, wait = then
    listed = lists.frozen_list(context.coordinator, me.study, round_number, name, me.name)
    if listed is None and heard.created and wait > 0:
        # The caller is checked again before an answer is sent.
        listed = await _awaited(context, me, round_number, name, wait, heard.mark)
    else:
        # The body and the commit may have taken their time.
        await require_standing(context, me)
        if wait > 0:
            # A repeated message may mean that the client, and this process as well, missed its result.
            listed = listed or await _awaited(context, me, round_number, name, wait)
    return json_answer(listed or b"null", 201 if heard.created else 200)


@router.put("/keys/{client}", status_code=201)
async def put_keys(
    round_number: RoundNumber,
    message: KeysMessage,
    me: Member,
    context: RequestContext,
    wait: Next = 0,
    witness: Witness = None,
) -> KeyList | None:
    """Step 0: send two public keys of this session, signed by the identity key. Answered with all clients' keys."""
    return await _put_message(context, me, round_number, message, ("keys", wait), witness)  # pyright: ignore[reportReturnType]


@router.get("/keys", responses=_NOTHING_YET)
async def get_keys(round_number: RoundNumber, me: Member, context: RequestContext, wait: Next = 0) -> KeyList:
    """Return the keys of all clients, once the set is frozen."""
    return json_answer(await _list(context, me, round_number, "keys", wait))  # pyright: ignore[reportReturnType]


@router.put("/shares/{client}", status_code=201)
async def put_shares(
    round_number: RoundNumber, message: SharesMessage, me: Member, context: RequestContext, wait: Next = 0
) -> Inbox | None:
    """Step 1: shares of this client's secrets, sealed for each neighbour. Answered with the shares for this client."""
    return await _put_message(context, me, round_number, message, ("inbox", wait))  # pyright: ignore[reportReturnType]


@router.get("/shares/{client}", responses=_NOTHING_YET)
async def get_shares(round_number: RoundNumber, me: Member, context: RequestContext, wait: Next = 0) -> Inbox:
    """Return the senders of shares, and the shares that the neighbours sealed for this client."""
    return json_answer(await _list(context, me, round_number, "inbox", wait))  # pyright: ignore[reportReturnType]


_Sealed = Annotated[
    str, Header(alias=MANIFEST_HEADER, max_length=2048, description="the signed manifest, as base64url of JSON")
]


async def _manifest(text: _Sealed) -> Manifest:
    try:
        return Manifest.model_validate(load_json(from_base64url(text)))
    except ValueError as error:
        raise ApiProblem("invalid-request", f"{MANIFEST_HEADER} holds the signed manifest as base64url JSON") from error


@router.put("/masked/{client}", status_code=201, openapi_extra=BODY, dependencies=[Depends(streamed)])
async def put_masked(
    round_number: RoundNumber,
    request: Request,
    me: Member,
    context: RequestContext,
    manifest: Annotated[Manifest, Depends(_manifest)],
    wait: Next = 0,
) -> SurvivorList | None:
    """Step 2: the octets of all masked vectors, one after the other in the order of the parameters, and their digests.

    Durable when this answers. Answered with whose vectors are in the sum.
    """
    if manifest.client != me.name:
        raise ApiProblem("forbidden", "a client speaks for itself only")
    slot = await run_in_threadpool(exchanges.begin_octets, context.coordinator, me.study, round_number, manifest)
    if slot.repeated:
        await discarded(request, slot.limit)
        heard = Heard(0, created=False)
    else:
        async with received(request, context.coordinator.blobs, slot.limit) as incoming:
            octets = await run_in_threadpool(exchanges.keep_octets, context.coordinator, slot, incoming, me.body_sha256)
        heard = await exchanges.put(context.coordinator, me.study, round_number, manifest, octets=octets)
    return await _answered(context, me, round_number, heard, ("survivors", wait))  # pyright: ignore[reportReturnType]


@router.get("/survivors", responses=_NOTHING_YET)
async def get_survivors(round_number: RoundNumber, me: Member, context: RequestContext, wait: Next = 0) -> SurvivorList:
    """Return the clients in the sum, with their signed manifests."""
    return json_answer(await _list(context, me, round_number, "survivors", wait))  # pyright: ignore[reportReturnType]


@router.put("/consistency/{client}", status_code=201)
async def put_consistency(
    round_number: RoundNumber, message: ConsistencyMessage, me: Member, context: RequestContext, wait: Next = 0
) -> ConsistencyList | None:
    """Step 3: this client's signature over the survivor set that it was shown. Answered with enough of the others'."""
    return await _put_message(context, me, round_number, message, ("consistency", wait))  # pyright: ignore[reportReturnType]


@router.get("/consistency", responses=_NOTHING_YET)
async def get_consistency(
    round_number: RoundNumber, me: Member, context: RequestContext, wait: Next = 0
) -> ConsistencyList:
    """Return enough signatures over one survivor set."""
    return json_answer(await _list(context, me, round_number, "consistency", wait))  # pyright: ignore[reportReturnType]


@router.put("/unmask/{client}", status_code=201)
async def put_unmask(
    round_number: RoundNumber, message: UnmaskMessage, me: Member, context: RequestContext, wait: Next = 0
) -> SumResult | None:
    """Step 4: one share of every neighbour, of the kind that the survivor set prescribes. Answered with the result."""
    return await _put_message(context, me, round_number, message, ("result", wait))  # pyright: ignore[reportReturnType]


@router.get("/result", responses=_NOTHING_YET)
async def get_result(round_number: RoundNumber, me: Member, context: RequestContext, wait: Next = 0) -> SumResult:
    """Return the digests of the opened sums, signed."""
    return json_answer(await _list(context, me, round_number, "result", wait))  # pyright: ignore[reportReturnType]


@router.put("/left/{client}", status_code=204)
def put_left(round_number: RoundNumber, me: Member, context: RequestContext) -> None:
    """Leave the session: the client sends no more, and the session does not wait for it."""
    exchanges.leave(context.coordinator, me.study, round_number, me.name)
