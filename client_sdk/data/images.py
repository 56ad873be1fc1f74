"""Images in folders, a sub-folder for each class: listed by their headers, and read when they are needed or at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from client_sdk.data.lazy import LazyExamples
from client_sdk.data.paths import seen
from client_sdk.data.records import Array, DataError, Examples
from client_sdk.data.table_files import read_csv
from client_sdk.protocol.cells import cleaned

PATIENTS_FILE = "patients.csv"
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
# How Pillow keeps images of one channel, and the numbers that they are. Not converted: grey of 16 bits would lose its
# depth.
_ONE_CHANNEL = {"1": "?", "L": "u1", "F": "f4", "I": "i4", "I;16": "u2", "I;16B": "u2", "I;16L": "u2"}
# Converted to colours, they would be cut off at 255.
_DEEP = set(_ONE_CHANNEL) - {"1", "L"}
_SIZES = "images: bring them to one width and height first"


@dataclass(frozen=True)
class Header:
    """What a file says of its image. size: (width, height). pages: how many images it holds."""

    mode: str
    size: tuple[int, int]
    pages: int


@dataclass(frozen=True)
class Form:
    """What each image of a data set becomes. shape: (height, width) of grey ones, (3, height, width) of others."""

    shape: tuple[int, ...]
    dtype: str


def read_images(folder: Path, *, classes: Sequence[str] | None = None) -> Examples:
    """As `list_images`, all in memory. Raises as `list_images`."""
    return list_images(folder, classes=classes).in_memory()


def list_images(folder: Path, *, classes: Sequence[str] | None = None) -> LazyExamples:
    """Examples from <folder>/<class>/<image>; label k is the k-th class. Needs the package pillow.

    Their headers alone are read now, the images when they are needed.

    classes: names of the sub-folders; left out, all of them in the order of their names. Then every hospital of a study
    needs the same sub-folders, an empty one where it has no image of a class: the labels are their places.

    Grey images become (n, height, width), others (n, 3, height, width). Every image is a patient of its own unless the
    folder holds `patients.csv` with the columns file (<class>/<image>) and patient. Error texts count files, they never
    name them: names of files are often names of people.

    Raises:
        DataError: no classes or images, files that are no images or hold several, several sizes, a file without its
            patient, no such folder.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder.name} in {folder.parent.absolute()}")
    own = [path.name for path in seen(folder) if path.is_dir()]
    names = own if classes is None else list(classes)
    lacking = sorted(set(names) - set(own))
    if lacking or len(names) < 2:
        missing = f"; missing: {lacking}" if lacking else f"; there are {len(names)}"
        raise DataError(f"images: one sub-folder for each of at least two classes is expected{missing}")
    files = [
        (label, f"{name}/{path.name}")
        for label, name in enumerate(names)
        for path in seen(folder / name)
        if path.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise DataError(f"images: no file ends in {sorted(SUFFIXES)}")
    return listed(folder, [path for _, path in files], [label for label, _ in files])


def listed(folder: Path, files: Sequence[str], labels: Any) -> LazyExamples:
    """Examples of files below the folder, with their patients. Raises as `list_images`."""
    paths = tuple(files)
    patients = patients_listed(folder, paths)
    form = form_of((header(folder / path) for path in paths), len(paths))
    return LazyExamples.of(_ImageFiles(folder, paths, form), labels, patients)


@dataclass(frozen=True)
class _ImageFiles:
    """A reader; paths: below the folder."""

    folder: Path
    paths: tuple[str, ...] = field(repr=False)
    form: Form

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: Array) -> Array:
        wanted: list[int] = rows.tolist()
        return decoded([self.folder / self.paths[row] for row in wanted], self.form)


def header(file: Path | IO[bytes]) -> Header | None:
    """Of an image, whose pixels are not read; None: it is none."""
    try:
        with _pillow().open(file) as image:
            return Header(image.mode, image.size, _pages(image))
    except _unreadable():
        return None


