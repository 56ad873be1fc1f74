"""Arrays from .npz, .npy and IDX files. Large arrays are read row by row on demand."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from private_learning.records.lazy import LazyExamples
from private_learning.records.paths import require_there
from private_learning.records.records import Array, DataError, Examples
from private_learning.records.unpacking import array_header, read_array
from study_protocol.cells.unpacking import require_safe

Split = Literal["train", "val", "test"]
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
# The errors of NumPy and zipfile for files that they did not write: broken ones, ones with another compression
# (NotImplementedError), and encrypted ones (RuntimeError).
_BROKEN_ARCHIVE = (
    *(EOFError, OSError, ValueError, OverflowError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
# The number of axes that every version of NumPy supports.
_MAX_AXES = 32
# Bytes of the header before name, extra field and data of a member of a zip archive.
_LOCAL_HEADER = 30


def read_npz(path: Path, *, split: Split = "train") -> Examples:
    """Return the examples in an .npz file. Never unpickles.

    The arrays are `inputs`, `labels` and optionally `patients`, or those of MedMNIST (Yang et al. 2023): <split>_images
    and <split>_labels. Their colours are moved to the front, and several labels of a record stay together.

    Raises:
        DataError: arrays are missing.
    """
    require_there(path)
    with _opened_arrays(path) as arrays:
        name, labels, patients = _arrays_of_split(path, arrays, split)
        inputs = arrays[name]
        return Examples.of(np.moveaxis(inputs, -1, 1) if _coloured(inputs.shape, name) else inputs, labels, patients)


def list_npz(path: Path, *, split: Split = "train") -> LazyExamples | None:
    """Return examples as `read_npz`, with inputs read on demand. None: they are compressed or not stored by rows."""
    require_there(path)
    with _opened_arrays(path) as arrays:
        name, labels, patients = _arrays_of_split(path, arrays, split)
        member = arrays.zip.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            return None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        local = file.read(_LOCAL_HEADER)
        file.seek(member.header_offset + _LOCAL_HEADER + sum(struct.unpack("<HH", local[26:30])))
        rows = _stored(path, file, name)
    return None if rows is None else LazyExamples.of(rows, labels, patients)


def list_npy(path: Path) -> LazyExamples | None:
    """Return the examples in inputs.npy, labels.npy and optionally patients.npy, with inputs read on demand.

    Never unpickles. Returns None if the inputs are not stored row by row (in Fortran's order).

    Raises:
        DataError: the file has another name, the labels are missing, or the arrays are not plain.
    """
    require_there(path)
    if not path.name.endswith("inputs.npy"):
        raise DataError(f"{path.name}: name it inputs.npy, and put labels.npy and perhaps patients.npy beside it")
    companions = {
        part: path.with_name(path.name.replace("inputs.npy", f"{part}.npy")) for part in ("labels", "patients")
    }
    require_there(companions["labels"])
    with _plain_arrays(path.name):
        labels = _whole(companions["labels"])
        patients = _whole(companions["patients"]) if companions["patients"].exists() else None
        with path.open("rb") as file:
            rows = _stored(path, file, "inputs")
    return None if rows is None else LazyExamples.of(rows, labels, patients)


def read_npy(path: Path) -> Examples:
    """Return examples as `list_npy`, all in memory."""
    lazy_examples = list_npy(path)
    if lazy_examples is not None:
        return lazy_examples.in_memory()
    labels, patients = (path.with_name(path.name.replace("inputs.npy", f"{p}.npy")) for p in ("labels", "patients"))
    with _plain_arrays(path.name):
        inputs, targets = (_whole(part) for part in (path, labels))
        return Examples.of(inputs, targets, _whole(patients) if patients.exists() else None)


def _whole(path: Path) -> Array:
    """Return the array in a .npy file. Raises as `read_array`."""
    with path.open("rb") as file:
        return read_array(file, path.stat().st_size)


@dataclass(frozen=True)
class _StoredRows:
    """A reader of an array that is stored row by row from `offset` on. coloured: move the last axis to the front."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    coloured: bool
    changed: tuple[int, int] = field(repr=False)

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, rows: Array) -> Array:
        inputs = np.empty((len(rows), *self.shape[1:]), self.dtype)
        size = inputs[:1].nbytes if len(rows) else 0
        with self.path.open("rb") as file:
            if _stamp(file) != self.changed:
                raise DataError("inputs: the file has changed since the records were loaded: start again")
            # Consecutive rows are read at once.
            for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) != 1) + 1):
                if len(run):
                    file.seek(self.offset + int(rows[run[0]]) * size)
                    part = inputs[run[0] : run[-1] + 1].reshape(-1).view(np.uint8)
                    if file.readinto(part.data) != part.nbytes:
                        raise DataError("inputs: the file is shorter than its header says")
        inputs = inputs.astype(self.dtype.newbyteorder("="), copy=False)
        return np.moveaxis(inputs, -1, 1) if self.coloured else inputs

    def stored(self, row: int) -> bytes:
        return self.read(np.array([row])).tobytes()


