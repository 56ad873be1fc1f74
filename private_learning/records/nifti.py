"""Folders of NIfTI volumes: headers are read at once, voxels on demand. Needs the package nibabel."""

from __future__ import annotations

import gzip
import logging
import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.records.images import patients_listed
from private_learning.records.labelled import FileReader, labelled, refuse_flaws
from private_learning.records.lazy import LazyExamples
from private_learning.records.records import Array, DataError
from study_protocol.cells.unpacking import MAX_RATIO, MAX_UNPACKED

SUFFIXES = (".nii", ".nii.gz")
Shape = tuple[int, int, int]
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Volume:
    """The description in a header. shape: (slices, height, width). oriented: it states where left and right are."""

    shape: Shape
    oriented: bool


class _NiftiFlaw(Enum):
    """Why a file is refused, as the end of a sentence that counts such files."""

    UNREADABLE = "cannot be read as volumes of three axes"
    COMPLEX = "hold complex numbers, of which the imaginary part would be lost. Write magnitude or phase by itself"
    COLOURED = "hold colours. Write each as a separate volume"
    TIME_POINTS = (
        "cannot be read as volumes of three axes, because they have several time points or channels. Write each as a "
        "separate volume"
    )
    TOO_LARGE = "would take more than 1 GiB and more than 200 times their packed size. Unpack them if that is right"


def _is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def list_nifti(folder: Path, *, slices: Sequence[int] | None = None) -> LazyExamples:
    """Return examples (n, slices, height, width) of a folder of volumes, by sub-folders for classes or by labels.csv.

    Volumes are turned to the axes of a patient: slices from below to above, rows from front to back, columns from left
    to right (RAS by the affine). For image tasks, slices are channels. A volume of one slice is a grey image,
    (n, height, width).

    slices  public numbers of the axial slices to read, from 0. None: all of them

    Every volume is one patient unless labels.csv has a column `patient`, or patients.csv names them.

    Raises:
        DataError: labels are missing, files are no NIfTI, have complex numbers or colours, differ in shape or have more
            than three axes, or a slice does not exist.
    """
    records = labelled(folder, "NIfTI", _is_nifti)
    volumes = _require_form([_described(folder / path) for path in records.files])
    shape = volumes[0].shape
    loose = sum(not volume.oriented for volume in volumes)
    if loose:
        _LOG.warning(
            "NIfTI: %d of %d files do not say where left and right are (sform and qform codes are 0): they are read as "
            "nibabel assumes, with columns from right to left in the file",
            *(loose, len(volumes)),
        )
    slice_numbers = tuple(range(shape[0])) if slices is None else tuple(slices)
    if not slice_numbers or min(slice_numbers) < 0 or max(slice_numbers) >= shape[0]:
        raise DataError(f"NIfTI: slices must be some of 0 to {shape[0] - 1}")
    patients = records.patients or patients_listed(folder, records.files)
    # A volume of one slice is a grey image.
    sides = shape[1:] if len(slice_numbers) == 1 else (len(slice_numbers), *shape[1:])
    decode = partial(_slices, shape, slice_numbers)
    reader = FileReader(folder, records.files, "NIfTI", _NiftiFlaw.UNREADABLE.value, sides, decode)
    return LazyExamples.of(reader, records.labels, patients, label_columns=records.columns)


def _nibabel() -> Any:
    try:
        import nibabel
    except ImportError as error:
        raise DataError("NIfTI files need the package nibabel: pip install 'wardround[imaging]'") from error
    # A faulty header raises an error or is read. Warnings may name the file.
    warnings.filterwarnings("ignore", module=r"nibabel\.")
    logging.getLogger("nibabel").setLevel(logging.CRITICAL)
    return nibabel


def _opened(path: Path) -> Any:
    """Return the opened image, or None if it is no NIfTI file of one part."""
    # The library may raise any error for a broken file, and its text may name the file.
    with suppress(Exception):
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            length = int.from_bytes(file.read(4), "little")
        kind = _kinds().get(length) or _kinds().get(int.from_bytes(length.to_bytes(4, "little"), "big"))
        return None if kind is None else kind.from_filename(path)
    return None


