"""The long poll alone: what it answers with, when, and how often it looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from server.api.auth import Context
from server.api.lanes import Lanes
from server.api.lookups import Lookups
from server.api.polling import poll
from server.api.watcher import Watcher
from server.config import Settings
from server.services.coordinator import Coordinator
from server.services.identities import identify
from server.services.people import keys
from server.services.people.known import authenticate_each
from server.services.readiness import Readiness
from study_protocol.study.people import ApiKeyCreate


def _ask(coordinator: Coordinator, wait: float, look: Callable[[], int], **settings: float) -> tuple[int | None, float]:
    """What `poll` answers where 3 or more is news, and after how many seconds; every mark is a new one."""
    marks, seen = iter(range(1, 1_000_000)), iter(range(1_000_000))
    who = keys.authenticate(
        coordinator, keys.create_key(coordinator, ApiKeyCreate(role="viewer", name="Ada")).key or ""
    )

    def looked() -> tuple[int, int | None]:
        found = look()
        return next(seen), found if found >= 3 else None

    async def scenario() -> tuple[int | None, float]:
        watcher = Watcher(lambda studies: dict.fromkeys(studies, next(marks)), 0.01)
        chosen = Settings.model_validate(settings)
        identities = Lookups(partial(identify, coordinator), at_once=False)
        keys = Lookups(partial(authenticate_each, coordinator), at_once=False)
        readiness = Readiness(coordinator)
        context = Context(chosen, coordinator, watcher, lambda: 0.0, identities, keys, Lanes(), readiness)
        began = asyncio.get_running_loop().time()
        found = await poll(context, who, "sepsis", wait, looked)
        return found, asyncio.get_running_loop().time() - began

    return asyncio.run(scenario())


def _counting() -> Callable[[], int]:
    numbers = iter(range(1, 1_000_000))
    return lambda: next(numbers)


def test_news_that_are_there_are_answered_at_once(coordinator: Coordinator) -> None:
    found, seconds = _ask(coordinator, 30, lambda: 7)
    assert found == 7
    assert seconds < 10


def test_every_mark_is_looked_at_until_there_is_news(coordinator: Coordinator) -> None:
    found, seconds = _ask(coordinator, 30, _counting())
    assert found == 3
    assert seconds < 20


@pytest.mark.parametrize(("wait", "longest"), [(0.0, 30.0), (30.0, 0.1)], ids=["asked for", "the coordinator's own"])
def test_when_the_time_is_up_there_is_nothing(coordinator: Coordinator, wait: float, longest: float) -> None:
    found, seconds = _ask(coordinator, wait, lambda: 1, long_poll_seconds=longest)
    assert found is None
    assert seconds < 10


def test_a_look_that_fails_is_the_caller_s_to_know(coordinator: Coordinator) -> None:
    def broken() -> int:
        raise ConnectionError("the database is away")

    with pytest.raises(ConnectionError):
        _ask(coordinator, 30, broken)
