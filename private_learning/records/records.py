"""A hospital's records in the form that tasks take: tables, and arrays of examples."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells import (
    AS_WRITTEN,
    Column,
    DataError,
    Spelling,
    column_name,
    column_of,
    read_categories,
    read_numbers,
)
from study_protocol.cells.digest import digest_of
from study_protocol.cells.identity import IdentifierError, patient_identity

if TYPE_CHECKING:
    from private_learning.records.table_format import TableFormat

Array = np.ndarray[Any, np.dtype[Any]]


class WrongRows(DataError):
    """Some rows cannot be used. rows: (n,) booleans. of_first: the kind of the first one, never its content."""

    def __init__(self, text: str, rows: Array, of_first: str = "") -> None:
        super().__init__(text)
        self.rows, self.of_first = rows, of_first

    def located(self, first: Callable[[Array], str] | None) -> str:
        """Return the text with the place of the first row. first: such as `Table.first`."""
        if first is None:
            return str(self)
        description = f", which {self.of_first}" if self.of_first else ""
        return f"{self}, the first in {first(self.rows)}{description}"


@dataclass(frozen=True, repr=False)
class AppliedMapping:
    """The hospital's mapping with which a table was read.

    sha256   of the whole mapping, 64 hex digits
    origins  name of a mapped column -> names of the local columns that its cells come from
    """

    sha256: str
    origins: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, repr=False)
class Table:
    """Named columns of equal length, with cells as they are stored. Made by `Table.of`.

    patients  one identifier per row
    named     the identifiers are the hospital's. False: every row stands for a patient
    lines     (n,) the line of each row in its file, counted from 1. None: the table came from no file
    format    the format of its files. None: no text file and no declaration was among them
    declared  a person declared the format. False: the files proposed it
    mapping   the hospital's mapping, if one was applied
    """

    columns: Mapping[str, Column]
    patients: tuple[str, ...]
    named: bool = True
    lines: Array | None = None
    format: TableFormat | None = field(default=None, kw_only=True)
    declared: bool = field(default=True, kw_only=True)
    mapping: AppliedMapping | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        columns: Any,
        *,
        patient_column: str | None = None,
        lines: Sequence[int] | None = None,
        spelling: Spelling = AS_WRITTEN,
    ) -> Table:
        """Return a table from a mapping of names to sequences, or from a pandas DataFrame.

        patient_column  the column with the patient of each row. None: every row is one patient
        spelling        how texts of the data set are written

        Raises:
            DataError: there is no column or no row, a name stands twice, lengths differ, or a row has no patient.
        """
        named_values = _by_name(columns)
        line_numbers = None if lines is None else np.asarray(lines)
        patient = None if patient_column is None else column_name(patient_column)
        cells = {
            name: column_of(values, spelling=spelling, name=name)
            for name, values in named_values.items()
            if name != patient
        }
        lengths = {*map(len, cells.values()), *(len(named_values[name]) for name in named_values.keys() - cells.keys())}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError("the columns of a table have one length, and at least one row")
        if patient is None:
            return cls(cells, identifiers(None, lengths.pop()), named=False, lines=line_numbers)
        require_patient_column(patient, named_values)
        # As written: as numbers, 007 would be 7, and long identifiers would lose their last digits.
        patients = identifiers(_as_written(named_values[patient]), lengths.pop(), line_numbers)
        return cls(cells, patients, lines=line_numbers)

    @classmethod
    def without_rows(cls, names: Collection[str], patient_column: str | None) -> Table:
        """Return a table with these columns and no rows. Raises DataError: there is no such patient column."""
        if patient_column is not None:
            require_patient_column(patient_column, names)
        cells = {name: column_of([], name=name) for name in map(column_name, names) if name != patient_column}
        return cls(cells, (), patient_column is not None)

    def numbers(self, name: str, missing_values: Sequence[str] = ()) -> NDArray[np.float64]:
        """Return the column as numbers, (n,). NaN stands for empty cells and declared codes.

        Raises:
            DataError: there is no such column, or cells are neither numbers nor codes.
        """
        read = read_numbers(self._column(name), missing_values)
        self._require(name, read.wrong, f"are no numbers, the first is {read.kind}")
        return read.values

    def categories(self, name: str, categories: Sequence[str], missing_values: Sequence[str] = ()) -> NDArray[np.int64]:
        """Return the index of each cell among the categories, (n,). −1 stands for empty cells and declared codes.

        Raises:
            DataError: there is no such column, or cells are neither categories nor codes.
        """
        read = read_categories(self._column(name), categories, missing_values)
        self._require(name, read.wrong, "are none of the categories")
        return read.places

    def _column(self, name: str) -> Column:
        if (column := self.columns.get(column_name(name))) is None:
            near = like(name, self.columns)
            raise DataError(f"the table has no column {name!r}" + (f". Did you mean {near!r}?" if near else ""))
        return column

    def _require(self, name: str, wrong: Array, description: str) -> None:
        if wrong.any():
            raise DataError(
                f"column {name}: {int(wrong.sum())} of {len(wrong)} cells, the first in {self.first(wrong)}, "
                f"{description}"
            )

    @property
    def mapping_sha256(self) -> str:
        """The digest of the mapping with which the table was read. Empty: none was applied."""
        return "" if self.mapping is None else self.mapping.sha256

    def __len__(self) -> int:
        return len(self.patients)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {len(self.columns)} columns)"

    def first(self, mask: Array) -> str:
        """Return the place of the first marked row in words. mask: (n,) booleans, at least one of them True."""
        row = int(np.argmax(mask))
        return f"row {row + 1}" if self.lines is None else f"line {int(self.lines[row])}"

    def digest(self) -> str:
        """Return 64 hex digits for the table's content, independent of its storage (`study_protocol.cells.digest`).

        Raises:
            DataError: a column cannot be read.
        """
        return digest_of([self], self.columns, with_patients=self.named)

    def without_columns(self, names: Collection[str]) -> Table:
        """Return the same rows without the columns of these names."""
        return replace(self, columns={name: column for name, column in self.columns.items() if name not in names})

    def with_empty_columns(self, names: Collection[str]) -> Self:
        """Return the same rows with a column of empty cells for each of the names, none of which it has."""
        empty = {name: empty_column(len(self), name) for name in names}
        return replace(self, columns={**self.columns, **empty}) if empty else self

    def take(self, rows: Sequence[int] | Array) -> Table:
        """Return the given rows, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        columns = {name: column.take(index) for name, column in self.columns.items()}
        lines = None if self.lines is None else self.lines[index]
        patients = tuple(self.patients[int(i)] for i in index)
        return Table(
            columns,
            patients,
            self.named,
            lines,
            format=self.format,
            declared=self.declared,
            mapping=self.mapping,
        )


