"""Runs the API under uvicorn: quiet, quick to stop, even while clients wait in long polls."""

from __future__ import annotations

from types import FrameType

import uvicorn

from server.api.watcher import Watcher
from server.app import create_app
from server.config import Settings
from server.telemetry import configure_logging

STOP_SECONDS = 20


class CoordinatorServer(uvicorn.Server):
    """Sends waiting clients home as soon as the process is told to stop."""

    def __init__(self, config: uvicorn.Config, watcher: Watcher) -> None:
        super().__init__(config)
        self._watcher = watcher

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._watcher.close()
        super().handle_exit(sig, frame)


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        As `server.app.create_app`.
    """
    configure_logging(settings.log_level)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing depends on the caller's address, and nothing logs it.
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    try:
        CoordinatorServer(config, app.state.context.watcher).run()
    except KeyboardInterrupt:
        # uvicorn raises the signal again once everything is closed: that is a clean end.
        return
