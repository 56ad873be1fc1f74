"""Sessions of browsers: the cookie that a browser sends by itself, and the token that only our own pages can send."""

from __future__ import annotations

import hmac

from fastapi import Request

from server.api.problems import ApiProblem
from server.services.people.sessions import PREFIX, csrf_token_of

# Sent to this origin alone, by its own pages alone, and hidden from scripts.
SESSION_COOKIE = "__Host-wardround-session"
CSRF_HEADER = "X-CSRF-Token"
READING = frozenset({"GET", "HEAD"})


def cookie_of(request: Request) -> str | None:
    """Return the session's token that a browser sent by itself, or None. A token that a program names goes first."""
    cookie = cookie_named(request, SESSION_COOKIE)
    return cookie if cookie.startswith(f"{PREFIX}_") and "authorization" not in request.headers else None


def cookie_named(request: Request, name: str) -> str:
    """Return the value of the cookie with exactly this name. Empty: there is none."""
    # The framework takes other blanks away, too. A browser lets other hosts of the domain set a name that begins so.
    headers = request.headers.getlist("cookie")
    cookies = (part.strip(" \t").partition("=") for header in headers for part in header.split(";"))
    return next((value.strip('"') for found_name, _, value in cookies if found_name == name), "")


def require_own_page(request: Request, cookie: str) -> None:
    """Check that a page of the coordinator asks. A browser sends the cookie with what other sites ask for as well.

    Raises:
        ApiProblem: `forbidden`: a request that changes something lacks the token that only its own pages can read.
    """
    sent = request.headers.get(CSRF_HEADER, "")
    if request.method not in READING and not hmac.compare_digest(sent.encode(), csrf_token_of(cookie).encode()):
        raise ApiProblem("forbidden", f"send the session's csrf_token as {CSRF_HEADER}: GET /v1/person has it")
