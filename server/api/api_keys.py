"""API keys of people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from server.api.auth import RequestContext, SignedRoute, Somebody
from server.services.people import keys
from study_protocol.study.people import ApiKeyCreate, ApiKeyList, ApiKeyView

router = APIRouter(prefix="/v1/api-keys", tags=["API keys"], route_class=SignedRoute)
KeyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,32}$", description="the middle part of wrk_<id>_<secret>")]


@router.post("", status_code=201)
def create_key(request: ApiKeyCreate, person: Somebody, context: RequestContext) -> ApiKeyView:
    """Create a key for one person and show it once. Older keys stay valid, so that keys rotate with an overlap.

    An administrator gives every role. A lead gives roles in its own study.
    """
    return keys.create_key(context.coordinator, request, person)


@router.get("")
def list_keys(person: Somebody, context: RequestContext) -> ApiKeyList:
    """Return all keys that the caller may give, without their secrets."""
    return keys.list_keys(context.coordinator, person)


@router.delete("/{key}")
def revoke_key(key: KeyId, person: Somebody, context: RequestContext) -> ApiKeyView:
    """Revoke a key: from now on it is refused. Repeatable."""
    return keys.revoke_key(context.coordinator, key, person)
