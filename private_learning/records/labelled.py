"""The records of a folder with their labels and patients, from sub-folders or from a list."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.records.lazy import stored_bytes
from private_learning.records.paths import visible_paths
from private_learning.records.records import Array, DataError, Table, identifiers
from private_learning.records.table_files import read_csv
from study_protocol.cells import cleaned
from study_protocol.cells.identity import identity_or_blank

LABELS_FILE = "labels.csv"
_NAMING = ("file", "patient")
# Endings of images that are not read. They raise an error, because a study would lack them.
_OTHER_IMAGES = {
    *(".gif", ".jp2", ".j2k", ".jpe", ".jfif", ".heic", ".heif", ".avif", ".ppm", ".pgm", ".pnm", ".tga", ".dib"),
    *(".svg", ".mha", ".mhd", ".nrrd", ".hdr", ".img", ".mgz", ".svs", ".ndpi", ".czi", ".jxl", ".dng"),
}
_MAX_NAMED_CLASSES = 20
# Without leading zeros: 01 and 1 would be one number.
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Labelled:
    """Files below a folder, in order. labels: (n,) or (n, k). patients: those that the list names, or None.

    columns: the columns of the list with the labels. Empty for sub-folders.
    """

    files: tuple[str, ...] = field(repr=False)
    labels: Array = field(repr=False)
    patients: tuple[Any, ...] | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileReader:
    """A reader of float32 arrays of one shape, with one record in each file.

    files    paths below the folder
    kind     name of the files in messages. problem: what is wrong with unreadable ones
    decode   path -> array, or None if the file cannot be read
    """

    folder: Path
    files: tuple[str, ...] = field(repr=False)
    kind: str
    problem: str
    shape: tuple[int, ...]
    decode: Callable[[Path], Array | None] = field(repr=False)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: Array) -> Array:
        row_numbers: list[int] = rows.tolist()
        arrays = np.empty((len(row_numbers), *self.shape), np.float32)
        broken = 0
        for place, row in enumerate(row_numbers):
            array = self.decode(self.folder / self.files[row])
            if array is None or array.shape != self.shape:
                broken += 1
            else:
                arrays[place] = array
        if broken:
            raise DataError(f"{self.kind}: {broken} of {len(row_numbers)} files {self.problem}")
        return arrays

    def stored(self, row: int) -> bytes:
        return stored_bytes(self.folder / self.files[row])


def refuse_flaws(kind: str, descriptions: Sequence[object], flaws: type[Enum]) -> None:
    """Require files without flaws. Raises DataError: some have one, and the message counts those of the first kind."""
    counts = Counter(description for description in descriptions if isinstance(description, flaws))
    for flaw in flaws:
        if counts[flaw]:
            raise DataError(f"{kind}: {counts[flaw]} of {len(descriptions)} files {flaw.value}")


def labelled(
    folder: Path,
    kind: str,
    is_record: Callable[[Path], bool],
    patient_of: Callable[[Path], str] | None = None,
    *,
    classes: Sequence[str] | None = None,
) -> Labelled:
    """Return the records of a folder and of the folders in it.

    `labels.csv` has the columns `file` (below the folder) or `patient`, and one column for each label. Without it there
    is one sub-folder for each class, and its label is its position in the order of `class_order`.

    kind        name of the files in messages
    is_record   whether a file is a record
    patient_of  the patient of a file, if files name their patients
    classes     names of the sub-folders in the order of their labels. They override `labels.csv`

    Raises:
        DataError: there are no files or no classes, files lack a label, labels lack their file, or images are of a kind
            that is not read. The message names no file.
    """
    require_read(folder, kind, is_record)
    if classes is None and (folder / LABELS_FILE).exists():
        return _listed(folder, kind, is_record, patient_of)
    names = _class_names(folder, kind, classes)
    files = [
        (label, path.relative_to(folder).as_posix())
        for label, name in enumerate(names)
        for path in _records(visible_paths(folder / name, below=True), is_record)
    ]
    unclassified = len(_records(visible_paths(folder), is_record))
    if len(names) < 2 or unclassified:
        raise DataError(
            f"{kind}: one sub-folder for each of at least two classes is expected. There are {len(names)} sub-folders "
            f"with {len(files)} files, and {unclassified} files lie beside them without a class. {_advice(len(names))}"
        )
    if not files:
        raise DataError(f"{kind}: no file ends in one of the endings that are read, in {len(names)} sub-folders")
    labels = [label for label, _ in files]
    _tell_classes(kind, names, labels)
    return Labelled(tuple(path for _, path in files), np.array(labels))


def _records(paths: Iterable[Path], is_record: Callable[[Path], bool]) -> list[Path]:
    return [path for path in paths if path.is_file() and is_record(path)]


def _class_names(folder: Path, kind: str, classes: Sequence[str] | None) -> list[str]:
    present = class_order(path.name for path in visible_paths(folder) if path.is_dir())
    names = present if classes is None else list(classes)
    if missing := sorted(set(names) - set(present)):
        raise DataError(f"{kind}: one sub-folder for each class is expected. Missing: {missing}")
    return names


def class_order(names: Iterable[str]) -> list[str]:
    """Return the names of classes in the order of their labels: numeric if all are whole numbers, otherwise by text.

    Composed and decomposed letters are one text, so that every machine has the same order.
    """
    listed = list(names)
    if all(map(_WHOLE.fullmatch, listed)):
        return sorted(listed, key=int)
    return sorted(listed, key=lambda name: unicodedata.normalize("NFC", name))


def _advice(classes: int) -> str:
    advice = f"{LABELS_FILE} with the columns file (or patient) and label gives each file its label instead"
    if classes == 1:
        return f"An empty sub-folder stands for a class of which there is no file. {advice}"
    return f"Put each file into the sub-folder of its class. {advice}"


def _tell_classes(kind: str, names: Sequence[str], labels: Sequence[int]) -> None:
    if len(names) > 2 and max(map(labels.count, set(labels))) == 1:
        _LOG.warning(
            "%s: no sub-folder holds more than one file. If each of the %d sub-folders is a patient and not a class, "
            "write %s with the columns file and label",
            *(kind, len(names), LABELS_FILE),
        )
    numbers = list(map(str, range(len(names))))
    if names != numbers and all(map(_WHOLE.fullmatch, names)):
        _LOG.warning(
            "%s: the sub-folders are numbers, but not 0 to %d: labels are their places in numeric order. An empty "
            "sub-folder stands for a class of which there is no file",
            *(kind, len(names) - 1),
        )
    if len(names) <= _MAX_NAMED_CLASSES:
        listing = ", ".join(f"{label} = {name}" for label, name in enumerate(names))
        _LOG.info("%s: labels are the sub-folders in their order: %s. All hospitals need the same", kind, listing)
    else:
        _LOG.info("%s: labels 0 to %d are the sub-folders in their order", kind, len(names) - 1)


def require_read(folder: Path, kind: str, is_record: Callable[[Path], bool]) -> None:
    """Log how many files are left out. Raises DataError: images of other kinds or linked folders are among them."""
    paths = visible_paths(folder, below=True)
    other_paths = [path for path in paths if not is_record(path)]
    _refuse_links(folder, kind, paths, other_paths)
    files = [path for path in other_paths if path.is_file() and path.name not in (LABELS_FILE, "patients.csv")]
    images = [path.suffix.lower() for path in files if path.suffix.lower() in _OTHER_IMAGES]
    if images:
        raise DataError(
            f"{kind}: {len(images)} files ({', '.join(sorted(set(images)))}) are images of a kind that is not read. "
            "Convert or remove them"
        )
    if files:
        _LOG.warning("%s: %d files in the folder have other endings and are left out", kind, len(files))


def _refuse_links(folder: Path, kind: str, paths: Sequence[Path], other_paths: Sequence[Path]) -> None:
    # A search below a folder does not follow links to folders.
    linked = sum(path.is_symlink() and path.is_dir() and path.parent != folder for path in other_paths)
    if linked:
        raise DataError(f"{kind}: {linked} links to folders are not followed. Put the folders themselves there")
    nowhere = sum(not path.exists() for path in paths)
    if nowhere:
        raise DataError(f"{kind}: {nowhere} links lead to no file. Put the files there, or remove the links")


def _listed(
    folder: Path, kind: str, is_record: Callable[[Path], bool], patient_of: Callable[[Path], str] | None
) -> Labelled:
    table = read_csv(folder / LABELS_FILE)
    by, targets = _columns(table, _NAMING if patient_of is not None else _NAMING[:1])
    labels = np.stack([_labels(table, name) for name in targets], axis=1)
    row_of = _row_by_key(table, by)
    files = sorted(
        path.relative_to(folder).as_posix() for path in _records(visible_paths(folder, below=True), is_record)
    )
    rows = _rows(kind, _keys(folder, files, None if by == "file" else patient_of), row_of)
    listed = table.columns.get("patient") if by == "file" else None
    patients = None if listed is None else tuple(map(listed.tolist().__getitem__, rows))
    return Labelled(tuple(files), labels[rows, 0] if len(targets) == 1 else labels[rows], patients, tuple(targets))


def _columns(table: Table, namings: Sequence[str]) -> tuple[str, list[str]]:
    by = next((name for name in namings if name in table.columns), None)
    targets = [name for name in table.columns if name not in _NAMING]
    if by is None or not targets:
        raise DataError(
            f"{LABELS_FILE}: the columns file and label are expected, or patient and label in DICOM folders"
        )
    return by, targets


def _row_by_key(table: Table, by: str) -> dict[str, int]:
    listed = table.columns[by].tolist()
    keys = identifiers(listed, len(listed)) if by == "patient" else listed
    row_of = dict(zip(keys, range(len(table)), strict=True))
    if len(row_of) < len(table):
        raise DataError(f"{LABELS_FILE}: {len(table) - len(row_of)} of {len(table)} rows name a {by} again")
    return row_of


def _keys(folder: Path, files: Sequence[str], patient_of: Callable[[Path], str] | None) -> list[str]:
    if patient_of is None:
        # Lists and folders may encode one letter in two ways.
        return list(map(cleaned, files))
    return [identity_or_blank(patient_of(folder / path)) for path in files]


def _rows(kind: str, keys: Sequence[str], row_of: Mapping[str, int]) -> list[int]:
    rows = [row_of.get(key, -1) for key in keys]
    unlabelled, absent = rows.count(-1), len(set(row_of.values()) - set(rows))
    if not keys or unlabelled or absent:
        raise DataError(
            f"{LABELS_FILE}: {unlabelled} of {len(keys)} {kind} files have no label, and {absent} of {len(row_of)} "
            "rows no file. List every file once, with its path below the folder"
        )
    return rows


def _labels(table: Table, name: str) -> Array:
    try:
        return table.numbers(name)
    except DataError as error:
        raise DataError(f"{LABELS_FILE}: {error}. Numbers are expected, such as 0 and 1") from error
