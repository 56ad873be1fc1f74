"""Is the process alive; can it do its work. Both open, neither says anything about a study."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from client_sdk.protocol.study.values import Message
from server.api.auth import Here
from server.api.problems import RETRY_AFTER_SECONDS, ApiProblem
from server.services.coordinator import Coordinator
from server.telemetry import logger

router = APIRouter(tags=["health"])


class Health(Message):
    """All is well.

    status  never anything else: what is not well is a problem document
    """

    status: Literal["ok"]


@router.get("/livez")
async def livez() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz")
def readyz(here: Here) -> Health:
    """The database answers a question, and the folder or object store of model files takes a file."""
    try:
        check(here.coordinator)
    except Exception as error:
        # Whatever stands in the way, a load balancer must hear 503, and nothing about the inside but in the log.
        logger.warning("not ready", exc_info=error)
        detail = "the database or the store of model files is away; try again"
        raise ApiProblem("unavailable", detail, retry_after_seconds=RETRY_AFTER_SECONDS) from error
    return Health(status="ok")


def check(coordinator: Coordinator) -> None:
    """Ask the database its time and write a byte to where model files lie. Raises whatever stands in the way."""
    coordinator.database.read("readiness", lambda transaction: transaction.now())
    coordinator.blobs.check()
