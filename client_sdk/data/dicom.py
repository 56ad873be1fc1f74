"""Folders of DICOM images: headers are read now, pixels when they are needed. Needs the package pydicom.

Pixels are the scanner's own numbers, such as Hounsfield units: the file's slope and intercept, or its table, are
applied (DICOM PS3.3, C.11.1), and nothing of its window. Where white stands for small values (MONOCHROME1) they are
turned round. What range a study looks at is the task's public `low` and `high`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.data.images import patients_listed
from client_sdk.data.labelled import labelled
from client_sdk.data.lazy import LazyExamples
from client_sdk.data.paths import seen
from client_sdk.data.records import Array, DataError

SUFFIXES = (".dcm", ".dicom", ".ima")
_TAGS = ("Rows", "Columns", "SamplesPerPixel", "NumberOfFrames", "PatientID", "PhotometricInterpretation")


def holds_dicom(folder: Path) -> bool:
    """Is there a file of such a name in the folder or below it?"""
    return any(path.suffix.lower() in SUFFIXES for path in seen(folder, below=True))


def list_dicom(folder: Path) -> LazyExamples:
    """Examples (n, rows, columns) of a folder of single grey images, by sub-folders for classes or by labels.csv.

    Files end in .dcm, .dicom or .ima. Patients are those of the headers (PatientID), which stay in the hospital, unless
    labels.csv has a column `patient` beside `file`, or patients.csv names them.

    Raises:
        DataError: no labels, files that are none, colours, several frames, several sizes, a header without its
            patient, a compression that needs a further package. Files are counted and never named.
    """
    found = labelled(
        folder, "DICOM", lambda path: path.suffix.lower() in SUFFIXES, lambda path: _patient(_header(path))
    )
    headers = [_header(folder / path) for path in found.files]
    _require_form(headers)
    shape = (int(headers[0].Rows), int(headers[0].Columns))
    patients = found.patients or patients_listed(folder, found.files) or [_patient(header) for header in headers]
    nobody = patients.count("")
    if nobody:
        raise DataError(f"DICOM: {nobody} of {len(patients)} headers name no patient (PatientID)")
    return LazyExamples.of(_DicomFiles(folder, found.files, shape), found.labels, patients)


@dataclass(frozen=True)
class _DicomFiles:
    """A reader; files: below the folder."""

    folder: Path
    files: tuple[str, ...] = field(repr=False)
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: Array) -> Array:
        wanted: list[int] = rows.tolist()
        found = np.empty((len(wanted), *self.shape), np.float32)
        broken = 0
        for place, row in enumerate(wanted):
            image = _pixels(self.folder / self.files[row])
            if image is None or image.shape != self.shape:
                broken += 1
            else:
                found[place] = image
        if broken:
            raise _unreadable(broken, len(wanted))
        return found


def _pydicom() -> Any:
    try:
        found = import_module("pydicom")
    except ImportError as error:
        raise DataError("DICOM files need the package pydicom: pip install 'wardround[imaging]'") from error
    # Its warnings and its log quote what stands in a header.
    warnings.filterwarnings("ignore", module=r"pydicom\.")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)
    return found


def _header(path: Path) -> Any:
    """Without pixels; None: it is none."""
    pydicom = _pydicom()
    # Whatever a broken file makes the library raise: its words may quote the header.
    with suppress(Exception):
        return pydicom.dcmread(path, stop_before_pixels=True, specific_tags=list(_TAGS))
    return None


def _patient(header: Any) -> str:
    return "" if header is None else str(getattr(header, "PatientID", "") or "").strip()


def _require_form(headers: Sequence[Any]) -> None:
    """Raises DataError: not all are single grey images of one size that can be decoded here."""
    count = len(headers)
    broken = sum(header is None or not hasattr(header, "Rows") or not hasattr(header, "Columns") for header in headers)
    if broken:
        raise _unreadable(broken, count)
    coloured = sum(int(getattr(header, "SamplesPerPixel", 1)) != 1 for header in headers)
    frames = sum(int(getattr(header, "NumberOfFrames", None) or 1) != 1 for header in headers)
    if coloured or frames:
        raise DataError(
            f"DICOM: of {count} files {coloured} are coloured and {frames} have several frames: one grey image a file "
            "is read; write frames or volumes as files of their own, or as NIfTI"
        )
    if len({(header.Rows, header.Columns) for header in headers}) > 1:
        raise DataError("DICOM: bring the images to one number of rows and columns first")
    closed = sorted({str(header.file_meta.TransferSyntaxUID.name) for header in headers if not _decodable(header)})
    if closed:
        raise DataError(
            f"DICOM: {', '.join(closed)} cannot be decoded here: install a decoder (pip install "
            "'pylibjpeg[all]'), or write the files again without compression"
        )


def _decodable(header: Any) -> bool:
    syntax = getattr(header.file_meta, "TransferSyntaxUID", None)
    if syntax is None or not syntax.is_encapsulated:
        return True
    pixels = _pydicom().pixels
    with suppress(Exception):
        return bool(pixels.get_decoder(syntax).is_available)
    return False


def _pixels(path: Path) -> Array | None:
    """(rows, columns) float32; None: they cannot be read."""
    pydicom = _pydicom()
    with suppress(Exception):
        image = pydicom.dcmread(path)
        stored = image.pixel_array
        scaled = np.asarray(pydicom.pixels.apply_modality_lut(stored, image), np.float64)
        if getattr(image, "PhotometricInterpretation", "") == "MONOCHROME1":
            signed, bits = bool(image.PixelRepresentation), int(image.BitsStored)
            ends = np.array([[-(1 << bits - 1), (1 << bits - 1) - 1] if signed else [0, (1 << bits) - 1]])
            # By the smallest and the largest number that the file could hold, not by those that it does.
            low, high = np.asarray(pydicom.pixels.apply_modality_lut(ends.astype(stored.dtype), image), np.float64)[0]
            scaled = low + high - scaled
        return scaled.astype(np.float32)
    return None


def _unreadable(some: int, count: int) -> DataError:
    return DataError(f"DICOM: {some} of {count} files cannot be read as images of the size of the others")
