"""Tables from files."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from client_sdk.data.records import DataError, Table


def read_csv(
    path: Path,
    *,
    patient_column: str | None = None,
    names: Sequence[str] | None = None,
    missing: Sequence[str] = ("", "?", "NA", "NaN", "nan"),
) -> Table:
    """A table from a comma-separated file, gzipped if its name ends in .gz; `names` where it has no header line.

    Raises:
        DataError: not UTF-8, no rows, a row of another length, a column named twice.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path.name}: comma-separated text in UTF-8 is expected") from error
    header = list(names) if names is not None else rows.pop(0) if rows else []
    if len(set(header)) != len(header):
        raise DataError(f"{path.name}: a column is named twice")
    if not rows:
        raise DataError(f"{path.name}: there are no records" + ("" if header else ", not even a header"))
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(f"{path.name}: commas are expected between the columns")
    wrong = sum(len(row) != len(header) for row in rows)
    if wrong:
        raise DataError(f"{path.name}: {wrong} of {len(rows)} rows do not have {len(header)} cells")
    absent = set(missing)
    columns = {
        name.strip(): [None if cell.strip() in absent else cell.strip() for cell in cells]
        for name, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
    return Table.of(columns, patient_column=patient_column)


def read_parquet(path: Path, *, patient_column: str | None = None) -> Table:
    """A table from a Parquet file. Needs the package pyarrow."""
    try:
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow: pip install pyarrow") from error
    if not path.is_file():
        raise FileNotFoundError(path)
    arrow = cast(Any, parquet)  # It comes without annotations.
    return Table.of(arrow.read_table(path).to_pydict(), patient_column=patient_column)


# The attributes of the UCI heart disease files, which have no header line (Detrano et al. 1989).
_HEART_DISEASE = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)


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
    columns["disease"] = (columns.pop("num") > 0).astype(np.float64)
    site = path.name.removeprefix("processed.").removesuffix(".data")
    return Table(columns, tuple(f"{site}-{row}" for row in range(len(columns["disease"]))), named=False)
