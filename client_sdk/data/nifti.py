"""Folders of NIfTI volumes: headers are read now, voxels when they are needed. Needs the package nibabel."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.data.images import patients_listed
from client_sdk.data.labelled import labelled
from client_sdk.data.lazy import LazyExamples
from client_sdk.data.paths import seen
from client_sdk.data.records import Array, DataError

SUFFIXES = (".nii", ".nii.gz")
Shape = tuple[int, int, int]


def _wanted(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def holds_nifti(folder: Path) -> bool:
    """Is there a file of such a name in the folder or below it?"""
    return any(_wanted(path) for path in seen(folder, below=True))


def list_nifti(folder: Path, *, slices: Sequence[int] | None = None) -> LazyExamples:
    """Examples (n, slices, height, width) of a folder of volumes, by sub-folders for classes or by labels.csv.

    Volumes are turned to the axes of a patient, whatever the axes of their files: slices from below to above, rows from
    front to back, columns from left to right (RAS by the affine). To tasks on images slices are channels. A volume of
    one slice is a grey image, (n, height, width).

    slices  which of the axial slices are read, from 0; public. Left out: all of them

    Every volume is a patient of its own unless labels.csv has a column `patient`, or patients.csv names them.

    Raises:
        DataError: no labels, files that are none, several shapes or more than three axes, a slice that is not there.
    """
    found = labelled(folder, "NIfTI", _wanted)
    shapes = [_shape(folder / path) for path in found.files]
    broken = shapes.count(None)
    if broken:
        raise _unreadable(broken, len(shapes))
    if len(set(shapes)) > 1:
        raise DataError("NIfTI: bring the volumes to one shape first (three axes, one time point)")
    (shape,) = {shape for shape in shapes if shape is not None}
    chosen = tuple(range(shape[0])) if slices is None else tuple(slices)
    if not chosen or min(chosen) < 0 or max(chosen) >= shape[0]:
        raise DataError(f"NIfTI: slices must be some of 0 to {shape[0] - 1}")
    patients = found.patients or patients_listed(folder, found.files)
    return LazyExamples.of(_Volumes(folder, found.files, shape, chosen), found.labels, patients)


@dataclass(frozen=True)
class _Volumes:
    """A reader; files: below the folder. shape: (slices, height, width) of each file."""

    folder: Path
    files: tuple[str, ...] = field(repr=False)
    shape: Shape
    slices: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: Array) -> Array:
        wanted: list[int] = rows.tolist()
        found = np.empty((len(wanted), len(self.slices), *self.shape[1:]), np.float32)
        broken = 0
        for place, row in enumerate(wanted):
            volume = _voxels(self.folder / self.files[row])
            if volume is None or volume.shape != self.shape:
                broken += 1
            else:
                found[place] = volume[list(self.slices)]
        if broken:
            raise _unreadable(broken, len(wanted))
        return found[:, 0] if len(self.slices) == 1 else found


def _nibabel() -> Any:
    try:
        import nibabel
    except ImportError as error:
        raise DataError("NIfTI files need the package nibabel: pip install 'wardround[imaging]'") from error
    return nibabel


def _opened(path: Path) -> Any:
    """None: it is no volume of three axes."""
    nibabel = _nibabel()
    # Whatever a broken file makes the library raise: its words may name the file.
    with suppress(Exception):
        image = nibabel.load(path)
        if len(image.shape) >= 3 and all(size == 1 for size in image.shape[3:]):
            return image
    return None


def _turned(image: Any) -> Array:
    """(3,) for the axes of the file, which axis of the patient each is; and (3,) its direction."""
    return np.asarray(_nibabel().io_orientation(image.affine))


def _shape(path: Path) -> Shape | None:
    image = _opened(path)
    if image is None or not np.isfinite(_turned(image)).all():
        return None
    sizes = [0, 0, 0]
    for size, axis in zip(image.shape[:3], _turned(image)[:, 0], strict=True):
        sizes[int(axis)] = int(size)
    across, deep, high = sizes
    return high, deep, across


def _voxels(path: Path) -> Array | None:
    """(slices, height, width) float32; None: they cannot be read."""
    image = _opened(path)
    if image is None:
        return None
    orientations = _nibabel().orientations
    with suppress(Exception):
        values = np.asarray(image.dataobj, np.float32).reshape(image.shape[:3])
        turned: Array = np.asarray(orientations.apply_orientation(values, _turned(image)))
        # From back to front becomes from front to back.
        return np.ascontiguousarray(turned.transpose(2, 1, 0)[:, ::-1])
    return None


def _unreadable(some: int, count: int) -> DataError:
    return DataError(f"NIfTI: {some} of {count} files cannot be read as volumes of three axes")
