"""Records from what programs hold: data frames and PyTorch data sets."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from client_sdk.data.records import Array, DataError, Examples, Records, Table


def records_of(data: Any) -> Records:
    """Records as they are, a pandas DataFrame, or a map-style `torch.utils.data.Dataset`.

    A data frame becomes a table whose rows are patients of their own; `Table.of` takes a patient column. A data set
    yields (x, y) or (x, y, patient): x an array, tensor or image, y a whole number.

    Raises:
        DataError: none of these, items that are not such tuples, or of different shapes.
    """
    if isinstance(data, Table | Examples):
        return data
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
