"""Notifications of commits of other processes: PostgreSQL sends them at once, SQLite says whether there are some."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Connection

from server.db.session import CHANNEL, Database

# How long a silent connection is listened to before it is looked whether to stop.
_LISTEN_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_BLIND_SECONDS = 2.0
logger = logging.getLogger("wardround.notifications")


@contextmanager
def news_of(database: Database) -> Generator[None]:
    """Tell the listeners of `database` the announcements of other processes, from a thread of its own.

    Announcements are missed while the database is away, so listeners also look by themselves from time to time.
    """
    if database.engine.dialect.name != "postgresql":
        yield
        return
    news = _News(database)
    thread = threading.Thread(target=news.run, name="news", daemon=True)
    thread.start()
    try:
        yield
    finally:
        news.stopping.set()
        thread.join()


class _News:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._listen()
            # On any error: without this thread no news of other processes is heard until this one ends.
            except Exception as error:
                logger.warning("news of other processes are not heard now", exc_info=error)
                self.stopping.wait(_PAUSE_SECONDS)

    def _listen(self) -> None:
        # Not from the pool: it is held for as long as the process lives.
        with self._database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            # Before it is detached: the pool knows the driver's own connection no more after that.
            driver = cast(Any, connection.connection.driver_connection)
            connection.detach()
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            while not self.stopping.is_set():
                for heard in driver.notifies(timeout=_LISTEN_SECONDS):
                    study, number, work = heard.payload.rsplit(":", 2)
                    self._database.tell(study, int(number), work=work != "0")
                    if self.stopping.is_set():
                        return


class ChangeDetector:
    """Detects commits since the last question, by any process. The question costs almost no time.

    PostgreSQL tells by itself (`News`), and may have been misheard: there the answer is yes every few seconds.
    """

    def __init__(self, database: Database) -> None:
        self._engine = database.engine.execution_options(looking=True)
        self._is_sqlite = database.engine.dialect.name == "sqlite"
        self._connection: Connection | None = None
        self._version: int | None = None
        self._last_question = 0.0

    def since_last(self) -> bool:
        if not self._is_sqlite:
            if time.monotonic() - self._last_question < _BLIND_SECONDS:
                return False
            self._last_question = time.monotonic()
            return True
        if self._connection is None:
            # The number counts what others than this very connection have committed.
            self._connection = self._engine.connect()
        before, self._version = self._version, self._connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        return before != self._version

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
