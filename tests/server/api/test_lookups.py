"""Questions that are asked together: everybody gets its own answer, read after it was asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from server.api.lookups import Lookups


class Table:
    """Answers with how often it was looked at before, or with what is wrong with the question."""

    def __init__(self) -> None:
        self.looks: list[Sequence[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def look(self, questions: Sequence[str]) -> list[int | Exception]:
        self.looks.append(questions)
        number = len(self.looks)
        self.begun.set()
        assert self.go.wait(10)
        if "away" in questions:
            raise ConnectionError
        return [ValueError(question) if question == "wrong" else number for question in questions]


async def gathered(asked: Lookups[str, int], *questions: str) -> list[int | BaseException]:
    return await asyncio.gather(*(asked.ask(question) for question in questions), return_exceptions=True)


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_wrong_with_one_question_is_its_own(at_once: bool) -> None:
    table = Table()
    good, wrong, other = asyncio.run(gathered(Lookups(table.look, at_once=at_once), "a", "wrong", "b"))
    assert isinstance(good, int)
    assert isinstance(other, int)
    assert isinstance(wrong, ValueError)


def test_whoever_asks_during_a_look_is_answered_by_the_next_one() -> None:
    table = Table()
    table.go.clear()

    async def scenario() -> tuple[int, list[int | BaseException]]:
        asked = Lookups[str, int](table.look, at_once=False)
        first = asyncio.create_task(asked.ask("a"))
        await asyncio.to_thread(table.begun.wait, 10)
        # What the look under way finds may be older than this question.
        others = asyncio.create_task(gathered(asked, "a", "b", "b", "c"))
        await asyncio.sleep(0)
        table.go.set()
        return await first, await others

    first, others = asyncio.run(scenario())
    assert first == 1
    assert others == [2, 2, 2, 2]
    assert [sorted(look) for look in table.looks] == [["a"], ["a", "b", "c"]]


def test_everybody_hears_that_the_database_is_away_and_the_next_is_answered() -> None:
    table = Table()

    async def scenario() -> tuple[list[int | BaseException], int]:
        asked = Lookups[str, int](table.look, at_once=False)
        return await gathered(asked, "a", "away"), await asked.ask("b")

    found, after = asyncio.run(scenario())
    assert all(isinstance(one, ConnectionError) for one in found)
    assert after > 0


def test_whoever_goes_away_leaves_the_answer_to_the_others() -> None:
    table = Table()
    table.go.clear()

    async def scenario() -> int:
        asked = Lookups[str, int](table.look, at_once=False)
        gone, stays = asyncio.create_task(asked.ask("a")), asyncio.create_task(asked.ask("a"))
        await asyncio.to_thread(table.begun.wait, 10)
        gone.cancel()
        table.go.set()
        return await stays

    assert asyncio.run(scenario()) == 1
