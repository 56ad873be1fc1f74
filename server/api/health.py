"""Is the process alive, can it do its work, and what is it. All open, none says anything about a study."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Literal

from fastapi import APIRouter

from server.api.auth import RequestContext
from server.api.problems import RETRY_AFTER_SECONDS, ApiProblem
from server.services.readiness import CHECK_SECONDS, NoAnswer
from server.telemetry import logger
from study_protocol.versions import PROTOCOL, UNNUMBERED, program_version
from study_protocol.wire.values import Message

router = APIRouter(tags=["health"])


class Versions(Message):
    """The version of this coordinator and of its protocol.

    version       of its program
    protocol      the number of the protocol that it speaks. It takes part in studies that need no more
    min_protocol  the least number that it understands. Every answer says which number a study needs of its hospitals
    """

    version: str
    protocol: int
    min_protocol: int


class Health(Message):
    """All is well.

    status  never anything else: what is not well is a problem document
    """

    status: Literal["ok"]


@router.get("/version")
async def show_version() -> Versions:
    """Return the program's version, and the numbers of the protocol that it speaks."""
    return Versions(version=program_version(), protocol=PROTOCOL, min_protocol=UNNUMBERED)


@router.get("/livez")
async def livez() -> Health:
    """Report that the process answers."""
    return Health(status="ok")


@router.get("/readyz")
async def readyz(context: RequestContext) -> Health:
    """Report whether the database answers, and whether the folder or object store of model files takes a file, in time.

    A request within a second of a good answer gets that answer.
    """
    # Not in a thread of the framework: while the database hangs, requests that wait for it have them all.
    checks = context.readiness.ask()
    errors = await asyncio.gather(*(_error(name, result) for name, result in checks.items()))
    reasons = [_reason(name, error) for name, error in zip(checks, errors, strict=True) if error is not None]
    if reasons:
        detail = f"{', '.join(reasons)}. Try again"
        raise ApiProblem("unavailable", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
    return Health(status="ok")


async def _error(name: str, result: Future[object]) -> Exception | None:
    try:
        # Shielded: the result is shared with others, and is not given up because one of them stops waiting.
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(result)), CHECK_SECONDS)
    except TimeoutError:
        return NoAnswer(f"{name} gave no answer within {CHECK_SECONDS:g} seconds")
    except Exception as error:  # noqa: BLE001 - a load balancer must hear 503, whatever stands in the way
        return error
    return None


def _reason(name: str, error: Exception) -> str:
    """Return the reason for the caller, without internal details. Those are in the log alone."""
    logger.warning("not ready", exc_info=error)
    return str(error) if isinstance(error, NoAnswer) else f"{name} is away"