def form_of(headers: Iterable[Header | None], count: int) -> Form:
    """The one form of `count` images.

    Raises:
        DataError: files that are no images or hold several, or several sizes.
    """
    found = [one for one in headers if one is not None]
    if len(found) < count:
        raise _broken(count - len(found), count)
    several = sum(one.pages > 1 for one in found)
    if several:
        raise DataError(
            f"images: {several} of {count} files hold several images (pages of a TIFF, frames of an animation), of "
            "which all but the first would be left out; write each as a file of its own"
        )
    modes, sizes = {one.mode for one in found}, {one.size for one in found}
    if len(sizes) > 1:
        raise DataError(_SIZES)
    ((width, height),) = sizes
    if modes <= set(_ONE_CHANNEL):
        return Form((height, width), np.result_type(*(np.dtype(_ONE_CHANNEL[mode]) for mode in modes)).str)
    deep = sum(one.mode in _DEEP for one in found)
    if deep:
        raise DataError(
            f"images: {deep} of {count} are grey with more than 8 bits, and others are coloured: beside those they "
            "would lose their depth; keep one kind"
        )
    return Form((3, height, width), "|u1")


def decoded(files: Sequence[Path | IO[bytes]], form: Form) -> Array:
    """(k, ...) the images of k files.

    Raises:
        DataError: some cannot be read, or are not what their headers said before.
    """
    found = np.empty((len(files), *form.shape), form.dtype)
    broken = 0
    for place, file in enumerate(files):
        image = _decoded(file, form)
        if image is None:
            broken += 1
        elif image.shape != form.shape:
            raise DataError(f"{_SIZES}; some have changed since they were listed")
        else:
            found[place] = image
    if broken:
        raise _broken(broken, len(files))
    return found


def _decoded(file: Path | IO[bytes], form: Form) -> Array | None:
    try:
        with _pillow().open(file) as image:
            if len(form.shape) == 2 and image.mode in _ONE_CHANNEL:
                return np.asarray(image)
            return np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)
    except _unreadable():
        return None


def class_number_image(file: Path) -> Array | None:
    """(height, width) the numbers of one image of one channel, or of its palette's places; None: it is none."""
    try:
        with _pillow().open(file) as image:
            return np.asarray(image) if image.mode in {*_ONE_CHANNEL, "P"} and _pages(image) == 1 else None
    except _unreadable():
        return None


def _pages(image: Any) -> int:
    # Further images of an MPO, a JPEG of a camera, are smaller or other views of the same picture.
    return 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))


def _broken(some: int, count: int) -> DataError:
    return DataError(f"images: {some} of {count} files cannot be read as images")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("images need the package pillow: pip install 'wardround[images]'") from error
    return Image


def _unreadable() -> tuple[type[Exception], ...]:
    """What Pillow raises for a file that is no image; SyntaxError for a broken PNG."""
    return OSError, ValueError, SyntaxError, _pillow().DecompressionBombError


def patients_listed(folder: Path, files: Sequence[str]) -> list[str] | None:
    listed = folder / PATIENTS_FILE
    if not listed.exists():
        return None
    columns = read_csv(listed).columns
    if not {"file", "patient"} <= set(columns):
        raise DataError(f"{PATIENTS_FILE}: the columns file and patient are expected")
    whose = dict(zip(columns["file"].tolist(), columns["patient"].tolist(), strict=True))
    again = len(columns["file"]) - len(whose)
    if again:
        raise DataError(f"{PATIENTS_FILE}: {again} of {len(columns['file'])} rows name a file again: list each once")
    # Lists and folders may write one letter in two ways.
    files = [cleaned(file) for file in files]
    unknown = sum(file not in whose for file in files)
    if unknown:
        raise DataError(f"{PATIENTS_FILE}: {unknown} of {len(files)} images are not listed")
    return [whose[file] for file in files]
