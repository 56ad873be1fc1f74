"""What a client is asked to do now: a long poll that holds no thread and no database session."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Response

from client_sdk.protocol.study.messages import Assignment
from server.api.auth import Member
from server.api.context import Here, StudyName
from server.api.polling import Wait, poll
from server.services import views

router = APIRouter(prefix="/v1/studies/{study}", tags=["assignments"])


@router.get("/assignment", responses={204: {"description": "Nothing to do yet"}})
async def next_assignment(study: StudyName, client: Member, here: Here, wait: Wait = 25) -> Assignment:
    """The signed assignment as soon as there is one, 204 when the time is up, 409 when the study is finished."""
    found = await poll(
        here, study, wait, partial(views.find_assignment, here.coordinator, study, client.name), _is_there
    )
    if found is None:
        return Response(status_code=204)  # pyright: ignore[reportReturnType] - an empty answer beside the model
    return found


def _is_there(found: Assignment | None) -> bool:
    return found is not None
