"""Records from a file or folder, chosen by its name: tables, arrays, folders of images, shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from private_learning.records.array_files import Split
from private_learning.records.formats import (
    FORMATS,
    ReadOptions,
    format_of,
    is_folder_of_histories,
    is_heart_disease,
    is_text_table,
    require_one_kind,
)
from private_learning.records.histories import propose_for_histories, text_histories
from private_learning.records.in_memory import OnDemand, Records, records_of
from private_learning.records.lazy import reads_lazily
from private_learning.records.mapping import TableMapping
from private_learning.records.paths import require_there
from private_learning.records.proposal import DeclaredParts, Proposal, combined, examine
from private_learning.records.records import DataError
from private_learning.records.shards import is_pattern
from private_learning.records.table_format import Dates, Separator, TableFormat
from study_protocol.cells.spelling import Decimal

_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")


def load(
    path: Any,
    table_format: TableFormat | None = None,
    *,
    patient_column: str | None = None,
    split: Split = "train",
    encoding: str | None = None,
    lazy: bool | None = None,
    keys: Sequence[Any] | None = None,
    mapping: TableMapping | str | os.PathLike[str] | None = None,
) -> Records:
    """Return records from a file or a folder in one of FORMATS, or from data that `records_of` takes, as a data frame.

    docs/extending.md lists the formats. A program adds its own to `private_learning.records.formats.FORMATS`.

    table_format  the declared format of its tables, which is the only one used. None: as the tables themselves propose
                  (`propose_format`), and the records are marked as undeclared
    encoding      for a proposal: encoding of a text table that is not Unicode, for example cp1252
    lazy          read Parquet, Arrow, images, shards and plain arrays on demand (True), all of them now (False), or on
                  demand if they take more than 512 MiB (None). Training gives the same bytes either way
    keys          of a data set of dictionaries, as in `records_of`
    mapping       the hospital's mapping of names, codes and units of tables, or its file (columns.toml)

    Raises:
        DataError: there is no such file, its kind is unknown, or its content does not fit its name. Or `lazy` is set
            for records that are never read on demand.
    """
    table_mapping = mapping if isinstance(mapping, TableMapping | None) else TableMapping.read(Path(mapping))
    if not isinstance(path, str | os.PathLike):
        local = records_of(path, patient_column=patient_column, lazy=lazy, table_format=table_format, keys=keys)
    else:
        options = ReadOptions(table_format, patient_column, split, encoding, lazy)
        local = _read(Path(cast("str | os.PathLike[str]", path)), options)
    return local if table_mapping is None else table_mapping.applied(local, patient_column)


def _read(path: Path, options: ReadOptions) -> Records:
    # A program may have added a format for them.
    is_registered = any(entry.holds is not None and entry.holds(path) for entry in FORMATS.values())
    if path.suffix.lower() in _WORKBOOKS and not is_registered:
        raise DataError(
            f"{path.name}: a workbook is read through a snapshot: `wardround data snapshot source.toml`. Or save its "
            "sheet as 'CSV UTF-8'"
        )
    if not is_pattern(path):
        require_there(path, folder_allowed=True)
    record_format = format_of(path)
    if not record_format.is_table:
        _refuse_columns(path, options.patient_column)
    records = record_format.read(path, options)
    return records.in_memory() if isinstance(records, OnDemand) and not reads_lazily(records, options.lazy) else records


def _refuse_columns(path: Path, patient_column: str | None) -> None:
    """Require a path of examples. Raises DataError: a column is named, or a folder has files of several kinds."""
    if patient_column is not None:
        raise DataError(
            "patient_column belongs to tables. An .npz file has an array `patients`, a folder of images patients.csv"
        )
    if path.is_dir():
        require_one_kind(path)


def text_tables(path: Path) -> list[Path]:
    """Return the text tables at this path, for which a format must be known. Other files give an empty list."""
    if path.is_dir():
        return text_histories(path) if is_folder_of_histories(path) else []
    return [path] if is_text_table(path) and not is_heart_disease(path) else []


def propose_format(
    path: str | Path,
    *,
    separator: Separator | None = None,
    encoding: str | None = None,
    decimal: Decimal | None = None,
    dates: Dates | None = None,
) -> Proposal:
    """Return the proposed format of a text table, or of all text tables of a folder. Given arguments are declared.

    The decimal mark is None if the file leaves a doubt: it has numbers with points and with commas, or only numbers
    that may be thousands. The order of dates is proposed if a day above 12 shows it.

    Raises:
        DataError: there is no text table, its bytes are no Unicode, the separator is not clear, or the header is
            missing. Or the tables of a folder have different formats.
    """
    path = Path(path)
    tables = text_tables(path)
    if not tables:
        raise DataError(f"{path.name}: it holds no text table to propose a format for")
    stated = DeclaredParts(separator, encoding, decimal, dates)
    if path.is_dir():
        return propose_for_histories(tables, stated)
    return combined([examine(path, stated)[0]])
