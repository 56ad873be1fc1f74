"""The table format of a command: from its options, the hospital's ledger, a person, or the file."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from wardround.cli.shared.shared import say, table

if TYPE_CHECKING:
    from private_learning.records import Proposal, Records, TableFormat
    from private_learning.records.table_format import Dates, Separator
    from study_protocol.cells.spelling import Decimal

# The largest number of columns that are shown one by one.
_MAX_SHOWN_COLUMNS = 20


@dataclass(frozen=True)
class FormatOptions:
    """The options of a command line that declare the table format."""

    separator: Separator | None = None
    encoding: str | None = None
    decimal: Decimal | None = None
    dates: Dates | None = None

    @property
    def are_given(self) -> bool:
        """Return whether at least one option is given."""
        return any(value is not None for value in asdict(self).values())

    @property
    def as_typed(self) -> tuple[str, ...]:
        """Return the options as a person types them."""
        return tuple(word for name, value in asdict(self).items() if value is not None for word in (f"--{name}", value))

    def declared(self, path: Path) -> TableFormat | None:
        """Return the format for the records at this path, or None if the options leave a part to be proposed."""
        from private_learning.records import TableFormat, text_tables

        if not text_tables(path):
            return TableFormat(None, decimal=self.decimal, dates=self.dates) if self.decimal or self.dates else None
        if self.separator is None or self.decimal is None:
            return None
        return TableFormat(self.separator, self.encoding or "utf-8", True, self.decimal, self.dates)

    def propose(self, path: Path) -> Proposal:
        """Return the proposal of the file for the options that are left out. Raises DataError."""
        from private_learning.records import propose_format

        return propose_format(path, **asdict(self))

    def require_fit(self, stored: TableFormat) -> None:
        """Require that the options fit the stored format. Raises ConfigurationError: they contradict it."""
        from client_sdk.errors import ConfigurationError
        from private_learning.records import TableFormat

        option_values = asdict(
            TableFormat(**{name: value for name, value in asdict(self).items() if value is not None})
        )
        stored_values = asdict(stored)
        if any(option_values[name] != stored_values[name] for name, value in asdict(self).items() if value is not None):
            raise ConfigurationError(
                f"these records are declared with {stored}, and the options contradict it. Leave the options out, or "
                "declare the records again with `wardround data check --confirm` and these options"
            )


def stored_format(directory: Path, dataset: str) -> TableFormat | None:
    """Return the format in the hospital's ledger of the data set, or None if no format was declared."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path

    path = ledger_path(directory, dataset)
    if not path.exists():
        return None
    with HospitalLedger.open(path, read_only=True) as ledger:
        return ledger.table_format


def keep_format(directory: Path, dataset: str, table_format: TableFormat) -> None:
    """Store the format in the hospital's ledger.

    Raises:
        ConfigurationError: a running study has read the records with another format.
    """
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path

    with HospitalLedger.open(ledger_path(directory, dataset)) as ledger:
        ledger.declare_format(table_format)


def read_records(
    path: Path, options: FormatOptions, *, formats: set[TableFormat] | None = None, **reading: Any
) -> Records:
    """Return records for a command that stores no format: with the options, or with the file's proposal.

    A proposal is printed. formats: those of files that were read before, which are not printed again.

    Raises:
        DataError: as `private_learning.records.load`, or the file leaves a doubt that the options do not settle.
    """
    from private_learning.records import DataError, load, text_tables

    table_format = options.declared(path)
    if table_format is None and text_tables(path):
        proposal = options.propose(path)
        if proposal.doubts:
            raise DataError(f"{path.name}: {proposal.doubtful}")
        table_format = proposal.format
        if formats is None or table_format not in formats:
            say(f"{path.name}: read with {table_format}, as the file itself shows. Options can declare it", err=True)
        if formats is not None:
            formats.add(table_format)
    return load(path, table_format, **reading)


