"""The composition root of the coordinator's HTTP side, and its server. Importing it has no effect.

uvicorn runs it: quiet, quick to stop, even while clients wait in long polls.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from server.api import api_keys, audit_log, docs, events, health, people, queries, rounds, secure_sum, studies
from server.api.auth import Context
from server.api.bodies import Intake
from server.api.description import describe
from server.api.lanes import Lanes
from server.api.lookups import Lookups
from server.api.problems import Problems, answer_exception
from server.api.watcher import Watcher
from server.config import Settings, SettingsError
from server.coordinator import open_coordinator
from server.db.notifications import news_of
from server.monitoring import monitored
from server.observation.requests import ObservedRequests
from server.services.coordinator import Coordinator
from server.services.events import marks
from server.services.identities import identify
from server.services.people.known import authenticate_each
from server.services.readiness import Readiness
from server.services.secure_sum import lists
from server.single_sign_on.errors import SingleSignOnMisconfigured
from server.telemetry import RequestLog, configure_logging
from server.web import login, page_data, pages, synthesis_data
from server.worker import Worker

if TYPE_CHECKING:
    from server.single_sign_on.provider import Provider

# Requests under way may end. A body that still comes in by then is cut off.
STOP_SECONDS = 20
# The peer in front lets go of an unused connection first: hospitals after 5 seconds, nginx after 60, Caddy after 120.
# If the server closed it while a request was on its way, the peer could not tell whether the request was carried out.
KEEP_ALIVE_SECONDS = 180
# Those that every hospital asks in every round first: a request is compared with one address after the other.
NOUNS = (
    rounds,
    secure_sum,
    studies,
    queries,
    events,
    api_keys,
    people,
    audit_log,
    health,
    docs,
    page_data,
    synthesis_data,
    login,
    pages,
)
ROUTERS: tuple[APIRouter, ...] = tuple(noun.router for noun in NOUNS)


def create_app(
    settings: Settings, *, coordinator: Coordinator | None = None, clock: Callable[[], float] = time.time
) -> FastAPI:
    """Return the application over `coordinator`, or over the one that `settings` describe.

    Args:
        clock: seconds since the epoch, for the time window of signed requests.

    Raises:
        As `server.coordinator.open_coordinator`.
    """
    opened = coordinator or open_coordinator(settings)
    worker = Worker(opened, lease_seconds=settings.lease_seconds) if settings.worker else None
    in_process = opened.database.is_in_process
    watcher = Watcher(partial(marks, opened), settings.watch_seconds, at_once=in_process)
    app = FastAPI(
        title="Wardround",
        description="Federated learning for hospitals with a privacy budget that is measured, shown, and kept.",
        version="1",
        # Its page loads scripts from a foreign host. `server.api.docs` has one of its own.
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan(settings, opened, worker, watcher, owned=coordinator is None),
        generate_unique_id_function=_operation_id,
        # A client has signed one address: it could not follow to another.
        redirect_slashes=False,
        # The framework's own would start as soon as a variable of the environment or a package sets it up. It would
        # send whole addresses, with hospitals' names in them, and texts of exceptions.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        middleware=_middleware(settings, opened),
        # The framework answers these itself before `Problems` can see them.
        exception_handlers={HTTPException: answer_exception, RequestValidationError: answer_exception},
    )
    opened.database.listen(partial(lists.follow, opened))
    opened.database.listen(watcher.tell)
    identities = Lookups(partial(identify, opened), at_once=in_process)
    keys = Lookups(partial(authenticate_each, opened), at_once=False)
    provider = _provider(settings, clock)
    app.state.context = Context(
        settings, opened, watcher, clock, identities, keys, Lanes(), Readiness(opened), provider
    )
    for router in ROUTERS:
        app.include_router(router)
    pages.open_charts(app)
    docs.mount_static(app)
    # FastAPI's own description has its 422 and lacks signatures.
    app.openapi = cache(partial(describe, app))
    return app


def _provider(settings: Settings, clock: Callable[[], float]) -> Provider | None:
    single_sign_on = settings.single_sign_on()
    if single_sign_on is None:
        return None
    # Its library is an extra.
    try:
        from server.single_sign_on.provider import Provider
    except ModuleNotFoundError as error:
        raise SettingsError("WARDROUND_SSO_ISSUER needs more packages: install 'wardround[sso]'") from error
    try:
        return Provider(single_sign_on, clock=clock)
    except SingleSignOnMisconfigured as error:
        raise SettingsError(f"people cannot log in: {error}") from error


def _middleware(settings: Settings, coordinator: Coordinator) -> list[Middleware]:
    intake = Middleware(
        Intake,
        limit=settings.body_limit_bytes,
        idle_seconds=settings.body_idle_seconds,
        min_rate=settings.body_least_rate,
    )
    observer = coordinator.observer
    observed = [] if observer.idle else [Middleware(ObservedRequests, observer=observer)]
    return [*observed, Middleware(RequestLog), intake, Middleware(Problems)]


def _operation_id(route: APIRoute) -> str:
    return route.name


def _lifespan(
    settings: Settings, coordinator: Coordinator, worker: Worker | None, watcher: Watcher, *, owned: bool
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        thread = threading.Thread(target=worker.run, name="worker", daemon=True) if worker else None
        with news_of(coordinator.database), monitored(settings, coordinator, lambda: watcher.waiting):
            if thread:
                thread.start()
            yield
            # For servers other than `CoordinatorServer`, which has closed it by now.
            watcher.close()
            if worker and thread:
                worker.stop()
                thread.join()
        # A coordinator that was handed in is closed by its owner.
        if owned:
            coordinator.database.dispose()

    return lifespan


class CoordinatorServer(uvicorn.Server):
    """Sends waiting clients home as soon as the process is told to stop."""

    def __init__(self, config: uvicorn.Config, watcher: Watcher) -> None:
        super().__init__(config)
        self._watcher = watcher

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn ends the lifespan only after the last answer, and a long poll would keep it for its whole time.
        self._watcher.close()
        super().handle_exit(sig, frame)


def server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration for `app`."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        # Always h11, even where another is installed: uvicorn's other parser takes headers of any size from strangers.
        http="h11",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # `configure_logging` has said where lines go. uvicorn's own would go beside it.
        log_config=None,
        access_log=False,
        server_header=False,
        # No decision depends on the caller's address, and no log has it.
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _settle_memory() -> None:
    """Exempt the objects that exist before the first request from garbage collection: they stay for good."""
    gc.collect()
    gc.freeze()
    # A request makes thousands of objects, few of them in circles.
    gc.set_threshold(20_000, 20, 20)


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        As `server.app.create_app`.
    """
    configure_logging(settings.log_level)
    app = create_app(settings)
    _settle_memory()
    try:
        CoordinatorServer(server_config(app, settings), app.state.context.watcher).run()
    except KeyboardInterrupt:
        # uvicorn raises the signal again once everything is closed: that is a clean end.
        return
