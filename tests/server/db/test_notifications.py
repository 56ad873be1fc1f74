"""What a process hears of other processes' commits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from server.db.notifications import news_of
from server.db.session import CHANNEL, Database, Transaction


@pytest.fixture
def listening(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    if database.engine.dialect.name == "sqlite":
        database.dispose()
        pytest.skip("SQLite tells nobody")
    yield database
    database.dispose()


class Heard:
    def __init__(self, database: Database) -> None:
        self.news: list[tuple[str, int]] = []
        self._event = threading.Event()
        database.listen(self._hear)

    def _hear(self, study: str, number: int) -> None:
        self.news.append((study, number))
        self._event.set()

    def within(self, tell: Database) -> None:
        """Until one of many announcements is heard: nobody says when the listener has begun to listen."""
        for _ in range(600):
            tell.write("tell", lambda tx: tx.announce("sepsis", 7))
            if self._event.wait(0.05):
                self._event.clear()
                return
        raise AssertionError("nothing is heard")


def sever(tx: Transaction) -> int:
    """How many listeners were cut off."""
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query = :asked"
    return len(tx.session.execute(text(cut), {"asked": f"LISTEN {CHANNEL}"}).all())


def test_a_listener_hears_another_process_also_after_its_connection_was_cut(listening: Database) -> None:
    elsewhere, heard = Database(listening.engine.url), Heard(listening)
    with news_of(listening):
        heard.within(elsewhere)
        assert elsewhere.write("sever", sever) == 1
        heard.within(elsewhere)
    assert set(heard.news) == {("sepsis", 7)}
    elsewhere.dispose()
