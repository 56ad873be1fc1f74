"""What a client is asked to do now: a long poll that holds no thread and no database session."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from client_sdk.protocol.study.messages import Assignment
from server.api.auth import Member
from server.api.context import Here, StudyName
from server.services import events
from server.services.coordinator import Coordinator
from server.services.rounds import assignment

router = APIRouter(prefix="/v1/studies/{study}", tags=["assignments"])
Wait = Annotated[float, Query(ge=0, le=55, allow_inf_nan=False, description="seconds to wait for news")]


@router.get("/assignment", responses={204: {"description": "Nothing to do yet"}})
async def next_assignment(study: StudyName, client: Member, here: Here, wait: Wait = 25) -> Assignment:
    """The signed assignment as soon as there is one, 204 when the time is up, 409 when the study is finished."""
    now = asyncio.get_running_loop().time
    deadline = now() + min(wait, here.settings.long_poll_seconds)
    while True:
        mark, found = await run_in_threadpool(_look, here.coordinator, study, client.name)
        if found is not None:
            return found
        if not await here.watcher.wait(study, mark, deadline - now()):
            return Response(status_code=204)  # pyright: ignore[reportReturnType] - an empty answer beside the model


def _look(coordinator: Coordinator, study: str, client: str) -> tuple[int, Assignment | None]:
    # The mark first: news that come after it are not slept through.
    mark = events.marks(coordinator, [study]).get(study, 0)
    return mark, assignment.find(coordinator, study, client)
