"""The parts that every command shares: options, clients, and the printing of answers and errors."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.api.config import load
from study_protocol.wire.printable_text import escaped, printable
from study_protocol.wire.rounded import number as number
from wardround.cli.shared.exit_codes import ExitCode
from wardround.cli.shared.session_file import kept_session
from wardround.cli.shared.terminal import output_is_closed

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from client_sdk.api.client import Client
    from client_sdk.api.config import Connection
    from client_sdk.study.hospital import Hospital


def a_name(value: str) -> str:
    """Return the name of a study or hospital. An invalid name is refused before any request."""
    from study_protocol.wire.values import NAME_PATTERN

    if re.fullmatch(NAME_PATTERN, value) is None:
        raise typer.BadParameter("lower-case letters, digits and hyphens, at most 63")
    return value


def a_name_or_none(value: str | None) -> str | None:
    """As `a_name`, where a name may lack."""
    return None if value is None else a_name(value)


StudyName = Annotated[str, typer.Argument(help="name of the study", callback=a_name)]
Server = Annotated[str | None, typer.Option(help="address of the coordinator. Default: WARDROUND_SERVER")]
KeyFile = Annotated[Path | None, typer.Option(help="file with your API key. Default: WARDROUND_API_KEY(_FILE)")]
Home = Annotated[Path | None, typer.Option(help="the hospital's directory. Default: WARDROUND_CLIENT_HOME")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def typed_again(context: typer.Context, without: type[Any]) -> str:
    """Return the running command with all options of its command line, ready to paste.

    without: a dataclass. Options with the names of its fields are left out.
    """
    left_out = {option.name for option in fields(without)}
    return shlex.join(["wardround", context.info_name or "", *typed_words(context, left_out)])


def typed_words(context: typer.Context, left_out: Collection[str]) -> list[str]:
    """Return the arguments and options of a context's command line. left_out: names of parameters."""
    words: list[str] = []
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in left_out:
            continue
        words += _typed(option.opts, option.secondary_opts, context.params[name])
    return words


def _typed(names: list[str], negative_names: list[str], value: Any) -> list[str]:
    if isinstance(value, bool):
        return (names if value else negative_names)[:1]
    return [*(names[:1] if names[0].startswith("-") else []), str(value)]


def operator(server: str | None, key_file: Path | None) -> Client:
    """Return a client with a person's key, or with the login at this coordinator.

    Raises:
        ConfigurationError: the address is missing, or both key and login are.
    """
    from client_sdk.api.client import ApiKey, Client
    from client_sdk.api.config import read_secret
    from client_sdk.errors import ConfigurationError

    settings = load()
    if key_file is not None:
        key = read_secret(key_file)
    elif settings.api_key is not None:
        key = settings.api_key.get_secret_value()
    elif (session := kept_session(server or settings.server)) is not None:
        key = session
    else:
        raise ConfigurationError(
            "this needs an API key or a login: pass --key-file, set WARDROUND_API_KEY, or run `wardround login`"
        )
    return Client(settings.connection(server), ApiKey(key))


def hospital(home: Path | None, *, patience_seconds: float | None = None) -> Hospital:
    """Return the hospital enrolled in the directory.

    patience_seconds: how long a request is repeated. None: as long as a person waits.
    """
    from client_sdk.study.hospital import Hospital

    settings = load()
    connection: Callable[[str], Connection] = settings.connection
    if patience_seconds is not None:
        connection = partial(settings.connection, patience_seconds=patience_seconds, connect_seconds=10.0)
    return Hospital.open(home or settings.client_home, connection=connection)


def asks_with_key(server: str | None, key_file: Path | None, home: Path | None) -> bool:
    """Return whether a person asks: with a key, or with a login where no hospital is enrolled.

    A named hospital directory means that the hospital asks.
    """
    settings = load()
    if home is not None or key_file is not None or settings.api_key is not None:
        return home is None
    return not settings.client_home.exists() and kept_session(server or settings.server) is not None


def reader(study: str, server: str | None, key_file: Path | None, home: Path | None) -> Client:
    """Return a client that may read: with a person's key or login if there is one, else as the hospital.

    Raises:
        ConfigurationError: as `operator`, or `server` is not the coordinator that the hospital enrolled with.
    """
    from client_sdk.errors import ConfigurationError

    if asks_with_key(server, key_file, home):
        return operator(server, key_file)
    asks = hospital(home)
    enrolled = asks.identity.membership(study).url
    if server is not None and server.rstrip("/") != enrolled:
        raise ConfigurationError(
            f"this hospital enrolled with {enrolled}, and asks no other server about {study}: leave --server out, or "
            "pass --key-file to ask with an API key"
        )
    return asks.client(study)


