"""Models: the initial one comes in, published ones go out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from client_sdk.protocol.study.messages import ModelInfo
from server.api.auth import Reader, StreamingOperator
from server.api.bodies import BODY, MEDIA_TYPE, model_answer, received
from server.api.context import Here, StudyName
from server.services import views
from server.services.studies import models

router = APIRouter(prefix="/v1/studies/{study}/models", tags=["models"])
Version = Annotated[str, Path(pattern=r"^(latest|0|[1-9][0-9]{0,8})$", description="a round's number, or `latest`")]
_TENSORS = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}, "description": "safetensors"}


@router.put("/0", status_code=201, openapi_extra=BODY, responses={200: {"model": ModelInfo, "description": "Here"}})
async def put_initial_model(
    study: StudyName, request: Request, response: Response, _: StreamingOperator, here: Here
) -> ModelInfo:
    """The initial weights as safetensors. They freeze names, shapes and types; the same bytes may come again."""
    async with received(request, here.coordinator.blobs, here.settings.model_limit_bytes) as incoming:
        written = await run_in_threadpool(models.put_initial, here.coordinator, study, incoming)
    response.status_code = 201 if written.created else 200
    return written.body


@router.get(
    "/{version}", response_class=Response, responses={200: _TENSORS, 206: _TENSORS, 304: {"description": "Same"}}
)
def get_model(study: StudyName, version: Version, request: Request, _: Reader, here: Here) -> Response:
    """A published model. ETag is its SHA-256; one byte range is honoured."""
    number = None if version == "latest" else int(version)
    return model_answer(request, views.locate_model(here.coordinator, study, number))
