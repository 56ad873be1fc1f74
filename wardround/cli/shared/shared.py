"""What every command shares: its options, who asks, how answers and errors are shown.

Exit codes: 0 done; 1 not possible as asked; 2 wrong usage; 3 refused by this hospital's own rules; 4 the coordinator
is not trusted; 5 the coordinator cannot be reached, or something else answers there; 6 training met NaN or an infinity.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.api.config import load
from study_protocol.wire.rounded import number as number
from study_protocol.wire.shown import escaped, printable
from wardround.cli.shared.terminal import output_is_closed

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from client_sdk.api.client import Client
    from client_sdk.study.hospital import Hospital


def a_name(value: str) -> str:
    """A study's or hospital's name, refused before anybody is asked."""
    from study_protocol.wire.values import NAME_PATTERN

    if re.fullmatch(NAME_PATTERN, value) is None:
        raise typer.BadParameter("lower-case letters, digits and hyphens, at most 63")
    return value


StudyName = Annotated[str, typer.Argument(help="name of the study", callback=a_name)]
Server = Annotated[str | None, typer.Option(help="address of the coordinator; else WARDROUND_SERVER")]
KeyFile = Annotated[Path | None, typer.Option(help="file with the operator key; else WARDROUND_OPERATOR_KEY(_FILE)")]
Home = Annotated[Path | None, typer.Option(help="the hospital's directory; else WARDROUND_CLIENT_HOME")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def typed_again(context: typer.Context, without: type[Any]) -> str:
    """The command that is running, to be pasted: with everything that its command line said.

    without: a dataclass whose fields are options that are left out.
    """
    left_out = {one.name for one in fields(without)}
    words = ["wardround", context.info_name or ""]
    for one in context.command.params:
        name = one.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in left_out:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append((one.opts if value else one.secondary_opts)[0])
        else:
            words += [*(one.opts[:1] if one.opts[0].startswith("-") else []), str(value)]
    return shlex.join(words)


def operator(server: str | None, key_file: Path | None) -> Client:
    """The API as the operator.

    Raises:
        ConfigurationError: no address or no key.
    """
    from client_sdk.api.client import Client, OperatorKey
    from client_sdk.api.config import read_secret
    from client_sdk.errors import ConfigurationError

    given = load()
    if key_file is not None:
        key = read_secret(key_file)
    elif given.operator_key is not None:
        key = given.operator_key.get_secret_value()
    else:
        raise ConfigurationError("this needs an operator key: pass --key-file or set WARDROUND_OPERATOR_KEY")
    return Client(given.connection(server), OperatorKey(key))


def hospital(home: Path | None, *, patient: bool = False) -> Hospital:
    """The hospital enrolled in the directory. patient: its requests are repeated for ever, as `join` needs it."""
    from client_sdk.study.hospital import PATIENCE_SECONDS, Hospital

    given = load()
    dialled = partial(given.connection, patience_seconds=PATIENCE_SECONDS, connect_seconds=10.0)
    return Hospital.open(home or given.client_home, connection=dialled if patient else given.connection)


def asks_with_key(key_file: Path | None, home: Path | None) -> bool:
    """Whether an operator or a viewer asks; who names a hospital's directory asks as that hospital."""
    return home is None and (key_file is not None or load().operator_key is not None)


def reader(study: str, server: str | None, key_file: Path | None, home: Path | None) -> Client:
    """Whoever may read: the operator or viewer if there is a key, else the hospital.

    Raises:
        ConfigurationError: `server` is not the coordinator that the hospital enrolled with; or as `operator`.
    """
    from client_sdk.errors import ConfigurationError

    if asks_with_key(key_file, home):
        return operator(server, key_file)
    asks = hospital(home)
    enrolled = asks.identity.membership(study).url
    if server is not None and server.rstrip("/") != enrolled:
        raise ConfigurationError(
            f"this hospital enrolled with {enrolled}, and asks nobody else about {study}: leave --server out, or pass "
            "--key-file to ask with an API key"
        )
    return asks.client(study)


