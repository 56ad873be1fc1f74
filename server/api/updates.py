"""One client's update of one round."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from client_sdk.protocol.study.messages import UpdateReceipt
from server.api.auth import StreamingItself
from server.api.bodies import BODY, discarded, received
from server.api.context import ClientName, Here, RoundNumber, StudyName
from server.services.rounds import submit as submit_update

router = APIRouter(prefix="/v1/studies/{study}/rounds/{round}/updates", tags=["updates"])
_AGAIN: dict[int | str, Any] = {200: {"model": UpdateReceipt, "description": "These very bytes are recorded already"}}


@router.put("/{client}", status_code=201, openapi_extra=BODY, responses=_AGAIN)
async def put_update(
    study: StudyName,
    round: RoundNumber,
    client: ClientName,
    request: Request,
    response: Response,
    sender: StreamingItself,
    here: Here,
) -> UpdateReceipt:
    """The update as safetensors, with its log-moments. Recorded durably when this answers."""
    slot = await run_in_threadpool(submit_update.begin, here.coordinator, study, round, client, sender.body_sha256)
    if isinstance(slot, UpdateReceipt):
        await discarded(request, slot.bytes)
        response.status_code = 200
        return slot
    async with received(request, here.coordinator.blobs, slot.limit) as incoming:
        written = await run_in_threadpool(submit_update.submit, here.coordinator, slot, incoming, sender.body_sha256)
    here.wake()
    response.status_code = 201 if written.created else 200
    return written.body
