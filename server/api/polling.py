"""The long poll: an answer as soon as there is news, for a caller that may still read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from server.api.auth import Caller, Context
from server.domain.errors import Rejected
from server.services.people import known
from server.services.people.person import Person

T = TypeVar("T")


async def poll(
    context: Context,
    caller: Caller,
    study: str,
    wait: float,
    look: Callable[[], tuple[int, T | None]],
    known_mark: int | None = None,
    glance: Callable[[], tuple[int, T | None] | None] = lambda: None,
) -> T | None:
    """Return the result of `look`, as soon as it has one or `wait` seconds are over.

    look    returns the study's mark and a result, and runs in the thread pool
    known_mark  the mark up to which the caller knows that there is no result
    glance  as `look`, where that takes less time than another thread, else None

    Between looks no thread and no session is held.

    Raises:
        Rejected: `caller` may read no longer: `revoked`, `bad-token`.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + min(wait, context.settings.long_poll_seconds)

    async def looked() -> tuple[int, T | None]:
        return glance() or await run_in_threadpool(look)

    # The caller was looked up a moment ago.
    mark, result = (known_mark, None) if known_mark is not None and wait > 0 else await looked()
    while result is None and await context.watcher.wait(study, mark, deadline - now()):
        mark, result = await looked()
        # Last, because consents end the wait: a caller that takes part now took part at the look as well.
        await require_standing(context, caller)
    return result


async def require_standing(context: Context, caller: Caller) -> None:
    """Check that the caller of a long request may still read.

    Raises:
        Rejected: `revoked` (also withdrawn, and of a key that was rotated away), or `bad-token` of an API key.
    """
    if isinstance(caller, Person):
        await run_in_threadpool(known.require_valid, context.coordinator, caller)
        return
    member = await context.identities.ask((caller.study, caller.name))
    if member is None or member.state != "active" or member.public_key != caller.public_key:
        raise Rejected("revoked", "this client no longer takes part, or has another key now")
