"""Tables from files: text tables and Parquet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from client_sdk.data.delimited import Cells, read_sheet, with_points
from client_sdk.data.lazy_table import list_table
from client_sdk.data.paths import require_there
from client_sdk.data.records import Table

# What tables write where nothing was measured. Words that may mean something, such as None, are not among them.
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
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
    missing: Sequence[str] = MISSING,
    encoding: str | None = None,
    as_written: Collection[str] = (),
    may_be_empty: bool = False,
) -> Table:
    """A table from a text file, gzipped if its name ends in .gz; `names` where it has no header line.

    Commas, semicolons, tabs or bars stand between the cells: whichever makes every row equally long. Unicode with or
    without a byte order mark is read as such, anything else needs its `encoding`. Decimal commas are read as such where
    all numbers of the file agree. Columns without a name are left out.

    as_written: columns that are text whatever they say, such as names of files: as numbers 007 would be 7
    may_be_empty: a header alone is a table of no rows

    Raises:
        DataError: no such text table; the text names line and column, never what stands there.
    """
    require_there(path)
    sheet = read_sheet(path, names=names, encoding=encoding, may_be_empty=may_be_empty)
    if not sheet.rows:
        return Table.without_rows([name for name in sheet.names if name], patient_column)
    absent = set(missing)
    stripped = ([cell.strip() for cell in cells] for cells in zip(*sheet.rows, strict=True))
    columns: Cells = {
        name: [None if cell in absent else cell for cell in cells]
        for name, cells in zip(sheet.names, stripped, strict=True)
        if name
    }
    kept = {name: cells for name, cells in columns.items() if name in {*as_written, patient_column}}
    table = Table.of(with_points(columns) | kept, patient_column=patient_column, lines=sheet.lines)
    texts = {name: np.array(kept[name], dtype=object) for name in table.columns if name in as_written}
    return replace(table, columns={**table.columns, **texts}) if texts else table


def read_parquet(path: Path, *, patient_column: str | None = None) -> Table:
    """A table from a Parquet file, in memory as a whole. Needs the package pyarrow. Raises as `list_table`."""
    return list_table(path, patient_column=patient_column).in_memory()


def read_heart_disease(path: Path) -> Table:
    """A `processed.<site>.data` file of UCI heart disease: 13 attributes and `disease`, 0 or 1 (num above 0).

    A pressure or a cholesterol of 0 is how some sites wrote "not measured"; it reads as missing. Patients are named
    by site and row.

    Raises:
        DataError: not 14 columns.
    """
    columns = dict(read_csv(path, names=_HEART_DISEASE).columns)
    for name in ("trestbps", "chol"):
        columns[name] = np.where(columns[name] == 0, np.nan, columns[name])
    # 1 to 4 are degrees of the disease; studies of these files ask whether there is any.
    columns["disease"] = (columns.pop("num") > 0).astype(np.float64)
    site = path.name.removeprefix("processed.").removesuffix(".data")
    return Table(columns, tuple(f"{site}-{row}" for row in range(len(columns["disease"]))), named=False)
