"""Lists that are read page by page to their end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from client_sdk.api.pages import all_queries
from tests.factories.signed_answers import document, shown

QUERIES = [shown(document("count"), number=number) for number in range(1, 6)]


def test_every_page_is_asked_for_behind_the_one_before() -> None:
    asked: list[int | None] = []

    def queries(study: str, after: int | None) -> Any:
        asked.append(after)
        place = after or 0
        rest = place + 2 < len(QUERIES)
        return SimpleNamespace(queries=QUERIES[place : place + 2], next=place + 2 if rest else None)

    client: Any = SimpleNamespace(queries=queries)
    assert all_queries(client, "registry") == QUERIES
    assert asked == [None, 2, 4]


def test_a_study_without_queries_has_an_empty_list() -> None:
    client: Any = SimpleNamespace(queries=lambda study, after: SimpleNamespace(queries=[], next=None))
    assert all_queries(client, "registry") == []
