"""The catalogue of the API's errors, and the one place that turns exceptions into problem+json.

A code is stable, a title is short, a detail says what to do next. Submitted values are never echoed, and internal
details never leave.
"""

from __future__ import annotations

import errno
import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from server.db.blobs import StoreAway
from server.db.row_checks import RowBroken
from server.domain.errors import Rejected
from server.services.tampered_studies import WHAT_TO_DO
from server.telemetry import request_id
from study_protocol.study import any_settings, messages, queries
from study_protocol.study.messages import Problem
from study_protocol.wire.signing import ClockSkew, SigningError
from study_protocol.wire.tensors import TensorError
from study_protocol.wire.values import Message
from study_protocol.wire.wrong_entries import as_words, models_in

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2.0
# A body that only consists of mistakes does not get an answer of its own length.
MAX_FIELDS = 16
PARAMETERS = (
    *("study", "client", "round", "query", "state", "version", "key", "wait", "after", "limit", "since", "search"),
    "questions_first",
)
_FULL = (errno.ENOSPC, errno.EDQUOT)

logger = logging.getLogger("wardround.api")


@dataclass(frozen=True)
class ProblemKind:
    status: int
    title: str


CATALOGUE: dict[str, ProblemKind] = {
    # Who asks
    "bad-token": ProblemKind(401, "The key or token is missing or not valid"),
    "bad-signature": ProblemKind(401, "The signature is not the signer's"),
    "wrong-target": ProblemKind(401, "The token was made for another request"),
    "clock-skew": ProblemKind(401, "The token is not valid at the server's time"),
    "replayed": ProblemKind(401, "This token has been used before"),
    "revoked": ProblemKind(403, "The client no longer takes part"),
    "forbidden": ProblemKind(403, "Not allowed for this caller"),
    "login-refused": ProblemKind(403, "The login is refused"),
    "too-many-logins": ProblemKind(429, "Too many logins under way"),
    "client-too-old": ProblemKind(403, "The study needs a newer program"),
    "too-many-requests": ProblemKind(429, "Too many requests of one caller at once"),
    # The resource
    "not-found": ProblemKind(404, "No such resource"),
    "unknown-study": ProblemKind(404, "No such study"),
    "unknown-model": ProblemKind(404, "No such model version"),
    "unknown-client": ProblemKind(404, "No such client in this study"),
    "unknown-key": ProblemKind(404, "No such key"),
    "round-unknown": ProblemKind(404, "No such round"),
    "unknown-query": ProblemKind(404, "No such query"),
    "unknown-login": ProblemKind(404, "No such login under way"),
    "no-single-sign-on": ProblemKind(404, "People have keys only"),
    "no-session": ProblemKind(404, "This round has no secure sum"),
    "method-not-allowed": ProblemKind(405, "No such method on this resource"),
    "range-not-satisfiable": ProblemKind(416, "The range lies outside the model"),
    # State
    "frozen": ProblemKind(409, "The study's settings are frozen"),
    "study-exists": ProblemKind(409, "A study of this name exists"),
    "study-not-running": ProblemKind(409, "The study is not running"),
    "study-begun": ProblemKind(409, "The study was started"),
    "study-finished": ProblemKind(409, "The study is finished"),
    "too-few-enrolled": ProblemKind(409, "Too few hospitals have enrolled"),
    "not-enrolled": ProblemKind(409, "The client has not enrolled"),
    "not-sampled": ProblemKind(409, "The client was not sampled in this round"),
    "different-update": ProblemKind(409, "Another update is recorded already"),
    "unknown-witness": ProblemKind(404, "The study has no outside witness of this name"),
    "unknown-head": ProblemKind(409, "The signed head is not one of this ledger"),
    "no-queries": ProblemKind(409, "The study takes no queries"),
    "no-evaluation": ProblemKind(409, "The study evaluates no model on its patients"),
    "query-overspends": ProblemKind(409, "The query could pass a limit"),
    "query-opened": ProblemKind(409, "The query's sum was opened before"),
    "query-closed": ProblemKind(410, "The query no longer accepts consents"),
    "model-missing": ProblemKind(409, "The study has no initial model"),
    "invitation-used": ProblemKind(409, "The invitation has been used"),
    "different-message": ProblemKind(409, "Another message of this step is recorded already"),
    "too-early": ProblemKind(409, "The session has not come this far"),
    "session-failed": ProblemKind(410, "The secure sum of this round has failed"),
    "round-closed": ProblemKind(410, "The round takes no more updates"),
    "invitation-expired": ProblemKind(410, "The invitation has expired"),
    "invitation-unknown": ProblemKind(404, "No such invitation"),
    # The body
    "body-too-slow": ProblemKind(408, "The body came too slowly"),
    "body-too-large": ProblemKind(413, "The body is too large"),
    "body-truncated": ProblemKind(400, "The body ended early"),
    "digest-mismatch": ProblemKind(400, "The body is not the one that was signed"),
    "invalid-request": ProblemKind(422, "The request is not valid"),
    "malformed-tensors": ProblemKind(422, "The body is not a safetensors file"),
    "wrong-names": ProblemKind(422, "The tensors have other names"),
    "wrong-shape": ProblemKind(422, "A tensor has another shape"),
    "wrong-dtype": ProblemKind(422, "A tensor has another type"),
    "not-finite": ProblemKind(422, "A tensor holds NaN or an infinity"),
    "weights-out-of-bounds": ProblemKind(422, "A number of the model is too large"),
    "wrong-metadata": ProblemKind(422, "The file's metadata names another model"),
    "clip-exceeded": ProblemKind(422, "The update exceeds the clip norm"),
    "norm-exceeded": ProblemKind(422, "The update is longer than the study allows"),
    "log-moments-missing": ProblemKind(422, "The log-moments are missing"),
    "first-round-overspends": ProblemKind(422, "The first round would overspend"),
    "whole-plan-overspends": ProblemKind(422, "The whole plan would overspend"),
    "beyond-bounds": ProblemKind(422, "The guarantee would be too weak"),
    # The coordinator itself
    "unavailable": ProblemKind(503, "The coordinator cannot answer now"),
    "internal": ProblemKind(500, "The coordinator failed"),
}

