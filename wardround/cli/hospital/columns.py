"""The command `wardround data columns`: lines for a study's settings from the columns of a table."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.hospital.hospital import Dates, Decimal, Encoding, Separator
from wardround.cli.hospital.mapping import ColumnsFile, apply_mapping, require_mapped
from wardround.cli.hospital.named_records import named_records
from wardround.cli.hospital.table_format import FormatOptions, read_records
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import plain_errors, say

if TYPE_CHECKING:
    from client_sdk.study.guessed_columns import GuessedColumns
    from private_learning.records import Table

RecordsFile = Annotated[Path, typer.Argument(help="table of records, in a form that `join --data` accepts")]
Patient = Annotated[
    str | None, typer.Option("--patient", help="column that names the patient. Without it every row is a patient")
]
LeaveOut = Annotated[list[str], typer.Option("--leave-out", help="column that is no input. Repeatable")]
NamesOnly = Annotated[
    bool, typer.Option("--names-only", help="write names and types alone, and no number or word of these records")
]
Force = Annotated[bool, typer.Option("--force", help="replace an existing file")]
Labels = Annotated[list[str], typer.Option("--label", help="column to be predicted, which is no input. Repeatable")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="file to write. Default: standard output")]

# Rows that are looked at, at most: more would take longer and say the same.
MAX_ROWS = 20_000
_MAX_COLUMNS = 1_000
CHECK = "# check this"
WARNING = (
    "The numbers and words of these columns come from one hospital's records, and no privacy budget covers them. "
    'Replace those marked "check this" by public knowledge before the file leaves the hospital, or use --names-only'
)


def data_columns(
    records: RecordsFile,
    label: Labels = [],  # noqa: B006 (typer reads the default and copies it)
    patient: Patient = None,
    leave_out: LeaveOut = [],  # noqa: B006
    names_only: NamesOnly = False,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    columns: ColumnsFile = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Write the column lines of a study's settings, guessed from a table: types, rounded ranges, frequent words."""
    from client_sdk.study.guessed_columns import guess_columns

    with plain_errors():
        require_writable(output, replaces=force)
        source, options = named_records(records, patient), FormatOptions(separator, encoding, decimal, dates)
        table = read_table(source.path, options, source.patient_column, leave_out, columns)
        targets = [known_column(table, name) for name in label]
        guessed = guess_columns(table, targets, [known_column(table, name) for name in leave_out])
        require_inputs(guessed.lines)
        lines = [f"# {name}: left out, {reason}" for name, reason in guessed.left_out.items()]
        described = without_numbers(guessed.lines) if names_only else guessed.lines
        lines += [column_line(name, text) for name, text in described.items()]
        if output is None:
            typer.echo("\n".join(lines))
        else:
            write_whole(output, "\n".join(lines) + "\n")
            say(f"{output} is written")
        show_remarks(guessed)
        if not targets:
            say("note: a column to be predicted is no input. Name it with --label, or remove its line", err=True)
        if not names_only:
            say(f"warning: {WARNING}", err=True)


def read_table(
    path: Path,
    options: FormatOptions,
    patient: str | None,
    leave_out: Collection[str] = (),
    mapping: Path | None = None,
) -> Table:
    """Return a table of at most about MAX_ROWS rows: those of patients who are drawn at random.

    Raises:
        ConfigurationError: the records are no table, or patients may have several rows and no column names them.
        DataError: as `private_learning.records.load`, or the mapping does not know the code of a cell.
    """
    from client_sdk.errors import ConfigurationError
    from client_sdk.study.guessed_columns import patient_column
    from private_learning.records import Table

    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: name one table, with one row for each patient")
    local = read_records(path, options, patient_column=patient, lazy=False)
    table, mapping_counts = apply_mapping(local, mapping, patient)
    # Settings are guessed from the cells, and no setting can name an unknown code.
    require_mapped(mapping_counts)
    if not isinstance(table, Table):
        raise ConfigurationError(
            f"{path.name} holds no table: images and arrays need settings of their own (study template)"
        )
    table = _sampled(table)
    repeated = None if patient is not None else patient_column(table)
    if repeated is not None and repeated not in leave_out:
        raise ConfigurationError(
            f"column {repeated} seems to name patients, and some have several rows: add --patient {repeated}, or "
            f"--leave-out {repeated} if every row is another patient"
        )
    return table


def _sampled(table: Table) -> Table:
    import numpy as np

    from client_sdk.study.guessed_columns import people_of

    if len(table) <= MAX_ROWS:
        return table
    people = people_of(table)
    counts = np.bincount(people)
    # In an order that does not depend on the order of the rows.
    order = np.random.default_rng(0).permutation(len(counts))
    is_in_sample = np.zeros(len(counts), bool)
    is_in_sample[order[np.cumsum(counts[order]) <= MAX_ROWS]] = True
    sample = table.take(np.flatnonzero(is_in_sample[people]))
    say(f"note: of {len(table):,} rows {len(sample):,} are used, drawn at random", err=True)
    return sample


def known_column(table: Table, name: str) -> str:
    """Return the name as the table has it. Raises ConfigurationError: it has no such column."""
    from client_sdk.study.guessed_label import require_column

    return require_column(table, name)


def require_inputs(lines: Mapping[str, str], left_out: Mapping[str, str] | None = None) -> None:
    """Require at least one input and no more than 1,000. Raises ConfigurationError."""
    from client_sdk.errors import ConfigurationError

    if not lines:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list((left_out or {}).items())[:5])
        raise ConfigurationError(f"no column is left that could be an input{f' ({reasons})' if reasons else ''}")
    if len(lines) > _MAX_COLUMNS:
        raise ConfigurationError(
            f"{len(lines):,} columns are more inputs than noise allows: keep at most {_MAX_COLUMNS}, which matter most"
        )


def without_numbers(lines: Mapping[str, str]) -> dict[str, str]:
    """Return descriptions with the types alone. A person must fill them: as they are, no study accepts them."""
    from private_learning.tasks.columns import PREFIX, read_columns
    from private_learning.tasks.declared_columns import NumberColumn

    described: dict[str, str] = {}
    for name, text in lines.items():
        (column,) = read_columns({PREFIX + name: text})
        if isinstance(column, NumberColumn):
            described[name] = "LOW..HIGH" + ("; missing=MIDDLE" if column.missing is not None else "")
        else:
            described[name] = "CATEGORIES" + ("; missing" if column.missing else "")
    return described


def column_line(name: str, text: str) -> str:
    """Return the entry of a column in a settings file, marked to be checked."""
    from private_learning.tasks.columns import PREFIX
    from wardround.cli.shared.settings_help import toml

    return f"{toml(PREFIX + name)} = {toml(text)}  {CHECK}"


def show_remarks(guessed: GuessedColumns) -> None:
    """Print what is left out and what is not described."""
    for name, reason in guessed.left_out.items():
        say(f"left out: {name} ({reason})", err=True)
    for remark in guessed.remarks:
        say(f"note: {remark}", err=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file that is whole or not there."""
    from study_protocol.files.durable import write_durably

    write_durably(path, text.encode(), mode=0o644 & ~_umask())


def _umask() -> int:
    mask: Any = os.umask(0)
    os.umask(mask)
    return mask