@cache
def _kinds() -> dict[int, Any]:
    """Return the reader of each length of the header.

    No other reader of the library sees the file. Extensions of the header are not read, because they can unpack to any
    size and are parsed as DICOM or XML.
    """
    nibabel = _nibabel()

    class NoExtensions(nibabel.nifti1.Nifti1Extensions):
        @classmethod
        def from_fileobj(cls, fileobj: Any, size: int, byteswap: bool) -> Any:
            return cls()

    def without(image: Any) -> Any:
        header = type("Header", (image.header_class,), {"exts_klass": NoExtensions})
        return type("Image", (image,), {"header_class": header})

    return {348: without(nibabel.Nifti1Image), 540: without(nibabel.Nifti2Image)}


def _described(path: Path) -> _Volume | _NiftiFlaw:
    image = _opened(path)
    with suppress(Exception):
        return _NiftiFlaw.UNREADABLE if image is None else _flaw(image, path) or _volume(image)
    return _NiftiFlaw.UNREADABLE


def _flaw(image: Any, path: Path) -> _NiftiFlaw | None:
    dtype = np.dtype(image.get_data_dtype())
    if dtype.kind == "c":
        return _NiftiFlaw.COMPLEX
    if dtype.names is not None:
        return _NiftiFlaw.COLOURED
    if set(image.shape[3:]) - {1}:
        return _NiftiFlaw.TIME_POINTS
    # Computations use 64 bits.
    unpacked = math.prod(image.shape) * max(8, dtype.itemsize)
    if unpacked > MAX_UNPACKED and unpacked > MAX_RATIO * path.stat().st_size:
        return _NiftiFlaw.TOO_LARGE
    fits = dtype.kind in "uif" and len(image.shape) >= 3 and min(image.shape) > 0
    fits &= _holds_voxels(image, path, dtype)
    return None if fits and np.isfinite(_turned(image)).all() else _NiftiFlaw.UNREADABLE


def _holds_voxels(image: Any, path: Path, dtype: np.dtype[Any]) -> bool:
    # The header of a pair of files says that its voxels begin at 0, which is their offset in the other file.
    offset = image.dataobj.offset
    is_whole = path.suffix.lower() != ".nii" or path.stat().st_size >= offset + math.prod(image.shape) * dtype.itemsize
    return is_whole and offset >= image.header.single_vox_offset


def _require_form(descriptions: Sequence[_Volume | _NiftiFlaw]) -> list[_Volume]:
    """Require volumes of one shape that can be read. Raises DataError: some are not."""
    refuse_flaws("NIfTI", descriptions, _NiftiFlaw)
    volumes = [description for description in descriptions if isinstance(description, _Volume)]
    if len({volume.shape for volume in volumes}) > 1:
        raise DataError("NIfTI: bring the volumes to one shape first (three axes, one time point)")
    return volumes


def _turned(image: Any) -> Array:
    """Return (3, 2): for each axis of the file, the axis of the patient, and its direction."""
    return np.asarray(_nibabel().io_orientation(image.affine))


def _volume(image: Any) -> _Volume:
    sizes = [0, 0, 0]
    for size, axis in zip(image.shape[:3], _turned(image)[:, 0], strict=True):
        sizes[int(axis)] = int(size)
    across, deep, high = sizes
    oriented = int(image.header["sform_code"]) > 0 or int(image.header["qform_code"]) > 0
    return _Volume((high, deep, across), oriented)


def _slices(shape: Shape, numbers: tuple[int, ...], path: Path) -> Array | None:
    """Return these slices of a volume of this shape, or None if it cannot be read so. One slice has two axes."""
    volume = _voxels(path)
    if volume is None or volume.shape != shape:
        return None
    return volume[numbers[0] if len(numbers) == 1 else list(numbers)]


def _voxels(path: Path) -> Array | None:
    """Return the voxels, (slices, height, width) float32, or None if they cannot be read."""
    image = _opened(path)
    orientations = _nibabel().orientations
    with suppress(Exception):
        if image is None or _flaw(image, path) is not None:
            return None
        # Slope and intercept are applied in 64 bits for every file type, and the result is rounded once.
        values = np.asarray(image.dataobj, np.float32).reshape(image.shape[:3])
        turned: Array = np.asarray(orientations.apply_orientation(values, _turned(image)))
        # From back to front becomes from front to back.
        return np.ascontiguousarray(turned.transpose(2, 1, 0)[:, ::-1])
    return None
