"""What other processes have committed, as PostgreSQL tells it in that moment. SQLite tells nobody."""

from __future__ import annotations

import logging
import threading
from typing import Any, cast

from sqlalchemy.exc import DBAPIError

from server.db.session import CHANNEL, Database

# How long a silent connection is listened to before it is looked whether to stop.
_LISTEN_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
logger = logging.getLogger("wardround.news")


class News:
    """Passes on to the listeners of `database` what other processes announce, from a thread of its own.

    It may miss something while the database is away: whoever listens looks by itself from time to time, too.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._database.engine.dialect.name == "postgresql":
            self._thread = threading.Thread(target=self._run, name="news", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Returns once the connection is closed."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        import psycopg

        while not self._stopping.is_set():
            try:
                self._listen()
            except (DBAPIError, psycopg.Error) as error:
                logger.warning("news of other processes are not heard now", exc_info=error)
                self._stopping.wait(_PAUSE_SECONDS)

    def _listen(self) -> None:
        # Not from the pool: it is held for as long as the process lives.
        with self._database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.detach()
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            driver = cast(Any, connection.connection.driver_connection)
            while not self._stopping.is_set():
                for heard in driver.notifies(timeout=_LISTEN_SECONDS):
                    study, _, number = heard.payload.rpartition(":")
                    self._database.tell(study, int(number))
                    if self._stopping.is_set():
                        return
