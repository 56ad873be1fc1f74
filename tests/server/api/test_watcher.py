"""Waiting: one look for everybody, no thread and no session per waiter, nobody forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest

from server.api.watcher import Watcher


class _Marks:
    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self.looks = 0
        self.asked: list[tuple[str, ...]] = []
        self.failure: Exception | None = None

    def __call__(self, studies: Collection[str]) -> dict[str, int]:
        self.looks += 1
        self.asked.append(tuple(studies))
        if self.failure is not None:
            raise self.failure
        return dict(self.marks)


async def _after(seconds: float, marks: _Marks, **news: int) -> None:
    await asyncio.sleep(seconds)
    marks.marks |= news


def test_news_of_the_study_wakes_its_waiters_only() -> None:
    async def scenario() -> tuple[list[bool], bool]:
        marks = _Marks()
        watcher = Watcher(marks, 0.01)
        waiting = [asyncio.create_task(watcher.wait("a", 3, 5)) for _ in range(50)]
        other = asyncio.create_task(watcher.wait("b", 0, 0.3))
        await _after(0.05, marks, a=4)
        return await asyncio.gather(*waiting), await other

    woken, other = asyncio.run(scenario())
    assert woken == [True] * 50
    assert other is False


def test_an_old_mark_wakes_nobody() -> None:
    async def scenario() -> bool:
        marks = _Marks()
        marks.marks = {"a": 3}
        return await Watcher(marks, 0.01).wait("a", 3, 0.1)

    assert asyncio.run(scenario()) is False


def test_a_thousand_waiters_cost_one_look_and_no_thread() -> None:
    async def scenario() -> tuple[int, int]:
        marks = _Marks()
        watcher = Watcher(marks, 0.02)
        threads = threading.active_count()
        waiting = [asyncio.create_task(watcher.wait(f"s{i % 3}", 0, 0.5)) for i in range(1000)]
        await asyncio.sleep(0.2)
        grown = threading.active_count() - threads
        await asyncio.gather(*waiting)
        return grown, max(len(asked) for asked in marks.asked)

    grown, asked = asyncio.run(scenario())
    assert grown <= 1
    assert asked == 3


def test_nobody_waits_nobody_looks() -> None:
    async def scenario() -> tuple[int, int]:
        marks = _Marks()
        watcher = Watcher(marks, 0.01)
        await watcher.wait("a", 0, 0.05)
        await asyncio.sleep(0.05)
        before = marks.looks
        await asyncio.sleep(0.1)
        return before, marks.looks

    before, after = asyncio.run(scenario())
    assert before == after


def test_a_database_that_is_away_reaches_every_waiter_and_the_next_one_looks_again() -> None:
    async def scenario() -> tuple[list[object], bool]:
        marks = _Marks()
        marks.failure = ConnectionError("away")
        watcher = Watcher(marks, 0.01)
        failed = await asyncio.gather(*[watcher.wait("a", 0, 5) for _ in range(3)], return_exceptions=True)
        marks.failure, marks.marks = None, {"a": 1}
        return list(failed), await watcher.wait("a", 0, 5)

    failed, woken = asyncio.run(scenario())
    assert [type(error) for error in failed] == [ConnectionError] * 3
    assert woken is True


def test_closing_sends_everybody_home() -> None:
    async def scenario() -> tuple[bool, bool]:
        watcher = Watcher(_Marks(), 0.01)
        waiting = asyncio.create_task(watcher.wait("a", 0, 60))
        await asyncio.sleep(0.05)
        watcher.close()
        return await waiting, await watcher.wait("a", 0, 60)

    assert asyncio.run(scenario()) == (False, False)


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_is_no_wait(seconds: float) -> None:
    marks = _Marks()
    assert asyncio.run(Watcher(marks, 0.01).wait("a", 0, seconds)) is False
    assert marks.looks == 0


def test_what_is_told_wakes_at_once_whoever_waits_or_begins_to() -> None:
    async def scenario() -> tuple[bool, bool, bool]:
        # It would not look by itself before the test is over.
        watcher = Watcher(lambda studies: {}, 1000.0)
        waiting = asyncio.create_task(watcher.wait("a", 3, 20))
        other = asyncio.create_task(watcher.wait("b", 0, 0.2))
        await asyncio.sleep(0)
        thread = threading.Thread(target=watcher.tell, args=("a", 4))
        thread.start()
        woken = await waiting
        # Told before anybody waited, and after it was looked.
        late = await watcher.wait("a", 3, 20)
        thread.join()
        return woken, late, await other

    assert asyncio.run(scenario()) == (True, True, False)


@pytest.mark.slow
def test_news_of_a_database_that_went_back_wake_nobody_for_long() -> None:
    async def scenario() -> int:
        marks = _Marks()
        watcher = Watcher(marks, 0.01)
        watcher.tell("a", 9)
        # As it was restored: event 5 is its newest, and whoever waits looks again and waits again.
        marks.marks, woken = {"a": 5}, 0
        while await watcher.wait("a", 5, 0.3):
            await asyncio.sleep(0.05)
            woken += 1
        return woken

    assert 0 < asyncio.run(scenario()) < 100


def test_what_is_told_while_the_process_stops_fails_nobody() -> None:
    watcher = Watcher(_Marks(), 0.01)
    asyncio.run(watcher.wait("a", 0, 0.02))
    watcher.tell("a", 1)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_look_that_takes_no_time_is_made_without_another_thread(at_once: bool) -> None:
    threads: set[threading.Thread] = set()

    def read(studies: Collection[str]) -> dict[str, int]:
        threads.add(threading.current_thread())
        return dict.fromkeys(studies, 4)

    assert asyncio.run(Watcher(read, 0.01, at_once=at_once).wait("a", 3, 5))
    assert (threads == {threading.current_thread()}) is at_once
