"""The coordinator's own commands: those that touch its database rather than its API."""

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

if TYPE_CHECKING:
    from server.config import Settings
    from server.services.coordinator import Coordinator
    from study_protocol.study.messages import OperatorKeyView

Host = Annotated[str | None, typer.Option(help="address to listen on")]
Port = Annotated[int | None, typer.Option(help="port to listen on")]
Working = Annotated[bool | None, typer.Option(help="move rounds on in this process")]
Check = Annotated[bool, typer.Option(help="only check that the database and the store of model files answer")]
RoleOption = Annotated[Literal["operator", "viewer"], typer.Option(help="a viewer reads, an operator acts")]
Label = Annotated[str, typer.Option(help="who holds the key")]
KeyFile = Annotated[Path | None, typer.Option(help="write the key to this new file (mode 0600), not to the screen")]
KeyId = Annotated[str, typer.Argument(help="the middle part of wrk_<id>_<secret>")]


def serve(host: Host = None, port: Port = None, worker: Working = None) -> None:
    """Run the coordinator's API, with a worker inside it unless --no-worker is given."""
    from server.app import serve as run

    settings = _settings(host=host, port=port, worker=worker)
    with _plain_errors():
        try:
            run(settings)
        except SystemExit as end:
            # uvicorn's own code for it is one that hospitals' commands use for something else.
            if end.code:
                _fail(
                    f"nothing listens on {settings.host}:{settings.port}; the line above says why. Where another "
                    "program has the port, choose one with --port or WARDROUND_PORT, an address with --host"
                    " or WARDROUND_HOST"
                )


def worker(check: Check = False) -> None:
    """Move rounds on in a process of its own."""
    from server.db.news import news_of
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
        # Its errors are said once, by whoever waits for it.
        with _opened(settings) as coordinator:
            for what, result in Readiness(coordinator).ask().items():
                try:
                    result.result(CHECK_SECONDS)
                except TimeoutError as error:
                    raise NoAnswer(f"{what} gave no answer within {CHECK_SECONDS:g} seconds") from error

    with _plain_errors():
        try:
            # Opening may hang as well.
            Single("check", ask).ask().result(COMMAND_SECONDS)
        except TimeoutError:
            _fail(f"the database or the store of model files gave no answer within {COMMAND_SECONDS:g} seconds")


def migrate() -> None:
    """Bring the database to this version's schema and make the signing key if there is none."""
    from server.coordinator import prepare

    with _plain_errors():
        done = prepare(_settings())
    if done.after is None:
        typer.echo(f"the database is at revision {done.before}: nothing to do")
    else:
        typer.echo(f"the database went from {_revision(done.before)} to revision {done.after}")


def operator_init(label: Label = "", role: RoleOption = "operator", key_file: KeyFile = None) -> None:
    """Make an API key. It is shown once."""
    from server.services.studies.operators import create_key
    from study_protocol.study.messages import OperatorKeyCreate

    with _coordinator(_settings()) as coordinator:
        _hand_over(lambda: create_key(coordinator, OperatorKeyCreate(role=role, label=label)), key_file)


def operator_list() -> None:
    """Show all keys, without their secrets."""
    from server.services.studies.operators import list_keys

    with _coordinator(_settings()) as coordinator:
        for key in list_keys(coordinator).keys:
            state = "valid" if key.revoked_at is None else f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
            typer.echo(f"{key.id}  {key.role:8}  {key.created_at:%Y-%m-%d %H:%M}  {state:24}  {key.label}")


def operator_rotate(id: KeyId, key_file: KeyFile = None) -> None:
    """Make a successor with the same role and label. The old key works until it is revoked."""
    from server.services.studies.operators import create_key, list_keys
    from study_protocol.study.messages import OperatorKeyCreate

    with _coordinator(_settings()) as coordinator:
        # Not of a revoked key: a rotation must not undo a revocation.
        old = next((key for key in list_keys(coordinator).keys if key.id == id and key.revoked_at is None), None)
        if old is None:
            _fail(f"no valid key has the id {id}; `wardround operator list` shows them")
        successor = OperatorKeyCreate(role=old.role, label=old.label)
        _hand_over(lambda: create_key(coordinator, successor), key_file)


def operator_revoke(id: KeyId) -> None:
    """End a key now."""
    from server.services.studies.operators import revoke_key

    with _coordinator(_settings()) as coordinator:
        typer.echo(f"{revoke_key(coordinator, id).id} opens nothing any more")


def _revision(found: str | None) -> str:
    return "no tables" if found is None else f"revision {found}"


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
    """What a person did wrong is one line on standard error, not a traceback."""
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
        # Its kind alone: the driver's text may quote the address.
        kind = type(error.orig).__name__
        _fail(f"no database answers ({kind}); check WARDROUND_DATABASE_URL, run `wardround migrate` if it is new")


def _hand_over(make: Callable[[], OperatorKeyView], key_file: Path | None) -> None:
    """The file comes first: no key is made that nobody can be given."""
    if key_file is None:
        typer.echo(make().key or "")
        return
    try:
        # O_EXCL with the mode: at no moment can others read it, and no file of somebody's is overwritten.
        handle = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        _fail(f"{key_file} cannot be made as a new file; no key was made")
    with os.fdopen(handle, "w") as file:
        made = make()
        file.write(f"{made.key or ''}\n")
    typer.echo(f"{made.id} is in {key_file}")


def _fail(text: str) -> NoReturn:
    print(f"wardround: {text}", file=sys.stderr)
    raise typer.Exit(1)
