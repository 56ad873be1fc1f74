"""Images in folders, with a sub-folder for each class. Headers are read at once, images on demand."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import numpy as np

from private_learning.records.labelled import labelled, refuse_flaws
from private_learning.records.lazy import LazyExamples, stored_bytes
from private_learning.records.pictures import EIGHT_BITS, SUFFIXES, Flaw, Header, header, read_picture
from private_learning.records.records import Array, DataError, Examples
from private_learning.records.table_files import read_csv
from study_protocol.cells import cleaned

PATIENTS_FILE = "patients.csv"
_LOG = logging.getLogger(__name__)
_SIZES = "images: bring them to one width and height first"
_DEPTHS = {EIGHT_BITS: "8 bits", "<u2": "16 bits", "<i4": "32 bits", "<f4": "floating point"}


@dataclass(frozen=True)
class Form:
    """The form of each image of a data set. shape: (height, width) if all are grey, else (3, height, width)."""

    shape: tuple[int, ...]
    dtype: str


def read_images(folder: Path, *, classes: Sequence[str] | None = None) -> Examples:
    """Return examples as `list_images`, all in memory. Raises as `list_images`."""
    return list_images(folder, classes=classes).in_memory()


def list_images(folder: Path, *, classes: Sequence[str] | None = None) -> LazyExamples:
    """Return examples from <folder>/<class>/<image>, or from images listed in `labels.csv`. Needs the package pillow.

    Only headers are read now, and the images on demand. Images in folders below those of the classes are read, too.

    classes: names of the sub-folders. Label k is the k-th. None: all of them, in numeric order if every name is a whole
    number, otherwise in the order of the names. Then every hospital of a study needs the same sub-folders, with an
    empty one for a class without images.

    Grey images become (n, height, width). If some are coloured, all become (n, 3, height, width), and grey ones have
    three equal colours. Every image is one patient unless `labels.csv` has a column `patient`, or the folder holds
    `patients.csv` with the columns file (<class>/<image>) and patient. Error texts count files and never name them,
    because file names are often names of people.

    Raises:
        DataError: there is no such folder, it has no classes or images, or a file has no patient. Files are no images
            or hold several, differ in size or depth, or have pixels that would lose information.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder.name} in {folder.parent.absolute()}")
    records = labelled(folder, "images", lambda path: path.suffix.lower() in SUFFIXES, classes=classes)
    return listed(folder, records.files, records.labels, records.patients, records.columns)


def listed(
    folder: Path,
    files: Sequence[str],
    labels: Array,
    patients: Sequence[str] | None = None,
    label_columns: Sequence[str] = (),
) -> LazyExamples:
    """Return the examples of files below the folder, with their patients. Raises as `list_images`."""
    paths = tuple(files)
    patients = patients or patients_listed(folder, paths)
    form = form_of((header(folder / path, _suffix(path)) for path in paths), len(paths))
    return LazyExamples.of(_ImageFiles(folder, paths, form), labels, patients, label_columns=label_columns)


@dataclass(frozen=True)
class _ImageFiles:
    """A reader of the images. paths: below the folder."""

    folder: Path
    paths: tuple[str, ...] = field(repr=False)
    form: Form

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: Array) -> Array:
        numbers: list[int] = rows.tolist()
        paths = [self.paths[row] for row in numbers]
        return decoded([(self.folder / path, _suffix(path)) for path in paths], self.form)

    def stored(self, row: int) -> bytes:
        return stored_bytes(self.folder / self.paths[row])


def form_of(headers: Iterable[Header | Flaw], count: int) -> Form:
    """Return the form that `count` images share.

    Raises:
        DataError: files cannot be read, or differ in size or depth.
    """
    descriptions = list(headers)
    refuse_flaws("images", descriptions, Flaw)
    pictures = cast("list[Header]", descriptions)
    _require_one_depth(pictures, count)
    turned = sum(picture.turned for picture in pictures)
    upright = f"{turned} of {count} files state an orientation, and are read upright"
    if len({picture.size for picture in pictures}) > 1:
        raise DataError(f"{_SIZES} ({upright})" if turned else _SIZES)
    if turned:
        _LOG.info("images: %s", upright)
    thin = sum(picture.bits == 1 for picture in pictures)
    if thin:
        _LOG.info("images: %d of %d files have 1 bit a pixel, which is read as 0 and 255", thin, count)
    width, height = pictures[0].size
    coloured = any(picture.coloured for picture in pictures)
    return Form((3, height, width) if coloured else (height, width), pictures[0].dtype)


def _require_one_depth(pictures: Sequence[Header], count: int) -> None:
    depths = Counter(picture.dtype for picture in pictures)
    if len(depths) > 1:
        counts = ", ".join(f"{_DEPTHS[dtype]}: {depths[dtype]}" for dtype in _DEPTHS if depths[dtype])
        raise DataError(
            f"images: some of {count} files have more than 8 bits a pixel and others do not, or in another form "
            f"({counts}). The same number would mean another brightness in each. Write all with one depth"
        )


def decoded(files: Sequence[tuple[Path | IO[bytes], str]], form: Form) -> Array:
    """Return the images of k files, (k, ...). Each file comes with its ending.

    Raises:
        DataError: some cannot be read, or differ from their headers.
    """
    images = np.empty((len(files), *form.shape), form.dtype)
    broken = 0
    for place, (file, suffix) in enumerate(files):
        image = read_picture(file, suffix, len(form.shape) == 3, form.dtype)
        if image is None:
            broken += 1
        elif image.shape != form.shape:
            raise DataError(f"{_SIZES}. Some differ from their headers, or have changed since they were listed")
        else:
            images[place] = image
    if broken:
        raise DataError(
            f"images: {broken} of {len(files)} files {Flaw.UNREADABLE.value}, or have changed since the start"
        )
    return images


def _suffix(path: str) -> str:
    return Path(path).suffix.lower()


def patients_listed(folder: Path, files: Sequence[str]) -> list[str] | None:
    listed = folder / PATIENTS_FILE
    if not listed.exists():
        return None
    columns = read_csv(listed).columns
    if not {"file", "patient"} <= set(columns):
        raise DataError(f"{PATIENTS_FILE}: the columns file and patient are expected")
    patient_of = dict(zip(columns["file"].tolist(), columns["patient"].tolist(), strict=True))
    repeated = len(columns["file"]) - len(patient_of)
    if repeated:
        raise DataError(f"{PATIENTS_FILE}: {repeated} of {len(columns['file'])} rows name a file again: list each once")
    # Lists and folders may encode one letter in two ways.
    files = [cleaned(file) for file in files]
    unknown = sum(file not in patient_of for file in files)
    if unknown:
        raise DataError(f"{PATIENTS_FILE}: {unknown} of {len(files)} images are not listed")
    return [patient_of[file] for file in files]
