"""Map-style data sets of PyTorch: items (x, y) or (x, y, patient), read at once or when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from client_sdk.data.identity import identity_or_blank
from client_sdk.data.lazy import LARGE, LazyExamples
from client_sdk.data.records import Array, DataError, Examples

# Items that are looked at to see whether the labels beside a data set are those of its items.
_LOOKED_AT = 8
_EACH = "data set: every item is (x, y), or every item is (x, y, patient)"
_ONE_SHAPE = "data set: all x have one shape"

Item = tuple[Array, Array, Any]


@dataclass(frozen=True)
class _Items:
    """A reader of a data set's x."""

    dataset: Any = field(repr=False)
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, rows: Array) -> Array:
        found = [_item(self.dataset[row])[0] for row in rows.tolist()]
        if any(array.shape != self.shape for array in found):
            raise DataError(_ONE_SHAPE)
        if any(array.dtype != self.dtype for array in found):
            raise DataError("data set: all x that are read when they are needed have one type")
        return np.stack(found)


def from_dataset(dataset: Any, lazy: bool | None) -> Examples | LazyExamples:
    """Examples of a data set. lazy: as in `records_of`.

    Raises:
        DataError: items that are not such tuples, or of different shapes.
    """
    if len(dataset) == 0:
        raise DataError(f"{_EACH}; there are none")
    first = _item(dataset[0])[0]
    if not (lazy or (lazy is None and first.nbytes * len(dataset) > LARGE)):
        return _in_memory(dataset)
    labels, patients = _told(dataset) or _passed(dataset)
    # Data sets of others may not be read from several threads.
    return LazyExamples.of(_Items(dataset, first.shape, first.dtype), labels, patients, read_by="caller")


def _in_memory(dataset: Any) -> Examples:
    items = [_item(dataset[i]) for i in range(len(dataset))]
    inputs = [x for x, *_ in items]
    if len({array.shape for array in inputs}) > 1:
        raise DataError(_ONE_SHAPE)
    return Examples.of(np.stack(inputs), _stacked([y for _, y, _ in items]), _patients([whose for *_, whose in items]))


def _passed(dataset: Any) -> tuple[Array, list[Any] | None]:
    """Labels and patients by one pass over the items, whose x are dropped."""
    found = [_item(dataset[i])[1:] for i in range(len(dataset))]
    return _stacked([y for y, _ in found]), _patients([whose for _, whose in found])


def _told(dataset: Any) -> tuple[Array, list[Any] | None] | None:
    """Labels and patients as the data set holds them beside its items; None: it does not, or some items differ."""
    count = len(dataset)
    held = (_held(dataset, name, count) for name in ("targets", "labels"))
    labels = next((values for values in held if values is not None), None)
    if labels is None:
        return None
    patients = None if _held(dataset, "patients", count) is None else list(dataset.patients)
    for row in sorted({int(row) for row in np.linspace(0, count - 1, _LOOKED_AT)}):
        _, y, whose = _item(dataset[row])
        if y.ndim or y != labels[row] or (whose is None) != (patients is None):
            return None
        if patients is not None and identity_or_blank(whose) != identity_or_blank(patients[row]):
            return None
    return np.array(labels), patients


def _held(dataset: Any, name: str, count: int) -> list[Any] | None:
    """An attribute that is one plain value for each item."""
    held = getattr(dataset, name, None)
    if held is None or isinstance(held, str) or not hasattr(held, "__len__") or len(held) != count:
        return None
    values = [_plain(value) for value in cast("Sequence[Any]", held)]
    return values if all(isinstance(value, int | float | str) for value in values) else None


def _item(item: Any) -> Item:
    """(x, y, patient), the patient None where the data set names none."""
    size = len(cast("tuple[Any, ...]", item)) if isinstance(item, tuple | list) else 0
    if size not in (2, 3):
        raise DataError(_EACH)
    label = _array(item[1])
    return _array(item[0]), label.reshape(()) if label.size == 1 else label, cast("Any", item[2]) if size == 3 else None


def _stacked(labels: list[Array]) -> Array:
    if len({label.shape for label in labels}) > 1:
        raise DataError("data set: all y have one shape")
    return np.stack(labels)


def _patients(named: list[Any]) -> list[Any] | None:
    without = sum(one is None for one in named)
    if without and without < len(named):
        raise DataError(_EACH)
    return None if without else named


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _array(value: Any) -> Array:
    tensor = value.detach().cpu() if hasattr(value, "detach") else value
    array = np.asarray(tensor)
    # Images of Pillow have their colours last.
    return np.moveaxis(array, -1, 0) if hasattr(value, "getbands") and array.ndim == 3 else array
