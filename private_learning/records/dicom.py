"""Folders of DICOM images: headers are read at once, pixels on demand. Needs the package pydicom.

Pixels are the scanner's own numbers, such as Hounsfield units. The file's slope and intercept, or its table, are
applied (DICOM PS3.3, C.11.1 and C.7.6.16.2.9), and its window is not. If white stands for small values (MONOCHROME1),
they are inverted. A file with further numbers that would have to be applied is refused. The range of a study is the
task's public `low` and `high`.
"""

from __future__ import annotations

import logging
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.records.images import patients_listed
from private_learning.records.labelled import LABELS_FILE, FileReader, labelled, refuse_flaws
from private_learning.records.lazy import LazyExamples
from private_learning.records.records import Array, DataError
from study_protocol.cells.unpacking import MAX_UNPACKED

SUFFIXES = (".dcm", ".dicom", ".ima")
# Files with these endings are never opened to test whether they are DICOM.
_KNOWN_ENDINGS = {
    *(".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".nii", ".gz", ".csv"),
    *(".tsv", ".tab", ".txt", ".data", ".parquet", ".arrow", ".feather", ".npz", ".npy", ".tar", ".json"),
    *(".xml", ".pdf", ".html", ".md", ".log", ".zip", ".ini", ".db", ".py", ".toml", ".yaml"),
    *(".yml",),
}
_TAGS = (
    *("Rows", "Columns", "SamplesPerPixel", "NumberOfFrames", "PatientID", "PhotometricInterpretation"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "RescaleSlope", "RescaleIntercept"),
    *("ModalityLUTSequence", "RealWorldValueMappingSequence", "DoseGridScaling", "PixelPresentation"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
)
_LOG = logging.getLogger(__name__)
_UNREADABLE = "cannot be read as images of the size of the others"
_GREY = ("MONOCHROME1", "MONOCHROME2")
_MAX_PIXELS = 1 << 28
# Bytes of a file before its data set: preamble, DICM, and the element with the length of its group.
_BEFORE_GROUP = 144


class _DicomFlaw(Enum):
    """Why a file is refused, as the end of a sentence that counts such files."""

    COLOURED = "coloured"
    FRAMES = "frames"
    SCALED_TWICE = (
        "state several slopes and intercepts, or a table beside them, which contradict one another. Write them again "
        "with one"
    )
    FURTHER_SCALING = (
        "hold a real world value mapping or a dose grid scaling, which is not applied and differs from slope and "
        "intercept. Write them again with slope and intercept alone"
    )
    SHIFTED = "hold pixels that do not begin at the lowest bit. Write them again without the shift"


@dataclass(frozen=True)
class _Description:
    """The parts of a header that matter here.

    scale: slope and intercept. None: a table takes their place. compression: the name of one without a decoder here.
    """

    shape: tuple[int, int]
    patient: str = field(repr=False)
    flaw: _DicomFlaw | None
    scale: tuple[float, float] | None
    compression: str | None


def is_dicom(path: Path) -> bool:
    """Return whether a file has an ending of DICOM, or no known ending and DICOM's first bytes (DICOM PS3.10, 7.1)."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES or suffix in _KNOWN_ENDINGS or path.name == "DICOMDIR":
        return suffix in SUFFIXES
    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    return False


def list_dicom(folder: Path) -> LazyExamples:
    """Return examples (n, rows, columns) of a folder of single grey images.

    Labels come from sub-folders for classes or from labels.csv.
    Files end in .dcm, .dicom or .ima, or have no known ending and begin as DICOM does. Patients are those of the
    headers (PatientID), which stay in the hospital, unless labels.csv has a column `patient` beside `file`, or
    patients.csv names them.

    Raises:
        DataError: labels are missing, files are no DICOM, have colours or a palette, several frames or several sizes,
            or numbers that would have to be applied. A header has no patient, folders stand for patients and not for
            classes, or a compression needs a further package. Files are counted and never named.
    """
    records = labelled(folder, "DICOM", is_dicom, lambda path: _patient(_description_of(path)))
    descriptions = _require_form([_description_of(folder / path) for path in records.files])
    headers = [description.patient for description in descriptions]
    _refuse_folders_of_patients(folder, records.files, headers)
    patients = records.patients or patients_listed(folder, records.files) or headers
    without_patient = patients.count("")
    if without_patient:
        raise DataError(f"DICOM: {without_patient} of {len(patients)} headers name no patient (PatientID)")
    reader = FileReader(folder, records.files, "DICOM", _UNREADABLE, descriptions[0].shape, _pixels)
    return LazyExamples.of(reader, records.labels, patients, label_columns=records.columns)


def _pydicom() -> Any:
    try:
        pydicom = import_module("pydicom")
    except ImportError as error:
        raise DataError("DICOM files need the package pydicom: pip install 'wardround[imaging]'") from error
    # Its warnings and its log quote the header.
    warnings.filterwarnings("ignore", module=r"pydicom\.")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)
    return pydicom


def _description_of(path: Path) -> _Description | None:
    """Return the description of a header, without reading pixels. None: the file is no DICOM, or is broken."""
    pydicom = _pydicom()
    # The library may raise any error for a broken file, and its text may quote the header.
    with suppress(Exception):
        if _inflates_safely(path):
            return _described(pydicom.dcmread(path, stop_before_pixels=True, specific_tags=list(_TAGS)))
    return None


def _inflates_safely(path: Path) -> bool:
    """Return whether a deflated file unpacks into a safe size. The library unpacks it as a whole before reading."""
    pydicom = _pydicom()
    meta = pydicom.filereader.read_file_meta_info(path)
    if meta.get("TransferSyntaxUID") != pydicom.uid.DeflatedExplicitVRLittleEndian:
        return True
    with path.open("rb") as file:
        file.seek(_BEFORE_GROUP + int(meta.FileMetaInformationGroupLength))
        packed, unpacked = file.read(), 0
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    while packed and unpacked <= MAX_UNPACKED:
        part = inflater.decompress(packed, 1 << 20)
        packed, unpacked = inflater.unconsumed_tail, unpacked + len(part)
    return unpacked <= MAX_UNPACKED


def _described(header: Any) -> _Description:
    """Return the description of a header. Raises any exception: the header is broken."""
    rows, columns = int(header.Rows), int(header.Columns)
    if not 0 < rows * columns <= _MAX_PIXELS:
        raise ValueError("no image")
    scales, mappings = _scales(header)
    table = bool(header.get("ModalityLUTSequence"))
    scale = None if table else next(iter(scales), (1.0, 0.0))
    return _Description(
        (rows, columns),
        _patient_id(header),
        _flaw(header, scales, mappings),
        scale,
        _missing_decoder(header.file_meta.TransferSyntaxUID, int(header.get("BitsStored", 8))),
    )


def _flaw(
    header: Any, scales: set[tuple[float, float]], mappings: set[tuple[float, float] | None]
) -> _DicomFlaw | None:
    if not _is_grey(header):
        return _DicomFlaw.COLOURED
    if not _is_single(header):
        return _DicomFlaw.FRAMES
    table = bool(header.get("ModalityLUTSequence"))
    if len(scales) + table > 1:
        return _DicomFlaw.SCALED_TWICE
    further_mappings = mappings if table else mappings - (scales or {(1.0, 0.0)})
    if further_mappings or "DoseGridScaling" in header:
        return _DicomFlaw.FURTHER_SCALING
    bits = header.get("BitsStored")
    if bits is not None and int(header.get("HighBit", bits - 1)) != int(bits) - 1:
        return _DicomFlaw.SHIFTED
    return None


def _is_grey(header: Any) -> bool:
    grey = int(header.get("SamplesPerPixel", 1)) == 1 and str(header.PhotometricInterpretation) in _GREY
    # Grey images may have a supplemental palette for some of their values.
    return grey and header.get("PixelPresentation", "MONOCHROME") not in ("COLOR", "MIXED")


def _is_single(header: Any) -> bool:
    frames = header.get("NumberOfFrames")
    return (frames is None or int(frames) == 1) and len(_items([header], "PerFrameFunctionalGroupsSequence")) <= 1


def _scales(header: Any) -> tuple[set[tuple[float, float]], set[tuple[float, float] | None]]:
    """Return all slopes and intercepts of a header, and those of its real world value mappings. None: a table.

    Enhanced objects state them in functional groups, for all frames or for each (PS3.3, C.7.6.16).
    """
    groups = _items([header], "SharedFunctionalGroupsSequence") + _items([header], "PerFrameFunctionalGroupsSequence")
    scales = {
        (_number(item, "RescaleSlope", 1.0), _number(item, "RescaleIntercept", 0.0))
        for item in [header, *_items(groups, "PixelValueTransformationSequence")]
        if "RescaleSlope" in item or "RescaleIntercept" in item
    }
    # With a slope of 0, all pixels would be one number.
    if any(slope == 0 for slope, _ in scales):
        raise ValueError("no slope")
    mappings = {
        (_number(item, "RealWorldValueSlope", 1.0), _number(item, "RealWorldValueIntercept", 0.0))
        if "RealWorldValueSlope" in item
        else None
        for item in _items([header, *groups], "RealWorldValueMappingSequence")
    }
    return scales, mappings


def _items(places: Sequence[Any], sequence: str) -> list[Any]:
    return list(chain.from_iterable(place.get(sequence) or [] for place in places))


def _number(item: Any, name: str, default: float) -> float:
    value = float(item[name].value) if name in item else default
    if not np.isfinite(value):
        raise ValueError("no number")
    return value


def _patient_id(header: Any) -> str:
    # A list of values is no identifier.
    value = header.get("PatientID")
    return value.strip() if isinstance(value, str) else ""


def _patient(description: _Description | None) -> str:
    return "" if description is None else description.patient


def _require_form(descriptions: Sequence[_Description | None]) -> list[_Description]:
    """Require single grey images of one size that can be decoded here. Raises DataError: some are not."""
    count = len(descriptions)
    whole = list(filter(None, descriptions))
    if len(whole) < count:
        raise DataError(f"DICOM: {count - len(whole)} of {count} files {_UNREADABLE}")
    flaws = Counter(description.flaw for description in whole)
    coloured, in_frames = flaws[_DicomFlaw.COLOURED], flaws[_DicomFlaw.FRAMES]
    if coloured + in_frames:
        raise DataError(
            f"DICOM: of {count} files {coloured} are coloured or have a palette and {in_frames} have several frames. "
            "One grey image is read from each file: write frames or volumes as separate files, or as NIfTI"
        )
    refuse_flaws("DICOM", [description.flaw for description in whole], _DicomFlaw)
    if len({description.shape for description in whole}) > 1:
        raise DataError("DICOM: bring the images to one number of rows and columns first")
    closed = list(filter(None, [description.compression for description in whole]))
    if closed:
        raise DataError(
            f"DICOM: {', '.join(sorted(set(closed)))}: {len(closed)} of {count} files cannot be decoded here: install "
            "a decoder (pip install 'pylibjpeg[all]'), or write the files again without compression"
        )
    return whole


def _refuse_folders_of_patients(folder: Path, files: Sequence[str], patients: Sequence[str]) -> None:
    """Warn if every sub-folder holds one patient. Raises DataError: sub-folders are named after patients."""
    if (folder / LABELS_FILE).exists():
        return
    tops = [file.split("/")[0] for file in files]
    pairs, count = set(zip(tops, patients, strict=True)), len(set(tops))
    if count > 1 and all(top == patient for top, patient in pairs):
        raise DataError(
            f"DICOM: each of the {count} sub-folders is named after its patient, so that they are no classes: "
            f"write {LABELS_FILE} with the columns patient (or file) and label into the folder"
        )
    if count > 2 and len(pairs) == count == len(set(patients)):
        _LOG.warning(
            "DICOM: each of the %d sub-folders holds one patient. If they are no classes, write %s with the columns "
            "patient (or file) and label into the folder",
            *(count, LABELS_FILE),
        )


def _missing_decoder(syntax: Any, bits: int) -> str | None:
    """Return the name of the compression if it cannot be decoded here, otherwise None."""
    if not syntax.is_private and not syntax.is_transfer_syntax:
        raise ValueError("no transfer syntax")
    if not syntax.is_private and not syntax.is_encapsulated:
        return None
    pydicom = _pydicom()
    with suppress(Exception):
        plugins = set(pydicom.pixels.get_decoder(syntax).available_plugins)
        # Pillow decodes only JPEG of 8 bits.
        if plugins - ({"pillow"} if syntax == pydicom.uid.JPEGExtended12Bit and bits != 8 else set()):
            return None
    # A private compression has no name, only the number in the file.
    return "a private compression" if syntax.is_private else str(syntax.name)


def _pixels(path: Path) -> Array | None:
    """Return the pixels, (rows, columns) float32, or None if they cannot be read."""
    pydicom = _pydicom()
    with suppress(Exception):
        if not _inflates_safely(path):
            return None
        image = pydicom.dcmread(path)
        description = _described(image)
        if description.flaw is not None:
            return None
        stored = image.pixel_array
        scaled = _scaled(stored, image, description)
        if image.PhotometricInterpretation == "MONOCHROME1":
            signed, bits = bool(image.PixelRepresentation), int(image.BitsStored)
            ends = np.array([[-(1 << bits - 1), (1 << bits - 1) - 1] if signed else [0, (1 << bits) - 1]])
            # By the smallest and the largest number that the type can hold, not by those in the file.
            low, high = _scaled(ends.astype(stored.dtype), image, description)[0]
            scaled = low + high - scaled
        return scaled.astype(np.float32)
    return None


def _scaled(stored: Array, image: Any, description: _Description) -> Array:
    """Return the pixels as float64, scaled by slope and intercept or by the file's table."""
    if description.scale is None:
        return np.asarray(_pydicom().pixels.apply_modality_lut(stored, image), np.float64)
    slope, intercept = description.scale
    return np.asarray(stored, np.float64) * slope + intercept
