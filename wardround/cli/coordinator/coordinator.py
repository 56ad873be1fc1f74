"""Commands of the coordinator that work on its database, not on its API."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from study_protocol.files.private import open_private

if TYPE_CHECKING:
    from server.config import Settings
    from server.services.coordinator import Coordinator
    from study_protocol.study.messages import OperatorKeyView

Host = Annotated[str | None, typer.Option(help="address to listen on")]
Port = Annotated[int | None, typer.Option(help="port to listen on")]
Working = Annotated[bool | None, typer.Option(help="also run the worker in this process")]
Check = Annotated[bool, typer.Option(help="only check that the database and the model store answer, then exit")]
RoleOption = Annotated[
    Literal["operator", "viewer"], typer.Option(help="operator: may read and change studies. viewer: may only read")
]
Label = Annotated[str, typer.Option(help="name of the person who gets the key")]
KeyFile = Annotated[Path | None, typer.Option(help="write the key to this new file (mode 0600), not to the screen")]
KeyId = Annotated[str, typer.Argument(help="the middle part of wrk_<id>_<secret>")]


def serve(host: Host = None, port: Port = None, worker: Working = None) -> None:
    """Run the coordinator's API. A worker runs in the same process unless --no-worker is given."""
    from server.app import serve as run

    settings = _settings(host=host, port=port, worker=worker)
    with _plain_errors():
        try:
            run(settings)
        except SystemExit as end:
            # uvicorn exits with a code that has another meaning in the hospitals' commands.
            if end.code:
                _fail(
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

    settings = _settings()
    if check:
        _check(settings)
        return
    with _coordinator(settings) as coordinator:
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

    with _plain_errors():
        try:
            # Opening may hang as well.
            Single("check", ask).ask().result(COMMAND_SECONDS)
        except TimeoutError:
            _fail(f"the database or the store of model files gave no answer within {COMMAND_SECONDS:g} seconds")


def migrate() -> None:
    """Update the database to the schema of this version. Create the signing key if there is none."""
    from server.coordinator import prepare

    with _plain_errors():
        done = prepare(_settings())
    if done.after is None:
        typer.echo(f"the database is at revision {done.before} and needs no change")
    else:
        typer.echo(f"the database went from {_revision(done.before)} to revision {done.after}")


def operator_init(label: Label = "", role: RoleOption = "operator", key_file: KeyFile = None) -> None:
    """Create an API key and print it. It is shown only once."""
    from server.services.studies.operators import create_key
    from study_protocol.study.messages import OperatorKeyCreate

    with _coordinator(_settings()) as coordinator:
        _hand_over(lambda: create_key(coordinator, OperatorKeyCreate(role=role, label=label)), key_file)


def operator_list() -> None:
    """List all API keys without their secrets."""
    from server.services.studies.operators import list_keys

    with _coordinator(_settings()) as coordinator:
        for key in list_keys(coordinator).keys:
            state = "valid" if key.revoked_at is None else f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
            typer.echo(f"{key.id}  {key.role:8}  {key.created_at:%Y-%m-%d %H:%M}  {state:24}  {key.label}")


def operator_rotate(id: KeyId, key_file: KeyFile = None) -> None:
    """Create a new key with the role and label of an old one. The old key works until you revoke it."""
    from server.services.studies.operators import create_key, list_keys
    from study_protocol.study.messages import OperatorKeyCreate

    with _coordinator(_settings()) as coordinator:
        # A revoked key has no successor: a rotation must not undo a revocation.
        old = next((key for key in list_keys(coordinator).keys if key.id == id and key.revoked_at is None), None)
        if old is None:
            _fail(f"no valid key has the id {id}. `wardround operator list` shows all keys")
        successor = OperatorKeyCreate(role=old.role, label=old.label)
        _hand_over(lambda: create_key(coordinator, successor), key_file)


def operator_revoke(id: KeyId) -> None:
    """Revoke an API key. It stops working at once."""
    from server.services.studies.operators import revoke_key

    with _coordinator(_settings()) as coordinator:
        typer.echo(f"{revoke_key(coordinator, id).id} is revoked")


def _revision(revision: str | None) -> str:
    return "no tables" if revision is None else f"revision {revision}"


def _settings(**options: object) -> Settings:
    from server.config import load

    with _plain_errors():
        return load(os.environ, **options)


@contextmanager
def _coordinator(settings: Settings) -> Generator[Coordinator]:
    with _plain_errors(), _opened(settings) as coordinator:
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
def _plain_errors() -> Generator[None]:
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
        _fail(str(error))
    except DBAPIError as error:
        # Only the type of the error: the driver's text may quote the address.
        kind = type(error.orig).__name__
        _fail(f"no database answers ({kind}). Check WARDROUND_DATABASE_URL. Run `wardround migrate` if it is new")


def _hand_over(make: Callable[[], OperatorKeyView], key_file: Path | None) -> None:
    """Create the key and hand it out. The file is created first, so that no key is lost."""
    if key_file is None:
        typer.echo(make().key or "")
        return
    try:
        # O_EXCL: no existing file is overwritten.
        handle = open_private(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except OSError:
        _fail(f"{key_file} cannot be created as a new file. No key was created")
    with os.fdopen(handle, "w") as file:
        key = make()
        file.write(f"{key.key or ''}\n")
    typer.echo(f"{key.id} is in {key_file}")


def _fail(text: str) -> NoReturn:
    print(f"wardround: {text}", file=sys.stderr)
    raise typer.Exit(1)
