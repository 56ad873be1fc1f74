"""Lists that the coordinator sends page by page, read to their end."""

from __future__ import annotations

from client_sdk.api.client import Client
from study_protocol.study.messages import RoundView
from study_protocol.study.queries import Query


def all_queries(client: Client, study: str) -> list[Query]:
    """Return every query of a study in the order of their numbers, without answers."""
    queries: list[Query] = []
    after: int | None = None
    while True:
        page = client.queries(study, after=after)
        queries += page.queries
        if page.next is None:
            return queries
        after = page.next


def all_rounds(client: Client, study: str, after: int | None = None) -> list[RoundView]:
    """Return every round of a study in order. after: only those with a larger number."""
    rounds: list[RoundView] = []
    while True:
        page = client.rounds(study, after)
        rounds += page.rounds
        if page.next is None:
            return rounds
        after = page.next