def read_declared(
    path: Path, options: FormatOptions, stored: TableFormat | None, *, ask: bool, command: str, **reading: Any
) -> Records:
    """Return records for `join`, read with the stored format, the options, or a proposal that a person confirms.

    ask: a person can answer at the terminal. command: the typed command, to be repeated with the missing options.

    Raises:
        ConfigurationError: the format of the records is not declared, or the options contradict the ledger.
        NotAgreed: the person says that the proposal is wrong.
        DataError: as `private_learning.records.load`.
    """
    from private_learning.records import load, text_tables

    if stored is not None:
        options.require_fit(stored)
        return load(path, stored, **reading)
    table_format = options.declared(path)
    if table_format is None and text_tables(path):
        proposal = options.propose(path)
        if not ask:
            raise _undeclared(path, proposal, options, command)
        show_proposal(path, proposal, to_errors=True)
        table_format = _confirmed(proposal)
    return load(path, table_format, **reading)


def show_proposal(path: Path, proposal: Proposal, *, to_errors: bool = False) -> None:
    """Print the format with its reasons, and how the cells of each column are written."""
    table_format, reasons = proposal.format, proposal.reasons
    rows = [
        ["separator", table_format.separator or "none", reasons["separator"]],
        ["encoding", table_format.encoding.upper(), reasons["encoding"]],
        ["header", "first line" if table_format.header else "none", reasons["header"]],
        ["decimal mark", table_format.decimal or "not declared", reasons["decimal"]],
        ["dates", table_format.dates or "only those that begin with the year", reasons["dates"]],
    ]
    table(f"How {path.name} is written", ["", "", "why"], rows, to_errors=to_errors)
    first = sorted(proposal.columns, key=lambda c: not any((c.point, c.comma, c.thousands, c.day_or_month)))
    table(
        "Its cells",
        ["column", "cells"],
        [[column.name, str(column)] for column in first[:_MAX_SHOWN_COLUMNS]],
        to_errors=to_errors,
    )
    if len(first) > _MAX_SHOWN_COLUMNS:
        say(f"and {len(first) - _MAX_SHOWN_COLUMNS} columns more", err=to_errors)
    for remark in proposal.remarks:
        say(f"warning: {remark}", err=True)
    if proposal.doubts:
        say(f"in doubt: {proposal.doubtful}", err=to_errors)


def _undeclared(path: Path, proposal: Proposal, options: FormatOptions, command: str) -> Exception:
    from client_sdk.errors import ConfigurationError

    table_format = proposal.format
    open_fields = [f"--{name}" for name in ("decimal", "dates") if name in proposal.doubts]
    guess = [] if table_format.decimal else ["--decimal", "point"]
    example_command = f"{command} {shlex.join([*table_format.options, *guess])}"
    unsure = f". In doubt is {' and '.join(open_fields)}: {proposal.doubtful}" if open_fields else ""
    look = shlex.join(["wardround", "data", "check", str(path), *options.as_typed])
    return ConfigurationError(
        f"the format of {path.name} is not declared. It looks like {table_format}. Look at it with `{look}`, then type "
        f"what is right, for example: {example_command}{unsure}"
    )


def _confirmed(proposal: Proposal) -> TableFormat:
    """Return the format of the proposal after a person completed it. Raises NotAgreed: it is wrong."""
    from dataclasses import replace

    from client_sdk.errors import NotAgreed

    table_format = proposal.format
    if "decimal" in proposal.doubts:
        table_format = replace(
            table_format, decimal=_choose_answer("Which decimal mark do the numbers have?", ("point", "comma"))
        )
    if "dates" in proposal.doubts:
        table_format = replace(
            table_format, dates=_choose_answer("Which comes first in a date, day or month?", ("dmy", "mdy"))
        )
    if not typer.confirm(f"Are these records written with {table_format}? It is kept for the data set", err=True):
        raise NotAgreed("not joined, and no data was sent: declare the format with --separator, --decimal and the like")
    return table_format


def _choose_answer(question: str, answers: tuple[str, str]) -> Any:
    """Ask until the answer is one of the two, and return it."""

    def understood(text: str) -> str:
        if text.strip().lower() not in answers:
            raise typer.BadParameter(f"type {answers[0]} or {answers[1]}")
        return text.strip().lower()

    return typer.prompt(f"{question} ({answers[0]} or {answers[1]})", value_proc=understood, err=True)
