"""A hospital's no."""

from __future__ import annotations

from fastapi import APIRouter, Response

from client_sdk.protocol.study.messages import Refusal
from server.api.auth import Itself
from server.api.context import ClientName, Here, RoundNumber, StudyName
from server.services.rounds import refuse

router = APIRouter(prefix="/v1/studies/{study}/rounds/{round}/refusals", tags=["refusals"])


@router.put("/{client}", status_code=201, responses={200: {"model": Refusal, "description": "Recorded before"}})
def put_refusal(
    study: StudyName,
    round: RoundNumber,
    client: ClientName,
    refusal: Refusal,
    response: Response,
    _: Itself,
    here: Here,
) -> Refusal:
    """The site policy or the hospital's own budget says no to this round."""
    written = refuse.refuse(here.coordinator, study, round, client, refusal)
    here.wake()
    response.status_code = 201 if written.created else 200
    return written.body