_OF_STATUS = {404: "not-found", 405: "method-not-allowed", 413: "body-too-large"}
# Codes that are clear among a module's own errors, and too short for the catalogue.
_OF_OTHERS = {"malformed": "malformed-tensors", "too-large": "body-too-large", "bad-key": "invalid-request"}


class ApiProblem(Exception):
    """An answer that is an error: a code of the catalogue, what to do next, and optional members."""

    def __init__(self, code: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.members = members


def answer(
    code: str, detail: str, *, status: int | None = None, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """Return the problem document of `code` (RFC 9457)."""
    entry = CATALOGUE[code]
    status = status or entry.status
    problem = Problem(
        type=f"urn:wardround:problem:{code}",
        title=entry.title,
        status=status,
        code=code,
        detail=detail,
        request_id=request_id.get(),
        **members,
    )
    headers = dict(headers or {}) | {"Cache-Control": "no-store"}
    if status == 401:
        # RFC 9110, 15.5.2 asks for it with every 401.
        headers["WWW-Authenticate"] = "Bearer"
    if problem.retry_after_seconds is not None:
        # The header holds whole seconds, and 0 would mean: at once.
        headers["Retry-After"] = str(max(1, round(problem.retry_after_seconds)))
    return Response(problem.model_dump_json(exclude_none=True), status, headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Response:
    """Return the answer for an exception. Unknown exceptions are `internal` and logged with their place."""
    match error:
        case ApiProblem():
            return answer(error.code, error.detail, **error.members)
        case Rejected():
            extra = dict(error.extra)
            return answer(error.code, error.detail, fields=extra.pop("fields", None), extra=extra or None)
        case ClockSkew():
            return answer(error.code, error.detail, server_time=error.server_time)
        case SigningError() | TensorError():
            return answer(_OF_OTHERS.get(error.code, error.code), error.detail)
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _frameworks_problem(error)
        case ClientDisconnect():
            return answer("body-truncated", "send the whole body again")
        case _:
            return _failure(error)


def _invalid(error: RequestValidationError) -> Response:
    places = [(_place(e["loc"]), as_words(e["msg"])) for e in error.errors()[:MAX_FIELDS]]
    reasons = "; ".join(f"{place}: {message}" for place, message in places)
    fields = [place for place, _ in places]
    return answer("invalid-request", f"correct these and send again: {reasons}", fields=fields)


def _frameworks_problem(error: HTTPException) -> Response:
    # The framework wraps every error that stops it from reading a JSON body.
    if isinstance(error.__cause__, ApiProblem | ClientDisconnect):
        return problem_of(error.__cause__)
    if error.status_code in _OF_STATUS:
        code = _OF_STATUS[error.status_code]
        return answer(code, "see /docs for the resources and their methods", headers=error.headers)
    if error.status_code < 500:
        return answer("invalid-request", "the body is not what this resource reads", status=error.status_code)
    return _failure(error)


def _failure(error: Exception) -> Response:
    """Log what the coordinator failed at, and return the answer."""
    match error:
        case RowBroken():
            logger.critical("%s", error, exc_info=error)
            return answer("unavailable", f"a row of the database cannot be read: {WHAT_TO_DO}")
        case FileNotFoundError():
            logger.critical("a file is gone", exc_info=error)
            return answer("unavailable", "a file of this study is gone: restore the blobs from their backup")
        case _ if isinstance(error, StoreAway) or _is_passing(error):
            is_store_away = isinstance(error, StoreAway)
            logger.warning("the object store is away" if is_store_away else "unavailable", exc_info=error)
            full = " once its operator has made room: the coordinator's disk is full" if _is_full(error) else ""
            detail = f"no state was changed: send the same request again{full}"
            return answer("unavailable", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
        case _:
            logger.error("internal", exc_info=error)
            return answer("internal", "tell the operator the request id. Sending the same request again is safe")


def _place(location: Sequence[Any]) -> str:
    """Return the place of a mistake in the API's own words: a name that the caller made up is not repeated."""
    # The form of the settings stands behind `settings`, and is not a name that the caller wrote.
    if (at := next((i for i, part in enumerate(location) if part == "settings"), None)) is not None:
        location = [*location[: at + 1], *location[at + 2 :]]
    return ".".join(str(part) if isinstance(part, int) or part in _words() else "…" for part in location)


@functools.cache
def _words() -> frozenset[str]:
    open_kinds = [kind for module in (messages, queries, any_settings) for kind in vars(module).values()]
    models: set[type[BaseModel]] = set()
    # Also what stands within them, at any depth.
    while open_kinds:
        kind = open_kinds.pop()
        if isinstance(kind, type) and issubclass(kind, Message) and kind not in models:
            models.add(kind)
            open_kinds += [inner for field in kind.model_fields.values() for inner in models_in(field)]
    return frozenset({"body", "query", "path", *PARAMETERS}.union(*(model.model_fields for model in models)))


def _is_passing(error: Exception) -> bool:
    """Return whether the database is away or overloaded, or the disk is full: the request may succeed later."""
    if isinstance(error, DBAPIError):
        return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return isinstance(error, PoolTimeout) or _is_full(error)


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _FULL


async def answer_exception(_: Request, error: Exception) -> Response:
    return problem_of(error)


class Problems:
    """The innermost of our layers: every error of a handler or of `Intake` becomes a problem document."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: AsgiMessage) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            # An answer that has begun can only be cut off: the server closes the connection.
            if scope["type"] != "http" or started:
                raise
            await problem_of(error)(scope, receive, send)
