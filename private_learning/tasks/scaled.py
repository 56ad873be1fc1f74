"""Common parts of tasks on images and signals: arrays of one shape within a public range, scaled to −1 … 1."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import DataError, Examples, LazyExamples, Records
from private_learning.tasks.task import Classification, InputUse, Task, TaskParameters

if TYPE_CHECKING:
    from torch import Tensor

    from private_learning.tasks.dataset import TaskDataset

Array = np.ndarray[Any, np.dtype[Any]]


# A public range of which the values fill no more than this share does not suit them.
_NARROW = 0.02
# From narrow to wide: parts of one, 8 bits, 12 bits, Hounsfield units, 16 bits without and with a sign.
_USUAL_RANGES = (
    *((0, 1), (-1, 1), (0, 255), (-128, 127), (0, 4095), (-1024, 3071), (-4096, 4095)),
    *((0, 65535), (-32768, 32767), (-65536, 65535)),
)


class ImageShape(TaskParameters):
    """Shape of an image and the public range of a pixel."""

    channels: int = Field(default=1, ge=1, le=64, description="1 for grey images, 3 for colours")
    height: int = Field(ge=4, le=4096, description="pixels of an image from top to bottom")
    width: int = Field(ge=4, le=4096, description="pixels of an image from left to right")
    low: float = Field(default=0.0, description="smallest value of a pixel. Smaller ones are clipped")
    high: float = Field(default=255.0, description="largest value of a pixel. Larger ones are clipped")

    @model_validator(mode="after")
    def _range(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.channels, self.height, self.width

    @property
    def reach(self) -> tuple[float, float]:
        """Return the smallest and largest value of a pixel."""
        return self.low, self.high


class ScaledArrays(Task):
    """Records that are arrays (channels, ...) of one shape. Those of one channel may come without that axis.

    kind_of_input: the word for an array in errors, and the word for its numbers.
    shape: of one record. reach: smallest and largest value, of all channels or (channels, 1, ...) of each.
    range_settings: the parameters of the task that state it.
    """

    name: str
    kind_of_input: tuple[str, str] = ("images", "pixels")

    shape: tuple[int, ...]
    reach: tuple[float | Array, float | Array]
    range_settings: str = "low and high"

    @abstractmethod
    def targets(self, data: Records) -> Tensor:
        """Return (n, ...) of the labels alone. Raises DataError: labels that the task does not take."""

    def inputs(self, data: Records) -> Tensor:
        import torch

        low, high = self.reach
        arrays = self._arrays(data)
        # Differences of unsigned integers would wrap around.
        values = arrays.astype(np.float32) if arrays.dtype.kind in "ui" else arrays
        scaled = (np.clip(values, low, high) - low) / (high - low)
        return torch.as_tensor(2 * scaled - 1).float()

    def dataset(self, data: Records) -> TaskDataset:
        from private_learning.tasks.dataset import TaskDataset

        return TaskDataset(self.inputs(data), self.targets(data), data.patients)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        return torch.as_tensor(generator.uniform(-1, 1, (count, *self.shape))).float()

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        arrays, (low, high) = self._arrays(data), self.reach
        outside = int(np.sum((arrays < low) | (arrays > high)))
        return (InputUse(self.kind_of_input[1], arrays.size, missing=0, clipped=outside),)

    def warnings(self, data: Records) -> tuple[str, ...]:
        warning = range_warning(self._arrays(data), self.reach, self.kind_of_input[1], self.range_settings)
        return () if warning is None else (warning,)

    def random_values(self, count: int, draw: np.random.Generator) -> tuple[Array, float | Array]:
        """Return (count, *shape) values of the range, and its smallest value."""
        low, high = self.reach
        return low + (high - low) * draw.uniform(size=(count, *self.shape)), low

    def _arrays(self, data: Records) -> Array:
        """Return (n, *shape) arrays as they are in the records."""
        inputs = examples_of(self.name, data).inputs
        arrays = inputs[:, None] if inputs.ndim == len(self.shape) and self.shape[0] == 1 else inputs
        if arrays.shape[1:] != self.shape:
            kind, shape = self.kind_of_input[0], arrays.shape[1:]
            raise DataError(f"inputs: {kind} of shape {self.shape} are expected, not {shape}")
        return arrays


class ClassifiedArrays(ScaledArrays, Classification):
    """A classifier of such arrays."""

    def targets(self, data: Records) -> Tensor:
        return self.integer_labels(labels_of(self.name, data))

    def synthetic_records(self, count: int, seed: int = 0) -> Examples:
        """Return random arrays. Those of class 0 have the smallest value everywhere."""
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, self.classes, count)
        values, low = self.random_values(count, draw)
        return Examples.of(np.where(labels.reshape(-1, *(1,) * len(self.shape)) > 0, values, low), labels)


def range_warning(
    values: Array, reach: tuple[float | Array, float | Array], name: str, range_settings: str
) -> str | None:
    """Return words for a person where a public range does not suit the values, or None.

    The range does not suit if all lie within 2 % of it, or at its ends and beyond them, or if they are whole numbers of
    up to 12 bits in a range of 16. No value is in the words: they name the narrowest of a few usual ranges that holds
    all.

    values: (n, ...). reach: smallest and largest value, which broadcast to one record. name: of the values
    """
    low, high = (np.asarray(end, np.float64) for end in reach)
    width = high - low
    # The ends of each place of a record are enough, and small.
    smallest, largest = values.min(axis=0).astype(np.float64), values.max(axis=0).astype(np.float64)
    first, last = ((np.clip(ends, low, high) - low) / width for ends in (smallest, largest))
    # Where every channel has a range of its own, each is compared with its own.
    places = tuple(range(1, first.ndim)) if width.ndim else None
    narrow = bool(np.all(last.max(axis=places) - first.min(axis=places) <= _NARROW))
    twelve_bits = values.dtype.kind in "ui" and bool(np.all(largest < 1 << 12) and np.all(width >= (1 << 16) - 1))
    if narrow:
        position = "lie within 2 % of"
    elif twelve_bits:
        position = "fill a small part of"
    elif np.any((smallest < low) | (largest > high)) and not np.any((values > low) & (values < high)):
        position = "lie at the ends or outside of"
    else:
        return None
    usual_range = _usual_range(float(smallest.min()), float(largest.max()), values.dtype)
    public = f"{low.min():g} to {high.max():g}"
    return (
        f"{name}: all {position} the study's range, {public}, so that the model sees almost no difference. They lie "
        f"within {usual_range}. Ask the study's lead whether the settings {range_settings} fit, or bring the {name} "
        "to the unit of the study"
    )


def _usual_range(smallest: float, largest: float, dtype: np.dtype[Any]) -> str:
    """Return the narrowest usual range that holds both, or else the type of the numbers: no value of a record."""
    for low, high in _USUAL_RANGES:
        if low <= smallest and largest <= high:
            return f"{low:,} to {high:,}"
    return f"the reach of their type, {dtype.name}"


def examples_of(task: str, data: Records) -> Examples:
    """Return the records, which are arrays of finite numbers. Raises DataError: they are not."""
    if not isinstance(data, Examples):
        raise no_arrays(task)
    wrong = int(np.sum(~np.isfinite(data.inputs).reshape(len(data), -1).all(axis=1)))
    if wrong:
        raise DataError(f"inputs: {wrong} of {len(data)} records hold NaN or an infinity")
    return data


def labels_of(task: str, data: Records) -> Array:
    """Return (n, ...) labels of arrays, without a look at the inputs. Raises DataError: a table."""
    if not isinstance(data, Examples | LazyExamples):
        raise no_arrays(task)
    return data.labels


def no_arrays(task: str) -> DataError:
    return DataError(f"task {task} takes arrays (inputs, labels), not a table")
