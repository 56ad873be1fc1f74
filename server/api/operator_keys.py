"""API keys of people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from server.api.auth import Here, OperatorOnly, SignedRoute
from server.services.studies import operators
from study_protocol.study.messages import OperatorKeyCreate, OperatorKeyList, OperatorKeyView

router = APIRouter(prefix="/v1/operator-keys", tags=["operator keys"], route_class=SignedRoute)
KeyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,32}$", description="the middle part of wrk_<id>_<secret>")]


@router.post("", status_code=201)
def create_key(request: OperatorKeyCreate, _: OperatorOnly, here: Here) -> OperatorKeyView:
    """A new key. Shown once; older ones stay valid, so that keys rotate with an overlap."""
    return operators.create_key(here.coordinator, request)


@router.get("")
def list_keys(_: OperatorOnly, here: Here) -> OperatorKeyList:
    """All keys, without their secrets."""
    return operators.list_keys(here.coordinator)


@router.delete("/{key}")
def revoke_key(key: KeyId, _: OperatorOnly, here: Here) -> OperatorKeyView:
    """From now on this key opens nothing. Repeatable."""
    return operators.revoke_key(here.coordinator, key)
