"""People: who asks, their sessions, and logins from the command line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from server.api.auth import Context, RequestContext, SignedRoute, Somebody
from server.api.session_cookie import SESSION_COOKIE, cookie_of
from server.api.sign_in import AFTER_LOGOUT, asked_provider
from server.services.people import device_logins, sessions
from server.services.views import at
from server.single_sign_on.errors import LoginRefused
from server.single_sign_on.identity import PersonIdentity
from server.single_sign_on.logins import PendingDevice
from server.telemetry import request_id
from study_protocol.study.people import (
    GrantView,
    LoggedOut,
    LoginBegun,
    LoginPoll,
    LoginState,
    PersonSessions,
    PersonView,
)

if TYPE_CHECKING:
    from server.single_sign_on.provider import Provider

router = APIRouter(prefix="/v1", tags=["people"], route_class=SignedRoute)
SessionId = Annotated[str, Path(pattern=r"^[a-f0-9]{1,32}$", description="the middle part of wrs_<id>_<secret>")]


@router.get("/person")
async def show_person(person: Somebody, request: Request) -> PersonView:
    """Return who asks, as the coordinator knows this person."""
    cookie = cookie_of(request)
    return PersonView(
        kind=person.kind,
        name=person.name,
        grants=[GrantView(role=grant.role, study=grant.study) for grant in person.grants],
        csrf_token=None if cookie is None else sessions.csrf_token_of(cookie),
    )


@router.delete("/session")
async def log_out(person: Somebody, context: RequestContext, response: Response) -> LoggedOut:
    """End the session of the person who asks. Its token is refused from now on. A key is revoked instead."""
    if person.kind == "session":
        await run_in_threadpool(sessions.end_session, context.coordinator, person.id)
    response.delete_cookie(SESSION_COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    back = context.settings.origin + AFTER_LOGOUT
    address = None if context.provider is None else await context.provider.logout_address(back)
    return LoggedOut(logout_address=address)


@router.get("/sessions")
def list_sessions(context: RequestContext) -> PersonSessions:
    """Return the sessions of people who are logged in, without their secrets."""
    return sessions.list_sessions(context.coordinator)


@router.delete("/sessions/{session}", status_code=204)
def end_session(session: SessionId, context: RequestContext) -> None:
    """End a session of any person. Its token is refused from now on. Repeatable."""
    sessions.end_session(context.coordinator, session)


@router.post("/logins", status_code=201)
async def begin_login(context: RequestContext) -> LoginBegun:
    """Begin a login from the command line: the person opens an address of the identity provider and writes a code."""
    async with asked_provider(context) as provider:
        await run_in_threadpool(device_logins.require_room, context.coordinator)
        pending = await provider.begin_device()
        seconds = max(0.0, pending.expires_at - context.clock())
        token = await run_in_threadpool(device_logins.keep_login, context.coordinator, pending, seconds)
    return LoginBegun(
        token=token,
        user_code=pending.user_code,
        verification_uri=pending.verification_uri,
        verification_uri_complete=pending.verification_uri_complete,
        retry_after_seconds=pending.interval,
        expires_at=at(time.time() + seconds),
    )


@router.post("/logins/poll")
async def poll_login(question: LoginPoll, request: Request, context: RequestContext) -> LoginState:
    """Return the session of a person who has logged in meanwhile, or when to ask again.

    A login ends once: its session is shown in one answer.
    """
    async with asked_provider(context) as provider:
        pending = await run_in_threadpool(device_logins.take_turn, context.coordinator, question.token)
        if pending is None:
            return LoginState(session=None, retry_after_seconds=1.0)
        outcome = await _asked_again(context, provider, question.token, pending)
        if isinstance(outcome, PendingDevice):
            return LoginState(session=None, retry_after_seconds=max(1.0, outcome.next_poll_at - context.clock()))
    session = await run_in_threadpool(
        sessions.begin_session,
        context.coordinator,
        outcome,
        60.0 * context.settings.sso_session_minutes,
        "poll_login",
        request.scope["path"],
        request_id.get(),
    )
    return LoginState(session=session, retry_after_seconds=None)


async def _asked_again(
    context: Context, provider: Provider, token: str, pending: PendingDevice
) -> PendingDevice | PersonIdentity:
    """Ask the provider whether the person has logged in, and keep or forget the login as it answers."""
    still_pending: PendingDevice | None = pending
    try:
        outcome = await provider.poll_device(pending)
        still_pending = outcome if isinstance(outcome, PendingDevice) else None
        return outcome
    except LoginRefused:
        still_pending = None
        raise
    finally:
        # Also where the caller went away: the next question begins where this one ended.
        if still_pending is None:
            await run_in_threadpool(device_logins.forget_login, context.coordinator, token)
        else:
            await run_in_threadpool(device_logins.give_turn_back, context.coordinator, token, still_pending)
