"""How commands learn how tables are written: from options, the hospital's ledger, a person, or the file itself."""

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

# Columns that a person is shown one by one, at most.
_SHOWN = 20


@dataclass(frozen=True)
class FormatOptions:
    """What a command line says of how tables are written."""

    separator: Separator | None = None
    encoding: str | None = None
    decimal: Decimal | None = None
    dates: Dates | None = None

    @property
    def are_given(self) -> bool:
        """Was anything said?"""
        return any(value is not None for value in asdict(self).values())

    @property
    def given(self) -> tuple[str, ...]:
        """As a person types them."""
        return tuple(word for name, value in asdict(self).items() if value is not None for word in (f"--{name}", value))

    def declared(self, path: Path) -> TableFormat | None:
        """The format for records at this path; None: the options leave something to be proposed or say nothing."""
        from private_learning.records import TableFormat, text_tables

        if not text_tables(path):
            return TableFormat(None, decimal=self.decimal, dates=self.dates) if self.decimal or self.dates else None
        if self.separator is None or self.decimal is None:
            return None
        return TableFormat(self.separator, self.encoding or "utf-8", True, self.decimal, self.dates)

    def propose(self, path: Path) -> Proposal:
        """What they leave out is proposed by the file. Raises DataError."""
        from private_learning.records import propose_format

        return propose_format(path, **asdict(self))

    def require_fit(self, stored: TableFormat) -> None:
        """Raises ConfigurationError: they say something else than what was declared before."""
        from client_sdk.errors import ConfigurationError
        from private_learning.records import TableFormat

        said = asdict(TableFormat(**{name: value for name, value in asdict(self).items() if value is not None}))
        kept = asdict(stored)
        if any(said[name] != kept[name] for name, value in asdict(self).items() if value is not None):
            raise ConfigurationError(
                f"these records are declared with {stored}, and the options say something else: leave them out, or "
                "declare the records anew with `wardround data check --confirm` and these options"
            )


def stored_format(directory: Path, dataset: str) -> TableFormat | None:
    """What the hospital's ledger of the data set keeps; None: nobody has declared it."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path

    path = ledger_path(directory, dataset)
    if not path.exists():
        return None
    with HospitalLedger.open(path, read_only=True) as ledger:
        return ledger.table_format


def keep_format(directory: Path, dataset: str, format: TableFormat) -> None:
    """In the hospital's ledger. Raises ConfigurationError: a study that is under way has read the records otherwise."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path

    with HospitalLedger.open(ledger_path(directory, dataset)) as ledger:
        ledger.declare_format(format)


def read_records(
    path: Path, options: FormatOptions, *, formats: set[TableFormat] | None = None, **reading: Any
) -> Records:
    """Records for a command that keeps nothing: by the options, or by what the file proposes, which is said.

    formats: of files that were read before; the same is not said again.

    Raises:
        DataError: as `private_learning.records.load`; the file leaves a doubt that the options do not settle.
    """
    from private_learning.records import DataError, load, text_tables

    format = options.declared(path)
    if format is None and text_tables(path):
        proposal = options.propose(path)
        if proposal.doubts:
            raise DataError(f"{path.name}: {proposal.doubtful}")
        format = proposal.format
        if formats is None or format not in formats:
            say(f"{path.name}: read with {format}, as the file itself shows; options can declare it", err=True)
        if formats is not None:
            formats.add(format)
    return load(path, format, **reading)


def read_declared(
    path: Path, options: FormatOptions, stored: TableFormat | None, *, ask: bool, command: str, **reading: Any
) -> Records:
    """Records for `join`: by the stored format, by the options, or by what a person at the terminal confirms.

    ask: is there a person? command: what was typed, to be repeated with the options that it lacks.

    Raises:
        ConfigurationError: nobody has declared how the records are written, or the options contradict the ledger.
        NotAgreed: the person says that the proposal is wrong.
        DataError: as `private_learning.records.load`.
    """
    from private_learning.records import load, text_tables

    if stored is not None:
        options.require_fit(stored)
        return load(path, stored, **reading)
    format = options.declared(path)
    if format is None and text_tables(path):
        proposal = options.propose(path)
        if not ask:
            raise _undeclared(path, proposal, options, command)
        show_proposal(path, proposal, to_errors=True)
        format = _confirmed(proposal)
    return load(path, format, **reading)


def show_proposal(path: Path, proposal: Proposal, *, to_errors: bool = False) -> None:
    """The format with its reasons, and how the cells of each column are written."""
    format, why = proposal.format, proposal.reasons
    rows = [
        ["separator", format.separator or "none", why["separator"]],
        ["encoding", format.encoding.upper(), why["encoding"]],
        ["header", "first line" if format.header else "none", why["header"]],
        ["decimal mark", format.decimal or "not declared", why["decimal"]],
        ["dates", format.dates or "only those that begin with the year", why["dates"]],
    ]
    table(f"How {path.name} is written", ["", "", "why"], rows, to_errors=to_errors)
    first = sorted(proposal.columns, key=lambda one: not (one.point or one.comma or one.thousands or one.day_or_month))
    table("Its cells", ["column", "cells"], [[one.name, str(one)] for one in first[:_SHOWN]], to_errors=to_errors)
    if len(first) > _SHOWN:
        say(f"and {len(first) - _SHOWN} columns more", err=to_errors)
    for remark in proposal.remarks:
        say(f"warning: {remark}", err=True)
    if proposal.doubts:
        say(f"in doubt: {proposal.doubtful}", err=to_errors)


def _undeclared(path: Path, proposal: Proposal, options: FormatOptions, command: str) -> Exception:
    from client_sdk.errors import ConfigurationError

    format = proposal.format
    open_fields = [f"--{name}" for name in ("decimal", "dates") if name in proposal.doubts]
    guess = [] if format.decimal else ["--decimal", "point"]
    again = f"{command} {shlex.join([*format.options, *guess])}"
    unsure = f". In doubt is {' and '.join(open_fields)}: {proposal.doubtful}" if open_fields else ""
    look = shlex.join(["wardround", "data", "check", str(path), *options.given])
    return ConfigurationError(
        f"nobody has declared how {path.name} is written. It looks like {format}. Look at it with `{look}`, then type "
        f"what is right, for example: {again}{unsure}"
    )


def _confirmed(proposal: Proposal) -> TableFormat:
    """The proposal, completed by a person. Raises NotAgreed: it is wrong."""
    from dataclasses import replace

    from client_sdk.errors import NotAgreed

    format = proposal.format
    if "decimal" in proposal.doubts:
        format = replace(format, decimal=_chosen("Which mark do decimal numbers have?", ("point", "comma")))
    if "dates" in proposal.doubts:
        format = replace(format, dates=_chosen("Which comes first in a date, day or month?", ("dmy", "mdy")))
    if not typer.confirm(f"Are these records written with {format}? It is kept for the data set", err=True):
        raise NotAgreed("not joined, and nothing was sent: declare the format with --separator, --decimal and the like")
    return format


def _chosen(question: str, answers: tuple[str, str]) -> Any:
    """One of two answers. Asked again until it is."""

    def understood(text: str) -> str:
        if text.strip().lower() not in answers:
            raise typer.BadParameter(f"type {answers[0]} or {answers[1]}")
        return text.strip().lower()

    return typer.prompt(f"{question} ({answers[0]} or {answers[1]})", value_proc=understood, err=True)
