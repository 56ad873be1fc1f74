"""Tables from files: text tables and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from client_sdk.data.delimited import read_sheet
from client_sdk.data.lazy_table import list_table
from client_sdk.data.paths import require_there
from client_sdk.data.records import Table
from client_sdk.protocol.cells import AS_WRITTEN, MISSING, Spelling, column_of

# The attributes of the UCI heart disease files, which have no header line (Detrano et al. 1989).
_HEART_DISEASE = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)


def read_csv(
    path: Path,
    *,
    patient_column: str | None = None,
    names: Sequence[str] | None = None,
    encoding: str | None = None,
    may_be_empty: bool = False,
    spelling: Spelling = AS_WRITTEN,
) -> Table:
    """A table from a text file, gzipped if its name ends in .gz; `names` where it has no header line.

    Commas, semicolons, tabs or bars stand between the cells: whichever makes every row equally long. Unicode with or
    without a byte order mark is read as such, anything else needs its `encoding`. Cells stay texts: the declaration of
    a column says what they mean. Columns without a name are left out.

    may_be_empty: a header alone is a table of no rows
    spelling: how numbers and dates of the data set are written

    Raises:
        DataError: no such text table; the text names line and column, never what stands there.
    """
    require_there(path)
    sheet = read_sheet(path, names=names, encoding=encoding, may_be_empty=may_be_empty)
    if not sheet.rows:
        return Table.without_rows([name for name in sheet.names if name], patient_column)
    cells: dict[str, list[str | None]] = {
        name: list(texts) for name, texts in zip(sheet.names, zip(*sheet.rows, strict=True), strict=True) if name
    }
    if patient_column in cells:
        # A row that says NA is of no patient, and not of one who is called so.
        cells[patient_column] = [None if text.strip() in MISSING else text for text in cells[patient_column]]
    return Table.of(cells, patient_column=patient_column, lines=sheet.lines, spelling=spelling)


def read_parquet(path: Path, *, patient_column: str | None = None, spelling: Spelling = AS_WRITTEN) -> Table:
    """A table from a Parquet file, in memory as a whole. Needs the package pyarrow. Raises as `list_table`."""
    return list_table(path, patient_column=patient_column, spelling=spelling).in_memory()


def read_heart_disease(path: Path) -> Table:
    """A `processed.<site>.data` file of UCI heart disease: 13 attributes and `disease`, 0 or 1 (num above 0).

    A pressure or a cholesterol of 0 is how some sites wrote "not measured"; it reads as missing. Patients are named
    by site and row.

    Raises:
        DataError: not 14 columns.
    """
    table = read_csv(path, names=_HEART_DISEASE)
    columns = dict(table.columns)
    for name in ("trestbps", "chol"):
        columns[name] = column_of(table.numbers(name, ("0",)), name=name)
    # 1 to 4 are degrees of the disease; studies of these files ask whether there is any.
    del columns["num"]
    columns["disease"] = column_of((table.numbers("num") > 0).astype(np.float64), name="disease")
    site = path.name.removeprefix("processed.").removesuffix(".data")
    return Table(columns, tuple(f"{site}-{row}" for row in range(len(table))), named=False)