def not_here(directory: Path, dataset: str) -> str:
    """Return the end of a message on a data set without entries: the other data sets with a ledger here."""
    other_names = sorted(path.stem for path in (directory / "ledgers").glob("*.db") if path.stem != dataset)
    return f". --dataset names another one: {', '.join(other_names)}" if other_names else ""


@contextmanager
def plain_errors() -> Generator[None]:
    """Print expected errors as one line on standard error, and exit with a code instead of a traceback."""
    from client_sdk.errors import (
        ConnectionFailed,
        NotTrusted,
        RecordsChanged,
        Refused,
        TrainingStopped,
        UnexpectedAnswer,
    )

    try:
        yield
    except Exception as error:
        # A reader that closed the pipe, such as `| head`, needs no message.
        is_broken_pipe = isinstance(error, BrokenPipeError) and output_is_closed()
        if is_broken_pipe or not isinstance(error, _expected()):
            raise
        codes = {
            Refused: ExitCode.REFUSED,
            RecordsChanged: ExitCode.REFUSED,
            NotTrusted: ExitCode.NOT_TRUSTED,
            ConnectionFailed: ExitCode.UNREACHABLE,
            UnexpectedAnswer: ExitCode.UNREACHABLE,
            TrainingStopped: ExitCode.NOT_FINITE,
        }
        print(f"wardround: {printable(_in_words(error))}", file=sys.stderr)
        kinds = (code for kind, code in codes.items() if isinstance(error, kind))
        raise typer.Exit(next(kinds, ExitCode.NOT_POSSIBLE)) from error
    except KeyboardInterrupt:
        print("wardround: stopped. All that was sent or charged is on the disk", file=sys.stderr)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _in_words(error: Exception) -> str:
    """Return the message without the error number that Python puts before the operating system's text."""
    if isinstance(error, IsADirectoryError) and error.filename is not None:
        return f"{error.filename} is a folder: name a file"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _expected() -> tuple[type[Exception], ...]:
    """Return the errors that a person can correct. Any other error is a bug and shows its traceback."""
    from accounting.errors import AccountingError
    from client_sdk.errors import WardroundError
    from private_learning.records import DataError
    from private_learning.tasks import TaskError
    from study_protocol.wire.tensors import TensorError

    # Limits and orders of a policy reach the accounts, which report their faults.
    return (WardroundError, AccountingError, DataError, TensorError, OSError, TaskError)


def print_json(value: BaseModel | dict[str, Any] | list[Any]) -> None:
    """Print one JSON document on standard output."""
    document = value if isinstance(value, dict | list) else value.model_dump(mode="json")
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo(escaped(text))


def say(text: str, *, err: bool = False) -> None:
    """Print a line on standard output, or on standard error.

    Texts of the coordinator are printed only by this function, `table`, `print_json`, `plain_errors` and, in logs,
    `PlainLines`.
    """
    typer.echo(printable(text), err=err)


class PlainLines(logging.Filter):
    """A filter for log handlers that makes the quoted texts of log records plain."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), None
        return True


def show_log() -> Console:
    """Send the log of a hospital's packages to standard error, and return its console."""
    from rich.console import Console
    from rich.logging import RichHandler

    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False)
    handler.addFilter(PlainLines())
    logging.basicConfig(format="%(message)s", handlers=[handler])
    for package in ("study_protocol", "private_learning", "client_sdk", "wardround"):
        logging.getLogger(package).setLevel(logging.INFO)
    return console


def table(title: str, columns: list[str], rows: list[list[str]], *, to_errors: bool = False) -> None:
    """Print a table on standard output (or error). Without a terminal it is 160 characters wide."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = sys.stderr if to_errors else sys.stdout
    console = Console(width=None if stream.isatty() else 160, stderr=to_errors)
    # `Text`, because square brackets in a string would be markup.
    rich_table = Table(title=Text(printable(title)), title_justify="left", show_header=any(columns))
    for column in columns:
        rich_table.add_column(column)
    for row in rows:
        rich_table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(rich_table)


def since(moment: datetime) -> str:
    """Return a time of the coordinator in the time zone of this machine."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
