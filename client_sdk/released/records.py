"""New records, whose labels are not known yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from private_learning.records import Examples, Records, TableFormat, load, records_of


def new_records(data: Any, patient_column: str | None = None, table_format: TableFormat | None = None) -> Records:
    """Records out of a path, a data frame, a mapping of columns, an array of inputs, or what `records_of` takes.

    table_format: how the texts of a table are written, as of `private_learning.records.load`. Labels may lack.
    An array has no names of columns: it is for images and features, never for a table.

    Raises:
        DataError: none of these, and as `private_learning.records.load`.
        FileNotFoundError: no such file.
    """
    if isinstance(data, str | Path):
        return _from_file(Path(data), patient_column, table_format)
    if isinstance(data, Tensor):
        return _unlabelled(data.detach().cpu().numpy())
    if isinstance(data, np.ndarray):
        return _unlabelled(cast("np.ndarray[Any, np.dtype[Any]]", data))
    return records_of(data, patient_column=patient_column, table_format=table_format)


def _from_file(path: Path, patient_column: str | None, table_format: TableFormat | None) -> Records:
    if path.suffix != ".npz" or patient_column is not None:
        return load(path, table_format, patient_column=patient_column)
    with np.load(path, allow_pickle=False) as arrays:
        if "inputs" not in arrays.files or "labels" in arrays.files:
            return load(path)
        return _unlabelled(arrays["inputs"], arrays["patients"] if "patients" in arrays.files else None)


def _unlabelled(inputs: Any, patients: Any = None) -> Examples:
    # A prediction looks at no label.
    return Examples.of(inputs, np.zeros(np.shape(inputs)[:1], np.int64), patients)
