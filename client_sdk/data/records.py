"""A hospital's records as the tasks take them: tables, and arrays of examples."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from client_sdk.data.identity import IdentifierError, patient_identity
from client_sdk.protocol.statistics.cells import as_number

Array = np.ndarray[Any, np.dtype[Any]]


class DataError(ValueError):
    """Records that cannot be trained on. The text names what is wrong and where, never whose."""


class WrongRows(DataError):
    """Some rows cannot be used. rows: (n,) booleans. of_first: what the first of them is, never what it says."""

    def __init__(self, text: str, rows: Array, of_first: str = "") -> None:
        super().__init__(text)
        self.rows, self.of_first = rows, of_first

    def located(self, first: Callable[[Array], str] | None) -> str:
        """The text with the place of the first row, as `Table.first` says it."""
        if first is None:
            return str(self)
        what = f", which {self.of_first}" if self.of_first else ""
        return f"{self}, the first in {first(self.rows)}{what}"


@dataclass(frozen=True)
class Table:
    """Named columns of equal length: float64 (NaN = missing) or text (None = missing). Made by `Table.of`.

    patients: one identifier per row. named: they are the hospital's; otherwise every row stands for a patient.
    lines: (n,) the line of its file that each row stood in, counted from 1; None: it came from no file.
    """

    columns: Mapping[str, Array]
    patients: tuple[str, ...] = field(repr=False)
    named: bool = True
    lines: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, columns: Any, *, patient_column: str | None = None, lines: Sequence[int] | None = None) -> Table:
        """From a mapping of names to sequences, or from a pandas DataFrame.

        patient_column: who a row belongs to; left out, every row is a patient of its own.

        Raises:
            DataError: no column, no row, a name that stands twice, lengths that differ, a row without its patient.
        """
        given = [(str(name), values) for name, values in columns.items()]
        arrays = {name: _column(values) for name, values in given}
        if not arrays:
            raise DataError("the table has no columns")
        if len(arrays) != len(given):
            raise DataError("two columns of the table have one name; rename one of them")
        lengths = {len(array) for array in arrays.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError("the columns of a table have one length, and at least one row")
        known = None if lines is None else np.asarray(lines)
        if patient_column is None:
            return cls(arrays, identifiers(None, lengths.pop()), named=False, lines=known)
        require_patient_column(patient_column, arrays)
        del arrays[patient_column]
        # As they are written: as numbers 007 would be 7, and long ones would lose their last digits.
        patients = identifiers(np.asarray(dict(given)[patient_column]), lengths.pop(), known)
        return cls(arrays, patients, lines=known)

    @classmethod
    def without_rows(cls, names: Collection[str], patient_column: str | None) -> Table:
        """Raises DataError: there is no such patient column."""
        if patient_column is not None:
            require_patient_column(patient_column, names)
        return cls({name: np.zeros(0) for name in names if name != patient_column}, (), patient_column is not None)

    def __len__(self) -> int:
        return len(self.patients)

    def first(self, marked: Array) -> str:
        """Where the first of the marked rows is, for a person who looks for it. marked: (n,) booleans, one is True."""
        row = int(np.argmax(marked))
        return f"row {row + 1}" if self.lines is None else f"line {int(self.lines[row])}"

    def take(self, rows: Sequence[int] | Array) -> Table:
        """The given rows, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        columns = {name: column[index] for name, column in self.columns.items()}
        lines = None if self.lines is None else self.lines[index]
        return Table(columns, tuple(self.patients[int(i)] for i in index), self.named, lines)


@dataclass(frozen=True)
class Examples:
    """Arrays of images or features with labels. Made by `Examples.of`.

    inputs: (n, ...) numbers. labels: (n, ...) numbers or words: a class, several at once, a mask of an image.
    patients: n identifiers. named: as in `Table`.
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
        if labels.ndim < 1 or len(labels) != len(inputs):
            raise DataError(f"labels: shape ({len(inputs)}, ...) is expected, one label per example")
        return cls(inputs, labels, identifiers(patients, len(inputs)), named=patients is not None)

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> Examples:
        """The given examples, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        return Examples(self.inputs[index], self.labels[index], tuple(self.patients[int(i)] for i in index), self.named)


def like(name: str, names: Iterable[str]) -> str | None:
    """Which of the names somebody may have meant, whatever its capitals."""
    by_small = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), by_small, n=1)
    return by_small[near[0]] if near else None


def require_patient_column(name: str, names: Collection[str]) -> None:
    """Raises DataError: there is no such column; the text says which one may be meant."""
    if name not in names:
        near = like(name, names)
        meant = f"; did you mean {near!r}?" if near else ""
        raise DataError(f"there is no patient column {name!r} among the {len(names)} columns{meant}")


def identifiers(given: Iterable[Any] | None, rows: int, lines: Array | None = None) -> tuple[str, ...]:
    """The identity of each row's patient, as `patient_identity` has it; given None: every row is one of its own.

    lines  where rows stood in a file

    Raises:
        DataError: another number of them, a row without one, or identifiers that do not tell one patient from another.
    """
    if given is None:
        return tuple(f"row-{i}" for i in range(rows))
    patients, unusable = list[str](), dict[str, list[int]]()
    advice: dict[str, str] = {}
    for row, value in enumerate(given):
        try:
            patients.append(patient_identity(value))
        except IdentifierError as error:
            patients.append("")
            advice[error.fault] = f". {error.advice}"
            unusable.setdefault(error.fault, []).append(row)
    if len(patients) != rows:
        raise DataError(f"patients: {len(patients)} identifiers for {rows} records")
    if not unusable and "" in patients:
        unusable["have no patient identifier"] = [row for row, patient in enumerate(patients) if not patient]
    for fault, where in unusable.items():
        first = f"row {where[0] + 1}" if lines is None else f"line {int(lines[where[0]])}"
        raise DataError(
            f"patients: {len(where)} of {rows} records {fault}, the first in {first}{advice.get(fault, '')}"
        )
    return tuple(patients)


def _column(values: Any) -> Array:
    # Numbers if every present cell is one, text otherwise.
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError("a column is one-dimensional")
    if array.dtype.kind in "uifb":
        return array.astype(np.float64)
    # Dates stay dates: counted in nanoseconds they would pass for numbers.
    cells = [None if _missing(value) else value for value in (array.astype(str) if array.dtype.kind in "mM" else array)]
    numbers = numbers_in(cells)
    if numbers is not None:
        return numbers
    return np.array([None if cell is None else text_of(cell) for cell in cells], dtype=object)


def numbers_in(cells: Iterable[Any]) -> Array | None:
    """(n,) float64, NaN for None; None: a cell is no number."""
    try:
        return np.array([np.nan if cell is None else as_number(cell) for cell in cells], dtype=np.float64)
    except (TypeError, ValueError):
        return None


def text_of(cell: Any) -> str:
    """What a cell says in a column of text."""
    # What it would be in a column of numbers, which one patient's text makes one of texts.
    fraction = isinstance(cell, bool | np.bool_ | np.floating)
    return str(float(cast("float", cell))) if fraction else str(cell).strip()


def _missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value) or str(value) == "NaT"
    # pandas' NA compares with nothing, itself included.
    except TypeError:
        return True
