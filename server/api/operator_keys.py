"""API keys of people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from server.api.auth import OperatorOnly, RequestContext, SignedRoute
from server.services.studies import operators
from study_protocol.study.messages import OperatorKeyCreate, OperatorKeyList, OperatorKeyView

router = APIRouter(prefix="/v1/operator-keys", tags=["operator keys"], route_class=SignedRoute)
KeyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,32}$", description="the middle part of wrk_<id>_<secret>")]


@router.post("", status_code=201)
def create_key(request: OperatorKeyCreate, _: OperatorOnly, context: RequestContext) -> OperatorKeyView:
    """Create a key and show it once. Older keys stay valid, so that keys rotate with an overlap."""
    return operators.create_key(context.coordinator, request)


@router.get("")
def list_keys(_: OperatorOnly, context: RequestContext) -> OperatorKeyList:
    """Return all keys, without their secrets."""
    return operators.list_keys(context.coordinator)


@router.delete("/{key}")
def revoke_key(key: KeyId, _: OperatorOnly, context: RequestContext) -> OperatorKeyView:
    """Revoke a key: from now on it is refused. Repeatable."""
    return operators.revoke_key(context.coordinator, key)
