"""What every handler may reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request

from client_sdk.protocol.study.settings import NAME_PATTERN
from server.api.watcher import Watcher
from server.config import Settings
from server.services.coordinator import Coordinator


@dataclass(frozen=True)
class Context:
    """One per process.

    clock  seconds since the epoch, for the time window of request tokens
    wake   tells a worker in this process that something arrived
    """

    settings: Settings
    coordinator: Coordinator
    watcher: Watcher
    clock: Callable[[], float]
    wake: Callable[[], None]


def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


Here = Annotated[Context, Depends(_context)]
StudyName = Annotated[str, Path(pattern=NAME_PATTERN)]
ClientName = Annotated[str, Path(pattern=NAME_PATTERN)]
RoundNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]
After = Annotated[int, Query(ge=0, le=2**53, description="everything above this number")]
PageSize = Annotated[int, Query(ge=1, le=500, description="most items of one answer")]
