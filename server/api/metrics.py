"""Numbers measured on a declared evaluation set outside the guarantee."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from client_sdk.protocol.study.messages import Metrics
from server.api.auth import OperatorOnly
from server.api.context import Here, StudyName
from server.services.studies import models

router = APIRouter(prefix="/v1/studies/{study}/models", tags=["metrics"])
Version = Annotated[int, Path(ge=0, le=2**31 - 1)]


@router.put("/{version}/metrics", status_code=201, responses={200: {"model": Metrics, "description": "Replaced"}})
def put_metrics(
    study: StudyName, version: Version, values: Metrics, response: Response, _: OperatorOnly, here: Here
) -> Metrics:
    """Later numbers for the same model replace earlier ones."""
    written = models.record_metrics(here.coordinator, study, version, values)
    response.status_code = 201 if written.created else 200
    return written.body