def _stored(path: Path, file: IO[bytes], name: str) -> _StoredRows | None:
    """Return a reader for the array with the .npy header here. None: it is not stored row by row."""
    with _plain_arrays(path.name):
        shape, fortran, dtype = array_header(file)
    # The reader of the whole array reports its faults.
    if fortran or dtype.kind not in "uif" or len(shape) < 2 or shape[0] == 0:
        return None
    if file.tell() + math.prod(shape) * dtype.itemsize > _stamp(file)[0]:
        raise DataError("inputs: the file is shorter than its header says")
    return _StoredRows(path, file.tell(), shape, dtype, _coloured(shape, name), _stamp(file))


def _stamp(file: IO[bytes]) -> tuple[int, int]:
    """Return the size of the file and the time of its last change."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _arrays_of_split(path: Path, arrays: Any, split: Split) -> tuple[str, Array, Array | None]:
    """Return the name of the array of inputs, the labels, and the patients."""
    if f"{split}_images" in arrays.files:
        labels = arrays[f"{split}_labels"]
        return f"{split}_images", labels.reshape(-1) if labels.size == len(labels) else labels, None
    lacking = {"inputs", "labels"} - set(arrays.files)
    if lacking:
        raise DataError(f"{path.name}: the arrays {sorted(lacking)} are missing")
    return "inputs", arrays["labels"], arrays["patients"] if "patients" in arrays.files else None


def _coloured(shape: tuple[int, ...], name: str) -> bool:
    """Return whether the last axis has colours, as in MedMNIST."""
    return name.endswith("_images") and len(shape) == 4 and shape[-1] == 3


@contextmanager
def _plain_arrays(name: str) -> Generator[None]:
    try:
        yield
    except (EOFError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{name}: not a whole .npy file of a plain array (numpy.save writes one)") from error


@contextmanager
def _opened_arrays(path: Path) -> Generator[Any]:
    try:
        # `np.load` leaves a broken archive open, and also reads files of other kinds.
        with path.open("rb") as file, cast("Any", np.lib.npyio.NpzFile(file, allow_pickle=False)) as arrays:
            packed = path.stat().st_size
            require_safe(path.name, packed, sum(member.file_size for member in arrays.zip.infolist()))
            for member in arrays.zip.infolist():
                _require_whole(arrays.zip, member)
            yield arrays
    except _BROKEN_ARCHIVE as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path.name}: not a whole .npz file of plain arrays (numpy.savez writes one)") from error


def _require_whole(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Require a complete member. Raises ValueError: the header of the array promises more than is stored."""
    if member.filename.endswith(".npy"):
        with archive.open(member) as file:
            shape, _, dtype = array_header(file)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError("more is promised than lies there")


def read_idx(path: Path) -> Array:
    """Return an IDX array from a file that may be gzipped (LeCun, Cortes, Burges: the format of MNIST).

    Raises:
        DataError: the file is not IDX, or shorter or longer than its header says.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape, dtype = _idx_header(path.name, cast("IO[bytes]", file))
            size = math.prod(shape) * dtype.itemsize
            require_safe(path.name, path.stat().st_size, size)
            data = file.read(size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path.name}: it is not a whole gzip file. Compress it again") from error
    if len(data) != size:
        raise DataError(f"{path.name}: the length does not fit the header")
    # IDX is big-endian, and PyTorch takes only the order of the machine.
    return np.frombuffer(data, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _idx_header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    magic = file.read(4)
    sizes = file.read(4 * magic[3]) if len(magic) == 4 else b""
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or len(sizes) < 4 * magic[3]:
        raise DataError(f"{name}: not an IDX file")
    shape = struct.unpack(f">{magic[3]}I", sizes)
    if 0 in shape[1:] or len(shape) > _MAX_AXES:
        raise DataError(f"{name}: its records have no numbers, or more than {_MAX_AXES - 1} axes")
    return shape, np.dtype(_IDX_TYPES[magic[2]])
