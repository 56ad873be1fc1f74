"""Records out of what programs hold: data frames, mappings of columns, map-style data sets of PyTorch."""

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
    """The first record of every patient, in order.

    Every guarantee speaks about one record; it speaks about one patient only if a patient has one record.
    """
    first: dict[str, int] = {}
    for row, patient in enumerate(records.patients):
        first.setdefault(patient, row)
    return records.take(list(first.values()))


def as_declared(records: Records, stored: TableFormat | None) -> Records:
    """Records for a hospital that takes part, if they were read by a declared format; stored: what its ledger keeps.

    Records that came from no text file need none.

    Raises:
        ConfigurationError: they were read by a format that nobody declared, or by another one than is kept.
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
            "nobody has declared how the records are written: they were read as the file itself proposes. Look at "
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
    """Records as they are, a pandas DataFrame, a mapping of names to columns, or a map-style data set of PyTorch.

    patient_column: of a data frame or a mapping: who a row belongs to; left out, every row is a patient of its own.
    A data set yields (x, y), (x, y, patient) or dictionaries: x an array, tensor or image, y a number or an array of
    one shape.
    lazy: of a data set: read x when it is needed (True), all of them now (False), or when they are needed if they take
    more than 512 MiB (None). A data set whose items change from one access to the next is read into memory alone.
    format: how the texts of a data frame or a mapping are written.
    keys: of a data set of dictionaries: the keys of x, of y and perhaps of the patient; left out: `image` and `label`,
    and `patient` or `patient_id` where the first item has one of the two.

    Raises:
        DataError: none of these, items that are no such tuples or dictionaries, or of different shapes.
    """
    # By its shape, because pandas need not be installed.
    if isinstance(data, Mapping) or (hasattr(data, "columns") and hasattr(data, "items")):
        spelling = AS_WRITTEN if table_format is None else table_format.spelling
        table = Table.of(cast(Any, data), patient_column=patient_column, spelling=spelling)
        return replace(table, format=table_format)
    if patient_column is not None:
        raise DataError(
            "patient_column belongs to tables; Examples.of(inputs, labels, patients) takes the patients of arrays, and "
            "a data set yields (x, y, patient)"
        )
    if isinstance(data, Table | Examples | LazyExamples):
        return data
    if (advice := _instead(data)) is not None:
        raise DataError(f"records: {advice}")
    return from_dataset(data, lazy, keys)


def _instead(data: Any) -> str | None:
    """What to pass in place of what somebody might pass; None for a map-style data set."""
    kind = type(data).__name__
    if isinstance(data, str | bytes | os.PathLike):
        return "this is the name of a file; read it with load_records(path, patient_column=…)"
    if isinstance(data, np.ndarray | tuple | list) or hasattr(data, "detach"):
        return f"a {kind} does not say what is a label; make Examples.of(inputs, labels, patients) or a data frame"
    if hasattr(data, "columns") or hasattr(data, "to_pandas"):
        return f"turn this {kind} into a pandas data frame first: records.to_pandas()"
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return None
    return (
        f"a {kind} is none; a data frame, a Table, Examples or a map-style data set with a length is expected. Read an "
        "iterable data set into one of these first"
    )
