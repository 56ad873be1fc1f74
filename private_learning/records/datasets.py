"""Records from map-style data sets of PyTorch, with items (x, y), (x, y, patient) or dictionaries."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from private_learning.records.lazy import LARGE, LazyExamples
from private_learning.records.records import Array, DataError, Examples, identifiers
from study_protocol.cells.identity import identity_or_blank

# Number of items that are compared with the labels beside a data set.
_LOOKED_AT = 8
_EACH = "data set: every item is (x, y), or every item is (x, y, patient), or every item is a dictionary"
_ONE_SHAPE = "data set: all x have one shape"
_CHANGES = (
    "data set: some items change with every access (random augmentation?). Read on demand, x would be of one draw and "
    "y of another. Remove the random transformations (a study has public views for that), or read the data set into "
    "memory (lazy=False), which keeps every item as it comes once"
)
# The default keys of items that are dictionaries, as in MONAI.
_IMAGE, _LABEL, _PATIENT = "image", "label", ("patient", "patient_id")
_MAX_NAMED_KEYS = 20
# Modes of Pillow whose numbers are shades of grey, or of red, green and blue.
_PIXEL_MODES = ("L", "RGB", "I;16", "I;16L", "I;16B", "I", "F")
_LOG = logging.getLogger(__name__)

Item = tuple[Array, Array, Any]


@dataclass(frozen=True, repr=False)
class _Keys:
    """The places of x, y and the patient in an item: keys of a dictionary, or indices. patient: may be None."""

    x: Any
    y: Any
    patient: Any = None

    def item(self, item: Any) -> Item:
        """Return (x, y, patient). The patient may be None. Raises DataError: the item is of another kind."""
        keys = [key for key in (self.x, self.y, self.patient) if key is not None]
        if isinstance(self.x, int):
            if not isinstance(item, tuple | list) or len(cast("tuple[Any, ...]", item)) != len(keys):
                raise DataError(_EACH)
        elif not isinstance(item, Mapping) or not item.keys() >= set(keys):
            raise DataError(f"data set: some items are no dictionaries with the keys {', '.join(map(repr, keys))}")
        label = _array(item[self.y])
        patient = None if self.patient is None else cast("Any", item[self.patient])
        return _pixels(item[self.x]), label.reshape(()) if label.size == 1 else label, patient


@dataclass(frozen=True)
class _Items:
    """A reader of a data set's x. labels, patients: those of the items at the first access."""

    dataset: Any = field(repr=False)
    keys: _Keys
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: Array = field(repr=False)
    patients: tuple[str, ...] | None = field(repr=False)

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, rows: Array) -> Array:
        row_numbers: list[int] = rows.tolist()
        items = (self.keys.item(self.dataset[row]) for row in row_numbers)
        inputs, labels, patients = zip(*items, strict=True)
        if any(x.shape != self.shape for x in inputs):
            raise DataError(_ONE_SHAPE)
        if any(x.dtype != self.dtype for x in inputs):
            raise DataError("data set: all x that are read on demand have one type")
        if not all(map(_is_equal, labels, self.labels[rows])):
            raise DataError(_CHANGES)
        if self.patients is not None:
            identities = identifiers(patients, len(rows))
            if identities != tuple(self.patients[row] for row in row_numbers):
                raise DataError(_CHANGES)
        return np.stack(inputs)


def from_dataset(dataset: Any, lazy: bool | None, keys: Sequence[Any] | None = None) -> Examples | LazyExamples:
    """Return the examples of a data set. lazy, keys: as in `records_of`.

    Raises:
        DataError: items are no such tuples or dictionaries, have different shapes, or change from one access to the
            next although they are read on demand.
    """
    if len(dataset) == 0:
        raise DataError(f"{_EACH}, and there are none")
    first_item = dataset[0]
    item_keys = _keys_of(first_item, keys)
    first, *_ = item_keys.item(first_item)
    changing = not all(_is_repeatable(dataset, item_keys, row) for row in _spread(len(dataset)))
    if not (lazy or (lazy is None and first.nbytes * len(dataset) > LARGE)):
        if changing:
            _LOG.warning(
                "data set: items change with every access (random augmentation?). Every item is kept as it comes now "
                "and is not drawn again. A study has public views for that"
            )
        return _in_memory(dataset, item_keys)
    if changing:
        raise DataError(_CHANGES)
    labels, patients = _labels_of_attributes(dataset, item_keys) or _labels_of_items(dataset, item_keys)
    identities = None if patients is None else identifiers(patients, len(dataset))
    reader = _Items(dataset, item_keys, first.shape, first.dtype, labels, identities)
    # A foreign data set may not support several threads.
    return LazyExamples.of(reader, labels, identities, read_by="caller")


def _keys_of(item: Any, keys: Sequence[Any] | None) -> _Keys:
    """Return the keys of the items, given by the caller or by the default names. Raises DataError: they are unclear."""
    if keys is not None:
        if isinstance(keys, str) or len(keys) not in (2, 3):
            raise DataError("keys: two or three are expected, of x, y and perhaps the patient: keys=('image', 'label')")
        return _Keys(*keys)
    if isinstance(item, Mapping):
        return _keys_among(list(map(str, cast("Mapping[Any, Any]", item))))
    parts = list(cast("Sequence[Any]", item)) if isinstance(item, tuple | list) else []
    if parts and all(isinstance(part, Mapping) for part in parts):
        raise DataError("data set: an item is a list of dictionaries (crops?): make one item of each")
    if len(parts) not in (2, 3):
        raise DataError(_EACH)
    return _Keys(*range(len(parts)))


