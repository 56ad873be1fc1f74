"""One round as a hospital goes through it, and the history of rounds.

Administrators, leads and auditors see which hospitals took part in each round. A hospital sees its own part.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from server.api.auth import (
    After,
    Caller,
    ClientCaller,
    ClientName,
    Member,
    PageSize,
    Reader,
    RequestContext,
    RoundNumber,
    SignedRoute,
    StudyName,
    Wait,
    Witness,
    streamed,
)
from server.api.bodies import BODY, answered, as_json, discarded, or_else, received
from server.api.polling import poll
from server.services import views
from server.services.people.person import Person
from server.services.rounds import submit as submit_update
from server.services.rounds.assign import find_assignment, glance_at_assignment
from study_protocol.study.messages import Assignment, Refusal, RoundList, RoundView, UpdateReceipt
from study_protocol.study.roles import SEE_CLIENTS

router = APIRouter(prefix="/v1/studies/{study}", route_class=SignedRoute)


@router.get("/assignment", tags=["assignments"], responses={204: {"description": "No step is due yet"}})
async def next_assignment(study: StudyName, client: Member, context: RequestContext, wait: Wait = 25) -> Assignment:
    """Return the signed assignment as soon as there is one, 204 when the time is up, 409 when the study is finished."""
    arguments = context.coordinator, study, client.name
    assignment = await poll(
        context,
        client,
        study,
        wait,
        partial(find_assignment, *arguments),
        glance=partial(glance_at_assignment, *arguments),
    )
    return as_json(assignment)  # pyright: ignore[reportReturnType] - the model says what the answer holds


@router.put(
    "/rounds/{round}/updates/{client}",
    tags=["updates"],
    status_code=201,
    dependencies=[Depends(streamed)],
    openapi_extra=BODY,
    responses=or_else(UpdateReceipt, "These very bytes are recorded already"),
)
async def put_update(
    study: StudyName,
    round_number: RoundNumber,
    client: ClientName,
    request: Request,
    response: Response,
    sender: Member,
    context: RequestContext,
    witness: Witness = None,
) -> UpdateReceipt:
    """Take the update as safetensors, with its log-moments. Recorded durably when this answers."""
    slot = await run_in_threadpool(
        submit_update.begin, context.coordinator, study, round_number, client, sender.body_sha256, witness
    )
    if isinstance(slot, UpdateReceipt):
        await discarded(request, slot.bytes)
        response.status_code = 200
        return slot
    async with received(request, context.coordinator.blobs, slot.limit) as incoming:
        written = await run_in_threadpool(submit_update.submit, context.coordinator, slot, incoming, sender.body_sha256)
    return answered(response, written)


@router.put(
    "/rounds/{round}/refusals/{client}",
    tags=["refusals"],
    status_code=201,
    responses=or_else(Refusal, "Recorded before"),
)
def put_refusal(
    study: StudyName,
    round_number: RoundNumber,
    client: ClientName,
    refusal: Refusal,
    response: Response,
    context: RequestContext,
    witness: Witness = None,
) -> Refusal:
    """Record that the site policy or the hospital's own budget refuses this round."""
    written = submit_update.refuse(context.coordinator, study, round_number, client, refusal, witness)
    return answered(response, written)


def sees_clients(caller: Caller, study: str) -> bool:
    """Return whether the names of the hospitals in a round are shown."""
    return isinstance(caller, Person) and not SEE_CLIENTS.isdisjoint(caller.roles_in(study))


def own_client_of(caller: Caller) -> str | None:
    """Return the hospital that is shown its own part."""
    return caller.name if isinstance(caller, ClientCaller) else None


@router.get("/rounds", tags=["rounds"])
def list_rounds(
    study: StudyName, caller: Reader, context: RequestContext, after: After = 0, limit: PageSize = 100
) -> RoundList:
    """Return rounds in order of their numbers."""
    return views.list_rounds(
        context.coordinator,
        study,
        with_clients=sees_clients(caller, study),
        own_client=own_client_of(caller),
        after=after,
        limit=limit,
    )


@router.get("/rounds/{round}", tags=["rounds"])
def show_round(study: StudyName, round_number: RoundNumber, caller: Reader, context: RequestContext) -> RoundView:
    """Return one round."""
    return views.show_round(
        context.coordinator,
        study,
        round_number,
        with_clients=sees_clients(caller, study),
        own_client=own_client_of(caller),
    )
