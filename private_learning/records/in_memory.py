"""Records from objects of programs: data frames, mappings of columns, map-style data sets of PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from private_learning.errors import ConfigurationError
from private_learning.records.datasets import from_dataset
from private_learning.records.lazy import LazyExamples
from private_learning.records.lazy_table import LazyTable
from private_learning.records.records import DataError, Examples, Table
from private_learning.records.table_format import TableFormat
from study_protocol.cells import AS_WRITTEN

Records = Table | Examples | LazyExamples
OnDemand = LazyExamples | LazyTable
AnyRecords = TypeVar("AnyRecords", Table, Examples, LazyExamples)


def one_per_patient(records: AnyRecords) -> AnyRecords:
    """Return the first record of every patient, in order.

    Every guarantee is about one record. It is about one patient only if every patient has one record.
    """
    first: dict[str, int] = {}
    for row, patient in enumerate(records.patients):
        first.setdefault(patient, row)
    return records.take(list(first.values()))


def as_declared(records: Records, stored: TableFormat | None) -> Records:
    """Return the records of a participating hospital if they were read with a declared format.

    Records that came from no text file need no format. stored: the format in the hospital's ledger.

    Raises:
        ConfigurationError: they were read with an undeclared format, or with another one than the stored one.
    """
    if not isinstance(records, Table) or records.format is None:
        return records
    if stored is not None and records.format != stored:
        raise ConfigurationError(
            f"the records were read with {records.format}, and the data set is declared with {stored}: read them with "
            f"load_records(path, {stored!r})"
        )
    if stored is None and not records.declared:
        raise ConfigurationError(
            "the format of the records is not declared: they were read as the file itself proposes. Look at "
            f"propose_format(path), then read them with load_records(path, {records.format!r}) if this is right"
        )
    return records


def records_of(
    data: Any,
    *,
    patient_column: str | None = None,
    lazy: bool | None = None,
    table_format: TableFormat | None = None,
    keys: Sequence[Any] | None = None,
) -> Records:
    """Return records from records, a pandas DataFrame, a mapping of names to columns, or a map-style PyTorch data set.

    A data set yields (x, y), (x, y, patient) or dictionaries. x is an array, tensor or image. y is a number, or an
    array of one shape.

    patient_column  of a data frame or mapping: the column with the patient of each row. None: every row is one patient
    lazy            of a data set: read x on demand (True), all of them now (False), or on demand if they take more than
                    512 MiB (None). Items that change from one access to the next can only be read into memory
    table_format    how the texts of a data frame or a mapping are written
    keys            of a data set of dictionaries: the keys of x, y and optionally the patient. None: `image` and
                    `label`, and `patient` or `patient_id` if the first item has one of the two

    Raises:
        DataError: data is none of these, or its items are no such tuples or dictionaries, or differ in shape.
    """
    # By its shape, because pandas need not be installed.
    if isinstance(data, Mapping) or (hasattr(data, "columns") and hasattr(data, "items")):
        spelling = AS_WRITTEN if table_format is None else table_format.spelling
        table = Table.of(cast(Any, data), patient_column=patient_column, spelling=spelling)
        return replace(table, format=table_format)
    if patient_column is not None:
        raise DataError(
            "patient_column belongs to tables. Examples.of(inputs, labels, patients) takes the patients of arrays, and "
            "a data set yields (x, y, patient)"
        )
    if isinstance(data, Table | Examples | LazyExamples):
        return data
    if (advice := _instead(data)) is not None:
        raise DataError(f"records: {advice}")
    return from_dataset(data, lazy, keys)


def _instead(data: Any) -> str | None:
    """Return advice on what to pass instead of this object, or None for a map-style data set."""
    kind = type(data).__name__
    if isinstance(data, str | bytes | os.PathLike):
        return "this is the name of a file. Read it with load_records(path, patient_column=…)"
    if isinstance(data, np.ndarray | tuple | list) or hasattr(data, "detach"):
        return f"a {kind} does not name its labels. Make Examples.of(inputs, labels, patients) or a data frame"
    if hasattr(data, "columns") or hasattr(data, "to_pandas"):
        return f"turn this {kind} into a pandas data frame first: records.to_pandas()"
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return None
    return (
        f"a {kind} cannot be read. A data frame, a Table, Examples or a map-style data set with a length is expected. "
        "Read an iterable data set into one of these first"
    )
