"""Structured logs: one JSON object a line, with the id of the request it belongs to.

Secrets and patient data are never fields: no body, no header, no token, no query string, no address beyond the route's
template. `FIELDS` is the whole list of permitted fields.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import secrets
import sys
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FIELDS = ("method", "route", "status", "milliseconds", "study", "round", "code", "event", "owner")
# Values that a caller may put into the log and into a header.
_HARMLESS = re.compile(r"[A-Za-z0-9_.-]{1,64}")

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
logger = logging.getLogger("wardround.api")


class JsonLines(logging.Formatter):
    """Formats a record as `{"at", "level", "logger", "message", "request_id", …FIELDS}`.

    An exception adds its type and its frames, and its text if that contains no name.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id.get():
            line["request_id"] = request_id.get()
        line |= {name: record.__dict__[name] for name in FIELDS if name in record.__dict__}
        if record.exc_info and record.exc_info[0] is not None:
            # The message of an exception may quote what a client sent. Its type and place are enough to find it.
            line["exception"] = record.exc_info[0].__name__
            line["frames"] = _frames(record.exc_info[2])
            if getattr(record.exc_info[1], "names_nobody", False):
                line["reason"] = str(record.exc_info[1])
        return json.dumps(line, default=str)


def _frames(traceback: Any) -> list[str]:
    frames: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    # The innermost: the others are the server's and the framework's.
    return frames[-12:]


def configure_logging(level: str) -> None:
    """Send everything to standard error as JSON lines. Called by the commands, never at import."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # uvicorn's own handlers would say everything twice. Its access log has addresses and queries.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.access").disabled = True


class RequestLog:
    """Gives every request an id, returns it as `X-Request-Id`, and logs one line when the answer has left.

    Answers are not stored by caches nor guessed at by browsers unless they say otherwise.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # 500 stands until an answer begins: a request that ends without one has failed.
        identity, status, started = _usable(scope) or secrets.token_hex(8), 500, time.perf_counter()
        request_id.set(identity)

        async def labelled(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # ASGI lets an answer begin without any.
                message.setdefault("headers", [])
                _complete(MutableHeaders(scope=message), identity)
            await send(message)

        try:
            await self._app(scope, receive, labelled)
        finally:
            route = getattr(scope.get("route"), "path", "")
            details = {"method": scope["method"], "route": route, "status": status}
            details["milliseconds"] = round(1000 * (time.perf_counter() - started), 2)
            logger.info("request", extra=details)


def _complete(headers: MutableHeaders, identity: str) -> None:
    # Answers with an ETag may be kept and asked about again. All others are for this caller, now.
    if "etag" not in headers:
        headers.setdefault("cache-control", "no-store")
    headers.setdefault("x-content-type-options", "nosniff")
    headers["x-request-id"] = identity


def _usable(scope: Scope) -> str | None:
    """Return the caller's own X-Request-Id, if it is short and harmless."""
    request_id = Headers(scope=scope).get("x-request-id", "")
    return request_id if _HARMLESS.fullmatch(request_id) else None
