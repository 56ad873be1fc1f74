"""A hospital's records as the tasks take them, and loaders for the files they lie in.

Nothing here looks at values beyond what is needed to read them: clipping, scaling and imputation happen in the task,
by public numbers. Error texts name columns and count rows; they never hold a value of a record.
"""

from __future__ import annotations

import csv
import gzip
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class DataError(ValueError):
    """Records that cannot be trained on. The text names what is wrong and where, never whose."""


def _patients(given: Sequence[Any] | Array | None, rows: int) -> tuple[str, ...]:
    if given is None:
        return tuple(f"row-{i}" for i in range(rows))
    patients = tuple(_identifier(patient) for patient in given)
    if len(patients) != rows:
        raise DataError(f"patients: {len(patients)} identifiers for {rows} records")
    if any(patient in ("", "nan", "None") for patient in patients):
        raise DataError("patients: a record has no patient identifier")
    return patients


def _identifier(value: Any) -> str:
    # A numeric identifier column is read as floats; patient 17 is "17", as an exclusion list writes it.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


@dataclass(frozen=True)
class Table:
    """Named columns of equal length: float64 (NaN = missing) or text (None = missing). Made by `Table.of`.

    patients: one identifier per row.
    """

    columns: Mapping[str, Array]
    patients: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, columns: Any, *, patient_column: str | None = None) -> Table:
        """From a mapping of names to sequences, or from a pandas DataFrame.

        patient_column: who a row belongs to; left out, every row is a patient of its own.

        Raises:
            DataError: no column, no row, lengths that differ, or a row without its patient.
        """
        arrays = {str(name): _column(values) for name, values in columns.items()}
        if not arrays:
            raise DataError("the table has no columns")
        lengths = {len(array) for array in arrays.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError("the columns of a table have one length, and at least one row")
        if patient_column is not None and patient_column not in arrays:
            raise DataError(f"there is no patient column {patient_column!r}")
        named = None if patient_column is None else arrays.pop(patient_column)
        return cls(arrays, _patients(named, lengths.pop()))

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> Table:
        """The given rows, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        return Table({n: c[index] for n, c in self.columns.items()}, tuple(self.patients[i] for i in index))


@dataclass(frozen=True)
class Examples:
    """Arrays of images or features with integer labels. Made by `Examples.of`.

    inputs: (n, ...) numbers. labels: (n,) integers. patients: n identifiers.
    """

    inputs: Array
    labels: Array
    patients: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, inputs: Any, labels: Any, patients: Sequence[Any] | Array | None = None) -> Examples:
        """Checked examples; without `patients` every example is a patient of its own.

        Raises:
            DataError: no example, lengths that differ, inputs that are not numbers.
        """
        inputs, labels = np.asarray(inputs), np.asarray(labels)
        if inputs.ndim < 2 or inputs.dtype.kind not in "uif" or len(inputs) == 0:
            raise DataError("inputs: an array of numbers with at least one example and one further axis is expected")
        if labels.shape != (len(inputs),):
            raise DataError(f"labels: shape ({len(inputs)},) is expected, one label per example")
        return cls(inputs, labels, _patients(patients, len(inputs)))

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> Examples:
        """The given examples, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        return Examples(self.inputs[index], self.labels[index], tuple(self.patients[i] for i in index))


Records = Table | Examples
AnyRecords = TypeVar("AnyRecords", Table, Examples)


def one_per_patient(records: AnyRecords) -> AnyRecords:
    """The first record of every patient, in order.

    Every guarantee speaks about one record; it speaks about one patient only if a patient has one record.
    """
    first: dict[str, int] = {}
    for row, patient in enumerate(records.patients):
        first.setdefault(patient, row)
    return records.take(list(first.values()))


def load(path: str | Path, *, patient_column: str | None = None) -> Records:
    """Records from a file, by its name: .csv, .parquet, .npz, or IDX images beside their IDX labels.

    Raises:
        DataError: an unknown kind of file, or one that does not hold what its name promises.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    if path.suffix in (".csv", ".data", ".parquet"):
        read = read_parquet if path.suffix == ".parquet" else read_csv
        return read(path, patient_column=patient_column)
    if patient_column is not None:
        raise DataError("patient_column belongs to tables; an .npz file holds an array `patients`")
    if path.suffix == ".npz":
        return read_npz(path)
    if "images-idx" in path.name:
        labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
        return Examples.of(read_idx(path), read_idx(labels))
    raise DataError(f"{path.name}: a .csv, .parquet, .npz or images-idx file is expected")


def read_csv(
    path: Path,
    *,
    patient_column: str | None = None,
    names: Sequence[str] | None = None,
    missing: Sequence[str] = ("", "?", "NA", "NaN", "nan"),
) -> Table:
    """A table from a comma-separated file; `names` where it has no header line.

    Raises:
        DataError: no rows, a row of another length, a column named twice.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    header = list(names) if names is not None else rows.pop(0) if rows else []
    if len(set(header)) != len(header):
        raise DataError(f"{path.name}: a column is named twice")
    wrong = sum(len(row) != len(header) for row in rows)
    if wrong or not rows:
        raise DataError(f"{path.name}: {wrong} of {len(rows)} rows do not have {len(header)} cells")
    absent = set(missing)
    columns = {
        name.strip(): [None if cell.strip() in absent else cell.strip() for cell in cells]
        for name, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
    return Table.of(columns, patient_column=patient_column)


def read_parquet(path: Path, *, patient_column: str | None = None) -> Table:
    """A table from a Parquet file. Needs the package pyarrow."""
    try:
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow: pip install pyarrow") from error
    if not path.is_file():
        raise FileNotFoundError(path)
    return Table.of(parquet.read_table(path).to_pydict(), patient_column=patient_column)


def read_npz(path: Path) -> Examples:
    """Examples from the arrays `inputs`, `labels` and, if it is there, `patients` of an .npz file. Never unpickles."""
    with np.load(path, allow_pickle=False) as arrays:
        lacking = {"inputs", "labels"} - set(arrays.files)
        if lacking:
            raise DataError(f"{path.name}: the arrays {sorted(lacking)} are missing")
        return Examples.of(
            arrays["inputs"], arrays["labels"], arrays["patients"] if "patients" in arrays.files else None
        )


def read_idx(path: Path) -> Array:
    """An IDX array, gzipped or not (LeCun, Cortes, Burges: the format of MNIST).

    Raises:
        DataError: not IDX, or shorter or longer than its header says.
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path.name}: not an IDX file")
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    dtype = np.dtype(_IDX_TYPES[data[2]])
    if len(data) != 4 + 4 * data[3] + int(np.prod(shape)) * dtype.itemsize:
        raise DataError(f"{path.name}: the length does not fit the header")
    return np.frombuffer(data, dtype=dtype, offset=4 + 4 * data[3]).reshape(shape).astype(dtype.newbyteorder("="))


def _column(values: Any) -> Array:
    # Numbers if every present cell is one, text otherwise.
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError("a column is one-dimensional")
    if array.dtype.kind in "uifb":
        return array.astype(np.float64)
    cells = [None if value is None or value != value else value for value in array.tolist()]
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([None if cell is None else str(cell).strip() for cell in cells], dtype=object)
