"""Events of a study, as server-sent events for a dashboard. Polling works as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from server.api.auth import After, Caller, Context, Reader, RequestContext, SignedRoute, StudyName
from server.api.lanes import Lane
from server.api.polling import require_standing
from server.domain.errors import Rejected
from server.services import events
from study_protocol.study.messages import StudyEvent

router = APIRouter(prefix="/v1/studies/{study}", tags=["events"], route_class=SignedRoute)
KEEP_ALIVE_SECONDS = 15.0
Wait = Annotated[float, Query(ge=0, le=3600, allow_inf_nan=False, description="seconds before the stream ends")]
LastEventId = Annotated[
    str | None, Header(pattern=r"^[0-9]{1,15}$", description="as `after`, of a browser that comes back")
]
_LINE = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "the event's number"},
        "event": {"type": "string", "description": "what happened"},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "an Event"},
    },
}
_STREAM: dict[int | str, Any] = {200: {"content": {"text/event-stream": {"schema": _LINE}}, "description": "SSE"}}


@router.get("/events", response_class=StreamingResponse, responses=_STREAM)
async def stream_events(
    study: StudyName,
    caller: Reader,
    context: RequestContext,
    after: After = 0,
    wait: Wait = 300,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Stream events above `after`, then those to come. Ends after `wait` seconds, or once the caller may not read."""
    # A browser that comes back repeats the old address. This header says where it stopped.
    start = int(last_event_id) if last_event_id is not None else after
    room = partial(context.lanes.streams.require_room, caller.lane)
    # Before the database is asked for anything, and again when it is this one's turn: many may come at once.
    room()
    async with context.lanes.thread(caller.lane, heavy=False):
        room()
        # Before the answer begins: an unknown study is a 404, not a stream that breaks off.
        first = await run_in_threadpool(events.since, context.coordinator, study, start)
    seconds = min(wait, context.settings.event_stream_seconds)
    lines = _lines(context, caller, study, start, seconds, first)
    return _Stream(context.lanes.streams, caller.lane, lines)


class _Stream(StreamingResponse):
    """Has a place of its caller's while it lasts."""

    def __init__(self, lane: Lane, caller: str, lines: AsyncIterator[str]) -> None:
        super().__init__(lines, media_type="text/event-stream")
        self._lane, self._caller = lane, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Others may have taken the last place since there was room.
        async with self._lane.place(self._caller):
            await super().__call__(scope, receive, send)


async def _since(context: Context, caller: Caller, study: str, last: int) -> list[StudyEvent] | None:
    """Return None once `caller` may read no longer."""
    page = await run_in_threadpool(events.since, context.coordinator, study, last)
    try:
        # After the reading: a client that left before it gets no event.
        await require_standing(context, caller)
    except Rejected:
        return None
    return page


async def _lines(
    context: Context, caller: Caller, study: str, last: int, wait: float, first_events: list[StudyEvent] | None
) -> AsyncIterator[str]:
    now = asyncio.get_running_loop().time
    end = now() + wait
    while first_events is not None:
        for event in first_events:
            last = event.id
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
        if now() >= end or context.watcher.closed:
            return
        # A full page may not be the last: wait only after an empty one.
        if not first_events and not await context.watcher.wait(study, last, min(KEEP_ALIVE_SECONDS, end - now())):
            # A comment line, so that proxies do not close a silent connection.
            yield ": still here\n\n"
        first_events = await _since(context, caller, study, last)
