"""Which files of a folder are records, and what their labels and patients are: by sub-folders, or by a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.data.identity import identity_or_blank
from client_sdk.data.paths import seen
from client_sdk.data.records import Array, DataError, identifiers
from client_sdk.data.table_files import read_csv

LABELS_FILE = "labels.csv"
_NAMING = ("file", "patient")


@dataclass(frozen=True)
class Labelled:
    """Files below a folder, in order. labels: (n,) or (n, several). patients: those that the list names, or None."""

    files: tuple[str, ...] = field(repr=False)
    labels: Array = field(repr=False)
    patients: tuple[Any, ...] | None = field(default=None, repr=False)


def labelled(
    folder: Path, kind: str, wanted: Callable[[Path], bool], patient_of: Callable[[Path], str] | None = None
) -> Labelled:
    """The records of a folder.

    With `labels.csv` in it: columns `file` (below the folder) or `patient`, and one column for each label. Otherwise
    one sub-folder for each class, whose labels are their places in the order of their names.

    kind        what the files are called in messages
    wanted      which of the files are meant
    patient_of  who a file is of, where files say so themselves

    Raises:
        DataError: no files, no classes, files without a label, labels without their file. No name is in the text.
    """
    if (folder / LABELS_FILE).exists():
        return _listed(folder, kind, wanted, patient_of)
    names = [path.name for path in seen(folder) if path.is_dir()]
    files = [
        (label, path.relative_to(folder).as_posix())
        for label, name in enumerate(names)
        for path in seen(folder / name, below=True)
        if path.is_file() and wanted(path)
    ]
    if len(names) < 2 or not files:
        raise DataError(
            f"{kind}: one sub-folder for each of at least two classes is expected, or {LABELS_FILE} with the columns "
            f"file (or patient) and label; there are {len(names)} sub-folders with {len(files)} files"
        )
    return Labelled(tuple(path for _, path in files), np.array([label for label, _ in files]))


def _listed(
    folder: Path, kind: str, wanted: Callable[[Path], bool], patient_of: Callable[[Path], str] | None
) -> Labelled:
    table = read_csv(folder / LABELS_FILE, as_written=_NAMING)
    by = next((name for name in _NAMING if name in table.columns), None)
    targets = [name for name in table.columns if name not in _NAMING]
    if by is None or not targets or (by == "patient" and patient_of is None):
        raise DataError(
            f"{LABELS_FILE}: the columns file and label are expected, or patient and label in DICOM folders"
        )
    labels = np.stack([_numbers(name, table.columns[name]) for name in targets], axis=1)
    named = table.columns[by].tolist()
    row_of = {key: row for row, key in enumerate(identifiers(named, len(named)) if by == "patient" else named)}
    if len(row_of) < len(table):
        raise DataError(f"{LABELS_FILE}: {len(table) - len(row_of)} of {len(table)} rows name a {by} again")
    files = sorted(
        path.relative_to(folder).as_posix() for path in seen(folder, below=True) if path.is_file() and wanted(path)
    )
    keys = files
    if by == "patient" and patient_of is not None:
        keys = [identity_or_blank(patient_of(folder / path)) for path in files]
    rows = [row_of.get(key, -1) for key in keys]
    unlabelled, absent = rows.count(-1), len(set(row_of.values()) - set(rows))
    if not files or unlabelled or absent:
        raise DataError(
            f"{LABELS_FILE}: {unlabelled} of {len(files)} {kind} files have no label, and {absent} of {len(row_of)} "
            "rows no file; list every file once, as it is called below the folder"
        )
    chosen = labels[rows]
    told = table.columns["patient"].tolist() if by == "file" and "patient" in table.columns else None
    patients = None if told is None else tuple(told[row] for row in rows)
    return Labelled(tuple(files), chosen[:, 0] if len(targets) == 1 else chosen, patients)


def _numbers(name: str, column: Array) -> Array:
    if column.dtype.kind != "f":
        raise DataError(f"{LABELS_FILE}: column {name}: numbers are expected, such as 0 and 1")
    return column
