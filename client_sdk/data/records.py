"""A hospital's records as the tasks take them: tables, and arrays of examples; also out of what programs hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class DataError(ValueError):
    """Records that cannot be trained on. The text names what is wrong and where, never whose."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length: float64 (NaN = missing) or text (None = missing). Made by `Table.of`.

    patients: one identifier per row. named: they are the hospital's; otherwise every row stands for a patient.
    """

    columns: Mapping[str, Array]
    patients: tuple[str, ...] = field(repr=False)
    named: bool = True

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
            raise DataError(f"there is no patient column {patient_column!r} among the {len(arrays)} columns")
        given = None if patient_column is None else arrays.pop(patient_column)
        return cls(arrays, _patients(given, lengths.pop()), named=given is not None)

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> Table:
        """The given rows, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        columns = {name: column[index] for name, column in self.columns.items()}
        return Table(columns, tuple(self.patients[int(i)] for i in index), self.named)


@dataclass(frozen=True)
class Examples:
    """Arrays of images or features with integer labels. Made by `Examples.of`.

    inputs: (n, ...) numbers. labels: (n,) integers. patients: n identifiers. named: as in `Table`.
    """

    inputs: Array
    labels: Array
    patients: tuple[str, ...] = field(repr=False)
    named: bool = True

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
        return cls(inputs, labels, _patients(patients, len(inputs)), named=patients is not None)

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> Examples:
        """The given examples, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        return Examples(self.inputs[index], self.labels[index], tuple(self.patients[int(i)] for i in index), self.named)


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


def records_of(data: Any) -> Records:
    """Records as they are, a pandas DataFrame, or a map-style `torch.utils.data.Dataset`.

    A data frame becomes a table whose rows are patients of their own; `Table.of` takes a patient column. A data set
    yields (x, y) or (x, y, patient): x an array, tensor or image, y a whole number.

    Raises:
        DataError: none of these, items that are not such tuples, or of different shapes.
    """
    if isinstance(data, Table | Examples):
        return data
    # By its shape, because pandas need not be installed.
    if hasattr(data, "columns") and hasattr(data, "items"):
        return Table.of(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _from_dataset(data)
    raise DataError(
        "records: a Table, Examples, a data frame or a map-style data set with a length is expected; "
        "read an iterable data set into one first"
    )


def _from_dataset(dataset: Any) -> Examples:
    items = [dataset[i] for i in range(len(dataset))]
    sizes = {len(cast("tuple[Any, ...]", item)) if isinstance(item, tuple | list) else 0 for item in items}
    if sizes not in ({2}, {3}):
        raise DataError("data set: every item is (x, y), or every item is (x, y, patient)")
    inputs = [_array(item[0]) for item in items]
    if len({array.shape for array in inputs}) > 1:
        raise DataError("data set: all x have one shape")
    labels = [_array(item[1]) for item in items]
    if any(label.size != 1 for label in labels):
        raise DataError("data set: y is one number")
    patients = [_plain(item[2]) for item in items] if sizes == {3} else None
    return Examples.of(np.stack(inputs), np.array([label.item() for label in labels]), patients)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _array(value: Any) -> Array:
    tensor = value.detach().cpu() if hasattr(value, "detach") else value
    array = np.asarray(tensor)
    # Images of Pillow have their colours last.
    return np.moveaxis(array, -1, 0) if hasattr(value, "getbands") and array.ndim == 3 else array


def _patients(given: Sequence[Any] | Array | None, rows: int) -> tuple[str, ...]:
    if given is None:
        return tuple(f"row-{i}" for i in range(rows))
    patients = tuple(_identifier(patient) for patient in given)
    if len(patients) != rows:
        raise DataError(f"patients: {len(patients)} identifiers for {rows} records")
    # What a missing cell has become as text.
    if any(patient in ("", "nan", "None") for patient in patients):
        raise DataError("patients: a record has no patient identifier")
    return patients


def _identifier(value: Any) -> str:
    # A numeric identifier column is read as floats; patient 17 is "17", as an exclusion list writes it.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


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
