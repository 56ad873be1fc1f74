"""A long poll: the answer as soon as there is news, or what is there when the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Query
from starlette.concurrency import run_in_threadpool

from server.api.auth import Context
from server.services import events

T = TypeVar("T")
Wait = Annotated[float, Query(ge=0, le=55, allow_inf_nan=False, description="seconds to wait for news")]


async def poll(here: Context, study: str, wait: float, look: Callable[[], T], is_news: Callable[[T], bool]) -> T:
    """What `look` finds, once it is news or `wait` seconds are over. Between looks no thread and no session is held."""
    now = asyncio.get_running_loop().time
    deadline = now() + min(wait, here.settings.long_poll_seconds)

    def marked() -> tuple[int, T]:
        # The mark first: news that come after it are not slept through.
        return events.marks(here.coordinator, [study]).get(study, 0), look()

    while True:
        mark, found = await run_in_threadpool(marked)
        if is_news(found) or not await here.watcher.wait(study, mark, deadline - now()):
            return found
