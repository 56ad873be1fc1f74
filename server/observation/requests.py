"""Every request as the observer hears of it: the template of its address, its status, its seconds, its bytes."""

from __future__ import annotations

import time
from contextlib import nullcontext

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.observation.observer import ProcessObserver

# No part of an address that a stranger made up is repeated.
UNKNOWN = "unknown"
# A caller may write any word where a method belongs, and every new label would be kept for ever.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class ObservedRequests:
    """The outermost layer, so that it sees the answers of every other layer. It changes none."""

    def __init__(self, app: ASGIApp, observer: ProcessObserver) -> None:
        self._app = app
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        spans, instruments = self._observer.spans, self._observer.instruments
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        # 500 stands until an answer begins: a request that ends without one has failed.
        status, request_bytes, response_bytes, started = 500, 0, 0, time.perf_counter()

        async def reading() -> Message:
            nonlocal request_bytes
            message = await receive()
            request_bytes += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status, response_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                response_bytes += len(message.get("body", b""))
            await send(message)

        with nullcontext() if spans is None else spans.request(method, scope) as ended:
            try:
                await self._app(scope, reading, sending)
            finally:
                route = _route(scope)
                if instruments is not None:
                    seconds = time.perf_counter() - started
                    instruments.answered(method, route, status, seconds, request_bytes, response_bytes)
                if ended is not None:
                    ended(route, status)


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "") or UNKNOWN