@dataclass(frozen=True, repr=False)
class Examples:
    """Arrays of images or features with labels. Made by `Examples.of`.

    inputs         (n, ...) numbers
    labels         (n, ...) numbers or words: a class, several classes, or a mask of an image
    patients       n identifiers
    named          as in `Table`
    label_columns  names of the labels in a list
    """

    inputs: Array
    labels: Array
    patients: tuple[str, ...]
    named: bool = True
    label_columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, inputs: Any, labels: Any, patients: Sequence[Any] | Array | None = None) -> Examples:
        """Return checked examples. Without `patients` every example is one patient.

        Raises:
            DataError: there is no example, lengths differ, or inputs are not numbers.
        """
        inputs, labels = np.asarray(inputs), np.asarray(labels)
        if inputs.ndim < 2 or inputs.dtype.kind not in "uif" or len(inputs) == 0:
            raise DataError("inputs: an array of numbers with at least one example and one further axis is expected")
        if labels.ndim < 1 or len(labels) != len(inputs):
            raise DataError(f"labels: shape ({len(inputs)}, ...) is expected, one label per example")
        return cls(inputs, labels, identifiers(patients, len(inputs)), named=patients is not None)

    def __len__(self) -> int:
        return len(self.patients)

    def __repr__(self) -> str:
        return f"Examples({len(self)} of shape {self.inputs.shape[1:]})"

    def take(self, rows: Sequence[int] | Array) -> Examples:
        """Return the given examples, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        patients = tuple(self.patients[int(i)] for i in index)
        return Examples(self.inputs[index], self.labels[index], patients, self.named, self.label_columns)


def _by_name(columns: Any) -> dict[str, Any]:
    values = [(column_name(str(name)), column) for name, column in columns.items()]
    if not values:
        raise DataError("the table has no columns")
    if len(dict(values)) != len(values):
        raise DataError("two columns of the table have one name. Rename one of them")
    return dict(values)


def _as_written(values: Any) -> Iterable[Any]:
    if isinstance(values, Column):
        return values.tolist()
    # Cells of an array keep their type: a float32 is exact only up to 2²⁴, and a date is no count of nanoseconds.
    cells = cast("Iterable[Any]", np.asarray(values))
    if isinstance(values, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(cast("Any", values))
        return [None if is_hidden else cell for cell, is_hidden in zip(cells, hidden, strict=True)]
    return cells


def empty_column(rows: int, name: str) -> Column:
    """Return (rows,) empty cells."""
    return Column.of_words(np.zeros(rows, np.int32), [None], name=name)


def like(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the names, ignoring capitals, or None."""
    by_small = {name_in_table.lower(): name_in_table for name_in_table in names}
    near = difflib.get_close_matches(name.lower(), by_small, n=1)
    return by_small[near[0]] if near else None


def require_patient_column(name: str, names: Collection[str]) -> None:
    """Require the patient column. Raises DataError: it is missing. The message suggests a similar name."""
    if name not in names:
        near = like(name, names)
        hint = f". Did you mean {near!r}?" if near else ""
        raise DataError(f"there is no patient column {name!r} among the {len(names)} columns{hint}")


def identifiers(values: Iterable[Any] | None, rows: int, lines: Array | None = None) -> tuple[str, ...]:
    """Return the identity of each row's patient, from `patient_identity`. values None: every row is one patient.

    lines  the lines of the rows in their file

    Raises:
        DataError: the number of values differs from the rows, a row has none, or one cannot identify a patient.
    """
    if values is None:
        return tuple(map("row-{}".format, range(rows)))
    patients, unusable = list[str](), dict[tuple[str, str], list[int]]()
    for row, value in enumerate(values):
        try:
            patients.append(patient_identity(value))
        except IdentifierError as error:
            patients.append("")
            unusable.setdefault((error.fault, f". {error.advice}"), []).append(row)
    if len(patients) != rows:
        raise DataError(f"patients: {len(patients)} identifiers for {rows} records")
    if not unusable and "" in patients:
        unusable["have no patient identifier", ""] = np.flatnonzero([not patient for patient in patients]).tolist()
    for (fault, advice), rows_at_fault in unusable.items():
        place = rows_at_fault[0]
        first = f"row {place + 1}" if lines is None else f"line {int(lines[place])}"
        raise DataError(f"patients: {len(rows_at_fault)} of {rows} records {fault}, the first in {first}{advice}")
    return tuple(patients)