def not_here(directory: Path, dataset: str) -> str:
    """The end of a sentence on a data set without an entry: which others have a ledger in this hospital's directory."""
    others = sorted(path.stem for path in (directory / "ledgers").glob("*.db") if path.stem != dataset)
    return f"; --dataset names another one: {', '.join(others)}" if others else ""


@contextmanager
def plain_errors() -> Generator[None]:
    """One line on standard error and an exit code, instead of a traceback."""
    from client_sdk.errors import ConnectionFailed, NotTrusted, Refused, TrainingStopped, UnexpectedAnswer

    try:
        yield
    except Exception as error:
        # Who reads no further, as `| head`, has no question.
        gone = isinstance(error, BrokenPipeError) and output_is_closed()
        if gone or not isinstance(error, _expected()):
            raise
        codes = {Refused: 3, NotTrusted: 4, ConnectionFailed: 5, UnexpectedAnswer: 5, TrainingStopped: 6}
        print(f"wardround: {printable(_in_words(error))}", file=sys.stderr)
        raise typer.Exit(next((code for kind, code in codes.items() if isinstance(error, kind)), 1)) from error
    except KeyboardInterrupt:
        print("wardround: stopped; everything that was sent or charged is on the disk", file=sys.stderr)
        # 128 + SIGINT, as shells count.
        raise typer.Exit(130) from None


def _in_words(error: Exception) -> str:
    """Without the number that Python puts before what the operating system says."""
    if isinstance(error, IsADirectoryError) and error.filename is not None:
        return f"{error.filename} is a folder: name a file"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _expected() -> tuple[type[Exception], ...]:
    """What a person can do something about. Everything else is a bug and shows its traceback."""
    from accounting.errors import AccountingError
    from client_sdk.errors import WardroundError
    from private_learning.records import DataError
    from private_learning.tasks import TaskError
    from study_protocol.wire.tensors import TensorError

    # Limits and orders of a policy reach the accounts, which name what is wrong with them.
    return (WardroundError, AccountingError, DataError, TensorError, OSError, TaskError)


def print_json(value: BaseModel | dict[str, Any] | list[Any]) -> None:
    """One JSON document on standard output."""
    document = value if isinstance(value, dict | list) else value.model_dump(mode="json")
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo(escaped(text))


def say(text: str, *, err: bool = False) -> None:
    """A line on standard output, or on standard error.

    Whatever a command shows of the coordinator's words goes through here, `table`, `print_json`, `plain_errors` and, in
    logs, `PlainLines`.
    """
    typer.echo(printable(text), err=err)


class PlainLines(logging.Filter):
    """Log records as plain text, whatever they quote. To be put on a handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), None
        return True


def show_log() -> Console:
    """What is logged on a hospital's side, as lines on standard error; the console that they are written to."""
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
    """A table on standard output (or error), as wide as it needs to be when nobody looks at a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = sys.stderr if to_errors else sys.stdout
    console = Console(width=None if stream.isatty() else 160, stderr=to_errors)
    # As Text: in a string, square brackets would be markup.
    made = Table(title=Text(printable(title)), title_justify="left", show_header=any(columns))
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    console.print(made)


_WHY_ENDED = {
    "budget-exhausted": "the next round could pass a limit, so it does not begin",
    "max-steps-reached": "all steps of privacy.max_steps have been taken",
    "max-queries-reached": "as many queries as statistics.max_queries were answered",
    "stopped": "an operator stopped it",
    "deleted": "an operator deleted the study before it began",
    "database-differs": "somebody changed the coordinator's database without its key, and what it says may be theirs; "
    "its operator keeps a copy, finds out who, and restores it from a backup or opens a new study",
}


def ending(stop_reason: str) -> str:
    """Why a study has ended, with what to do where something has to be done."""
    return f"{stop_reason}: {_WHY_ENDED[stop_reason]}" if stop_reason in _WHY_ENDED else stop_reason


def since(moment: datetime) -> str:
    """A time of the coordinator's, on this machine's clock."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
