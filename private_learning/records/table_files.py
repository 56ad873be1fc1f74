"""Tables from files: text tables and Parquet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from private_learning.records.delimited import read_sheet, remarks_on
from private_learning.records.lazy_table import list_table
from private_learning.records.paths import require_there
from private_learning.records.proposal import DeclaredParts, TextTable, combined, examine
from private_learning.records.records import DataError, Table
from private_learning.records.table_format import TableFormat
from private_learning.records.text_encoding import bytes_of, decode
from study_protocol.cells import AS_WRITTEN

_LOG = logging.getLogger(__name__)
# The attributes of the UCI heart disease files, which have no header line (Detrano et al. 1989).
_HEART_DISEASE = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)
_HEART_DISEASE_FORMAT = TableFormat(separator="comma", header=False, decimal="point")


def read_csv(
    path: Path,
    table_format: TableFormat | None = None,
    *,
    patient_column: str | None = None,
    names: Sequence[str] | None = None,
    encoding: str | None = None,
    may_be_empty: bool = False,
) -> Table:
    """Return a table from a text file, gzipped if its name ends in .gz. Cells stay texts as written.

    Columns without a name are left out.

    table_format  the declared format, which is the only one used. None: as the file itself proposes (`propose_format`),
                  and the table is marked as undeclared
    names         of the columns, if there is no header line
    encoding      for a proposal
    may_be_empty  a header without rows is allowed

    Raises:
        DataError: the file is no such text table. The message names line and column, never the content.
    """
    if table_format is None:
        proposal, table = examine(path, DeclaredParts(encoding=encoding), names, may_be_empty, patient_column)
        table_format = combined([proposal]).format
        return _table(table.spelled(table_format.spelling), table_format, patient_column, declared=False)
    table = _declared(path, table_format, names, may_be_empty, patient_column)
    return _table(table, table_format, patient_column, declared=True)


def read_parquet(path: Path, table_format: TableFormat | None = None, *, patient_column: str | None = None) -> Table:
    """Return a table from a Parquet file, in memory as a whole. Needs the package pyarrow. Raises as `list_table`.

    table_format: the declared format of its texts.
    """
    spelling = AS_WRITTEN if table_format is None else table_format.spelling
    table = list_table(path, patient_column=patient_column, spelling=spelling)
    return replace(table.in_memory(), format=table_format)


def read_heart_disease(path: Path) -> Table:
    """Return a `processed.<site>.data` file of UCI heart disease: 13 attributes and `disease`, 0 or 1 (num above 0).

    Some sites wrote a pressure or a cholesterol of 0 for "not measured", which is read as missing. Patients are named
    by site and row.

    Raises:
        DataError: the file does not have 14 columns.
    """
    attributes = read_csv(path, _HEART_DISEASE_FORMAT, names=_HEART_DISEASE)
    columns = {name: attributes.numbers(name) for name in attributes.columns}
    for name in ("trestbps", "chol"):
        columns[name] = np.where(columns[name] == 0, np.nan, columns[name])
    # 1 to 4 are degrees of the disease. Studies of these files predict whether there is any.
    columns["disease"] = (columns.pop("num") > 0).astype(np.float64)
    site = path.name.removeprefix("processed.").removesuffix(".data")
    table = Table.of(columns)
    return replace(table, patients=tuple(f"{site}-{row}" for row in range(len(table))))


def _declared(
    path: Path, table_format: TableFormat, names: Sequence[str] | None, may_be_empty: bool, patient_column: str | None
) -> TextTable:
    """Return the table read with this format. Raises DataError: it does not fit. The message describes the file."""
    require_there(path)
    if table_format.separator is None:
        raise DataError(f"{path.name}: it is a text table, and the data set was declared to hold none")
    try:
        text = decode(path.name, bytes_of(path), table_format.encoding)
        sheet = read_sheet(
            path.name, text, table_format.separator, names=names, header=table_format.header, may_be_empty=may_be_empty
        )
    except DataError as fault:
        raise DataError(f"{fault}{_as_it_looks(path, table_format, names)}") from fault
    for remark in remarks_on(path.name, sheet):
        _LOG.warning("%s", remark)
    return TextTable.of(sheet, table_format.spelling, patient_column)


def _as_it_looks(path: Path, table_format: TableFormat, names: Sequence[str] | None) -> str:
    """Return the end of a message about a file that does not fit: the format that the file itself proposes."""
    try:
        proposed = combined([examine(path, DeclaredParts(), names)[0]]).format
    except DataError:
        return ""
    if (proposed.separator, proposed.encoding) == (
        table_format.separator,
        table_format.encoding,
    ) or proposed.separator is None:
        return ""
    return (
        f". The data set is declared with {table_format}. This file looks as written with {proposed}: save it as "
        f"declared, or declare {' '.join(proposed.options)}"
    )


def _table(table: TextTable, table_format: TableFormat, patient_column: str | None, *, declared: bool) -> Table:
    if not table.lines:
        empty = Table.without_rows([*table.columns, *table.patients], patient_column)
        return replace(empty, format=table_format, declared=declared)
    typed_table = Table.of({**table.columns, **table.patients}, patient_column=patient_column, lines=table.lines)
    return replace(typed_table, format=table_format, declared=declared)
