"""Commands of the coordinator that work on its database, not on its API."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from server.config import Settings
    from server.services.coordinator import Coordinator

Host = Annotated[str | None, typer.Option(help="address to listen on")]
Port = Annotated[int | None, typer.Option(help="port to listen on")]
Working = Annotated[bool | None, typer.Option(help="also run the worker in this process")]
Check = Annotated[bool, typer.Option(help="only check that the database and the model store answer, then exit")]


def serve(host: Host = None, port: Port = None, worker: Working = None) -> None:
    """Run the coordinator's API. A worker runs in the same process unless --no-worker is given."""
    from server.app import serve as run

    settings = read_settings(host=host, port=port, worker=worker)
    with plain_errors():
        try:
            run(settings)
        except SystemExit as end:
            # uvicorn exits with a code that has another meaning in the hospitals' commands.
            if end.code:
                fail(
                    f"the API cannot listen on {settings.host}:{settings.port}. The line above says why. If another "
                    "program has the port, choose one with --port or WARDROUND_PORT. Choose an address with --host"
                    " or WARDROUND_HOST"
                )


def worker(check: Check = False) -> None:
    """Run the worker, which opens, closes and releases rounds, in its own process."""
    from server.db.notifications import news_of
    from server.monitoring import monitored
    from server.telemetry import configure_logging
    from server.worker import Worker

    settings = read_settings()
    if check:
        _check(settings)
        return
    with coordinator_of(settings) as coordinator:
        configure_logging(settings.log_level)
        moving = Worker(coordinator, lease_seconds=settings.lease_seconds)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: moving.stop())
        logging.getLogger("wardround.worker").info("working", extra={"owner": moving.owner})
        with news_of(coordinator.database), monitored(settings, coordinator):
            moving.run()


def _check(settings: Settings) -> None:
    from server.services.readiness import CHECK_SECONDS, COMMAND_SECONDS, NoAnswer, Readiness, Single

    def ask() -> None:
        # The caller that waits for the result prints the errors, once.
        with _opened(settings) as coordinator:
            for dependency, result in Readiness(coordinator).ask().items():
                try:
                    result.result(CHECK_SECONDS)
                except TimeoutError as error:
                    raise NoAnswer(f"{dependency} gave no answer within {CHECK_SECONDS:g} seconds") from error

    with plain_errors():
        try:
            # Opening may hang as well.
            Single("check", ask).ask().result(COMMAND_SECONDS)
        except TimeoutError:
            fail(f"the database or the store of model files gave no answer within {COMMAND_SECONDS:g} seconds")


def migrate() -> None:
    """Update the database to the schema of this version. Create the signing key if there is none."""
    from server.coordinator import prepare

    with plain_errors():
        done = prepare(read_settings())
    if done.after is None:
        typer.echo(f"the database is at revision {done.before} and needs no change")
    else:
        typer.echo(f"the database went from {_revision(done.before)} to revision {done.after}")


def _revision(revision: str | None) -> str:
    return "no tables" if revision is None else f"revision {revision}"


def read_settings(**options: object) -> Settings:
    from server.config import load

    with plain_errors():
        return load(os.environ, **options)


@contextmanager
def coordinator_of(settings: Settings) -> Generator[Coordinator]:
    with plain_errors(), _opened(settings) as coordinator:
        yield coordinator


@contextmanager
def _opened(settings: Settings) -> Generator[Coordinator]:
    from server.coordinator import open_coordinator

    coordinator = open_coordinator(settings)
    try:
        yield coordinator
    finally:
        coordinator.database.dispose()


@contextmanager
def plain_errors() -> Generator[None]:
    """Print errors that a person can correct as one line on standard error, without a traceback."""
    from sqlalchemy.exc import DBAPIError

    from server.config import SettingsError
    from server.db.blobs import StoreAway, StoreUnusable
    from server.db.schema import SchemaOutdated
    from server.domain.errors import Rejected
    from server.services.readiness import NoAnswer
    from server.signing_key import SigningKeyUnusable

    unusable = (SettingsError, SchemaOutdated, SigningKeyUnusable, StoreUnusable)
    try:
        yield
    except (*unusable, StoreAway, NoAnswer, Rejected, OSError) as error:
        fail(str(error))
    except DBAPIError as error:
        # Only the type of the error: the driver's text may quote the address.
        kind = type(error.orig).__name__
        fail(f"no database answers ({kind}). Check WARDROUND_DATABASE_URL. Run `wardround migrate` if it is new")


def fail(text: str) -> NoReturn:
    print(f"wardround: {text}", file=sys.stderr)
    raise typer.Exit(1)