def _keys_among(names: Sequence[str]) -> _Keys:
    patients = [name for name in _PATIENT if name in names]
    if _IMAGE in names and _LABEL in names and len(patients) < 2:
        return _Keys(_IMAGE, _LABEL, *patients)
    listed = ", ".join(map(repr, names)) if len(names) <= _MAX_NAMED_KEYS else f"{len(names)} keys"
    unclear = "both 'patient' and 'patient_id'" if len(patients) == 2 else f"not both {_IMAGE!r} and {_LABEL!r}"
    raise DataError(
        f"data set: its items are dictionaries with {unclear} ({listed}): say which keys hold x, y and perhaps the "
        "patient, such as keys=('image', 'label', 'patient')"
    )


def _spread(count: int) -> list[int]:
    return sorted({int(row) for row in np.linspace(0, count - 1, _LOOKED_AT)})


def _is_repeatable(dataset: Any, keys: _Keys, row: int) -> bool:
    """Return whether two accesses to an item give the same."""
    (x, y, first_patient), (second_x, second_y, second_patient) = (keys.item(dataset[row]) for _ in range(2))
    return _is_equal(x, second_x) and _is_equal(y, second_y) and str(first_patient) == str(second_patient)


def _is_equal(first: Array, second: Array) -> bool:
    """Return whether two arrays are equal. NaN equals NaN."""
    return first.shape == second.shape and bool(np.all((first == second) | ((first != first) & (second != second))))


def _in_memory(dataset: Any, keys: _Keys) -> Examples:
    items = [keys.item(dataset[i]) for i in range(len(dataset))]
    inputs = [x for x, *_ in items]
    if len({array.shape for array in inputs}) > 1:
        raise DataError(_ONE_SHAPE)
    return Examples.of(
        np.stack(inputs), _stacked([y for _, y, _ in items]), _patients([patient for *_, patient in items])
    )


def _labels_of_items(dataset: Any, keys: _Keys) -> tuple[Array, list[Any] | None]:
    """Return labels and patients from one pass over the items, without keeping any x."""
    items = [keys.item(dataset[i])[1:] for i in range(len(dataset))]
    return _stacked([y for y, _ in items]), _patients([patient for _, patient in items])


def _labels_of_attributes(dataset: Any, keys: _Keys) -> tuple[Array, list[Any] | None] | None:
    """Return labels and patients from attributes of the data set. None: it has none, or some items differ from them."""
    count = len(dataset)
    labels = _plain_attribute(dataset, "targets", count) or _plain_attribute(dataset, "labels", count)
    if labels is None:
        return None
    patients = None if _plain_attribute(dataset, "patients", count) is None else list(dataset.patients)
    for row in _spread(count):
        _, y, patient = keys.item(dataset[row])
        if y.ndim or y != labels[row] or (patient is None) != (patients is None):
            return None
        if patients is not None and identity_or_blank(patient) != identity_or_blank(patients[row]):
            return None
    return np.array(labels), patients


def _plain_attribute(dataset: Any, name: str, count: int) -> list[Any] | None:
    """Return an attribute with one plain value for each item, or None."""
    attribute = getattr(dataset, name, None)
    if attribute is None or isinstance(attribute, str) or not hasattr(attribute, "__len__") or len(attribute) != count:
        return None
    values = [_plain(value) for value in cast("Sequence[Any]", attribute)]
    return values if all(isinstance(value, int | float | str) for value in values) else None


def _stacked(labels: list[Array]) -> Array:
    if len({label.shape for label in labels}) > 1:
        raise DataError("data set: all y have one shape")
    return np.stack(labels)


def _patients(patients: list[Any]) -> list[Any] | None:
    without = sum(patient is None for patient in patients)
    if without and without < len(patients):
        raise DataError(_EACH)
    return None if without else patients


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _array(value: Any) -> Array:
    """Return the value as an array. Raises DataError: it is no array and no dense tensor."""
    try:
        tensor = value.detach().cpu() if hasattr(value, "detach") else value
        # NumPy has no bfloat16. Each of its numbers is also a number of 32 bits.
        return np.asarray(tensor.float() if str(getattr(tensor, "dtype", "")) == "torch.bfloat16" else tensor)
    # Error texts of a conversion may quote numbers.
    except (TypeError, ValueError, RuntimeError):
        raise DataError("data set: some x or y are no arrays (sparse, or lists of unequal length?)") from None


def _pixels(value: Any) -> Array:
    """Return the pixels of a Pillow image, colours first. Other values become arrays as in `_array`.

    Raises:
        DataError: the image has transparency, or colours that would have to be converted.
    """
    if not hasattr(value, "getbands"):
        return _array(value)
    if value.mode in ("1", "P"):
        # The colours, not the indices of a palette.
        value = value.convert(
            "L" if value.mode == "1" else "RGB" if value.palette.mode == "RGB" else value.palette.mode
        )
    if value.mode not in _PIXEL_MODES:
        raise DataError(
            f"data set: some images are of Pillow's mode {value.mode}, in which numbers are no shades or colours: "
            "convert them in the data set, as with image.convert('RGB')"
        )
    array = np.asarray(value)
    return np.moveaxis(array, -1, 0) if array.ndim == 3 else array
