"""Images in folders: one sub-folder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.data.records import Array, DataError, Examples
from client_sdk.data.tables import read_csv

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
_ONE_CHANNEL = {"1", "L", "F", "I", "I;16", "I;16B", "I;16L"}
PATIENTS_FILE = "patients.csv"


def read_images(folder: Path, *, classes: Sequence[str] | None = None) -> Examples:
    """Examples from <folder>/<class>/<image>; label k is the k-th class. Needs the package pillow.

    classes: names of the sub-folders; left out, all of them in the order of their names. Then every hospital of a study
    needs the same sub-folders, an empty one where it has no image of a class: the labels are their places.

    Grey images become (n, height, width), others (n, 3, height, width). Every image is a patient of its own unless the
    folder holds `patients.csv` with the columns file (<class>/<image>) and patient. Error texts count files, they never
    name them: names of files are often names of people.

    Raises:
        DataError: no classes or images, files that are no images, several sizes, a file without its patient.
        FileNotFoundError: no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    own = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    names = own if classes is None else list(classes)
    lacking = sorted(set(names) - set(own))
    if lacking or len(names) < 2:
        missing = f"; missing: {lacking}" if lacking else f"; there are {len(names)}"
        raise DataError(f"images: one sub-folder for each of at least two classes is expected{missing}")
    files = [
        (label, path)
        for label, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in _SUFFIXES
    ]
    if not files:
        raise DataError(f"images: no file ends in {sorted(_SUFFIXES)}")
    patients = _patients(folder, [path.relative_to(folder).as_posix() for _, path in files])
    return Examples.of(_arrays([path for _, path in files]), [label for label, _ in files], patients)


def _arrays(paths: Sequence[Path]) -> Array:
    opened = [_opened(path) for path in paths]
    broken = sum(image is None for image in opened)
    if broken:
        raise DataError(f"images: {broken} of {len(paths)} files cannot be read as images")
    images = [image for image in opened if image is not None]
    if len({image.size for image in images}) > 1:
        raise DataError("images: bring them to one width and height first")
    if all(image.mode in _ONE_CHANNEL for image in images):
        return np.stack([np.asarray(image) for image in images])
    return np.stack([np.moveaxis(np.asarray(image.convert("RGB")), -1, 0) for image in images])


def _opened(path: Path) -> Any:
    """A loaded image, or None if it is none."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("image folders need the package pillow: pip install 'wardround[images]'") from error
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _patients(folder: Path, files: Sequence[str]) -> list[str] | None:
    listed = folder / PATIENTS_FILE
    if not listed.exists():
        return None
    columns = read_csv(listed).columns
    if not {"file", "patient"} <= set(columns):
        raise DataError(f"{PATIENTS_FILE}: the columns file and patient are expected")
    whose = dict(zip(columns["file"].tolist(), columns["patient"].tolist(), strict=True))
    unknown = sum(file not in whose for file in files)
    if unknown:
        raise DataError(f"{PATIENTS_FILE}: {unknown} of {len(files)} images are not listed")
    return [whose[file] for file in files]
