"""The way of a browser through the identity provider, and back with a session in a cookie.

The state of a login stands in a cookie of its browser alone until the browser comes back. It is no proof by itself:
the provider's code fits its verifier, and the signed ID token names its nonce.
"""

from __future__ import annotations

import html
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from server.api.auth import Context, RequestContext
from server.api.docs import PAGE_HEADERS
from server.api.problems import CATALOGUE, ApiProblem
from server.api.session_cookie import SESSION_COOKIE, cookie_named
from server.api.sign_in import BACK, asked_provider
from server.domain.errors import Rejected
from server.services.people import sessions
from server.single_sign_on.logins import LOGIN_SECONDS, PendingLogin
from server.telemetry import request_id
from study_protocol.study.people import PersonSession

router = APIRouter(include_in_schema=False)
LOGIN_COOKIE = "__Host-wardround-login"
_HOME = "/dashboard"
# Pages of this coordinator only: an address elsewhere would use its name for a trick.
_OWN_PAGE = r"^/dashboard(/[a-z0-9-]{1,63})?$"
_PAGE = Path(__file__).parent / "login.html"
_SECURE: dict[str, Any] = {"path": "/", "secure": True, "httponly": True}
_NOT_OURS = "this answer belongs to no login that this browser began here: start the login again"
_Coded = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


class _Begun(BaseModel):
    """The contents of the login's cookie. to: the page that the browser came from."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    state: _Coded
    nonce: _Coded
    verifier: _Coded
    expires_at: float = Field(allow_inf_nan=False)
    to: str = Field(pattern=_OWN_PAGE)


@router.get("/login")
async def log_in(context: RequestContext, to: str = _HOME) -> Response:
    """Send the browser to the identity provider."""
    try:
        async with asked_provider(context) as provider:
            address, pending = await provider.begin(context.settings.origin + BACK)
    except ApiProblem as problem:
        return _refusal_page(problem.code, problem.detail)
    to = to if re.fullmatch(_OWN_PAGE, to) else _HOME
    begun = {name: text for name, text in asdict(pending).items() if name != "redirect_uri"}
    answer = RedirectResponse(address, 303, PAGE_HEADERS | {"Cache-Control": "no-store"})
    # Lax: the provider's page sends the browser back.
    cookie_value = urlsafe_b64encode(json.dumps(begun | {"to": to}).encode()).decode()
    answer.set_cookie(LOGIN_COOKIE, cookie_value, max_age=int(LOGIN_SECONDS), samesite="lax", **_SECURE)
    return answer


@router.get(BACK)
async def finish_login(request: Request, context: RequestContext) -> Response:
    """Begin the session of a person whom the identity provider sends back, and show the page that asked for it."""
    try:
        begun = _begun_in(request)
        session = await _begin_session(request, context, begun)
        answer: Response = RedirectResponse(begun.to, 303, PAGE_HEADERS | {"Cache-Control": "no-store"})
        seconds = 60 * context.settings.sso_session_minutes
        # Strict: pages without any fact open from everywhere, and only they ask with it.
        answer.set_cookie(SESSION_COOKIE, session.token or "", max_age=seconds, samesite="strict", **_SECURE)
    except (ApiProblem, Rejected) as problem:
        answer = _refusal_page(problem.code, problem.detail)
    # A login works once.
    answer.delete_cookie(LOGIN_COOKIE, samesite="lax", **_SECURE)
    return answer


async def _begin_session(request: Request, context: Context, begun: _Begun) -> PersonSession:
    """Raises ApiProblem or Rejected."""
    pending = PendingLogin(redirect_uri=context.settings.origin + BACK, **begun.model_dump(exclude={"to"}))
    async with asked_provider(context) as provider:
        identity = await provider.finish(pending, request.query_params.multi_items())
    return await run_in_threadpool(
        sessions.begin_session,
        context.coordinator,
        identity,
        60.0 * context.settings.sso_session_minutes,
        "finish_login",
        BACK,
        request_id.get(),
    )


def _begun_in(request: Request) -> _Begun:
    """Return what the login's cookie holds. Raises ApiProblem `login-refused`."""
    try:
        cookie_value: Any = json.loads(urlsafe_b64decode(cookie_named(request, LOGIN_COOKIE)))
        return _Begun.model_validate(cookie_value)
    except (ValueError, ValidationError, RecursionError):
        # Without its cause, which may quote the cookie.
        raise ApiProblem("login-refused", _NOT_OURS) from None


def _refusal_page(code: str, detail: str) -> HTMLResponse:
    """Return a page that says why the login failed."""
    text = _PAGE.read_text().replace("{detail}", html.escape(f"{detail[:1].upper()}{detail[1:]}."))
    return HTMLResponse(text, CATALOGUE[code].status, PAGE_HEADERS | {"Cache-Control": "no-store"})
