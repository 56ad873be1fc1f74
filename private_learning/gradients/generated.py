"""Generated records, on which methods, shapes and losses are tried before the first round.

They belong to no patient and follow from public facts alone: shapes and types, the widths of tables in the model, a
fixed seed, and the task's description of its own inputs and targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Draw = np.random.Generator
Array = NDArray[Any]
Make = Callable[[int, Draw], Tensor]
# Public, and the same everywhere: every hospital comes to the same choice.
SEED = 20_250_101
# Numbers that a loss is tried on at once.
_MOST_NUMBERS = 1 << 20


class TensorLike(Protocol):
    """A tensor, or records that are read on demand."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...


@dataclass(frozen=True)
class ExampleMakers:
    """A task's own generators: count, generator -> (count, ...) inputs or targets, made of no record.

    None: the task has none, and kinds are chosen by shape and type.
    """

    inputs: Make | None = None
    targets: Make | None = None


@dataclass(frozen=True)
class Shapes:
    """Of one record: shapes and types of its inputs and targets. Public."""

    inputs: torch.Size
    inputs_dtype: torch.dtype
    targets: torch.Size
    targets_dtype: torch.dtype

    @classmethod
    def of(cls, inputs: TensorLike, targets: TensorLike) -> Shapes:
        """Return the shapes of (records, ...) inputs and targets, without reading a record."""
        return cls(inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype)


def generator() -> Draw:
    """Return a generator that always begins alike."""
    return np.random.default_rng(SEED)


def inputs_of(shapes: Shapes, count: int, model: nn.Module) -> Iterator[Tensor]:
    """Yield (count, ...) inputs of several kinds, the most probable ones for the model first.

    No kind is constant, because mixing of equal records would not show.
    """
    draw, shape = generator(), (count, *shapes.inputs)
    tables = [int(m.num_embeddings) for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    if tables:
        # A number that no table has would end a GPU's process.
        kinds = [draw.integers(0, min(tables), shape), draw.integers(0, min(2, *tables), shape)]
    elif shapes.inputs_dtype.is_floating_point:
        normal = draw.standard_normal(shape)
        kinds = [normal, draw.uniform(size=shape), 30 * normal, draw.integers(0, 2, shape)]
    else:
        wide = 256 if shapes.inputs_dtype == torch.uint8 else 10
        kinds = [draw.integers(0, wide, shape), draw.integers(0, 2, shape)]
    for values in kinds:
        yield torch.as_tensor(values).to(shapes.inputs_dtype)


def targets_of(
    shapes: Shapes, count: int, classes: int, examples: ExampleMakers, rows: int = 0
) -> Iterator[tuple[str, Tensor]]:
    """Yield (description, (count, ...) targets) of many kinds. A loss need not take all of them.

    classes: how many numbers a class can have.
    rows: axes of rows before the record's own, which a loss of single rows does not see.
    """
    draw, shape = generator(), (count, *shapes.targets[rows:])
    if examples.targets is not None:
        task_targets = examples.targets(count, draw).to(shapes.targets_dtype)
        yield "targets of the task's example_targets", task_targets
        yield "equal targets of the task's example_targets", task_targets[:1].expand_as(task_targets).clone()
    floating = shapes.targets_dtype.is_floating_point
    for name, values in (*_classes(shape, classes, draw), *(_numbers(shape, draw) if floating else ())):
        yield name, torch.as_tensor(np.asarray(values)).to(shapes.targets_dtype)


def _classes(shape: Sequence[int], classes: int, draw: Draw) -> Iterator[tuple[str, Array]]:
    mixed = draw.integers(0, 2, shape)
    mixed.reshape(len(mixed), -1)[:2, 0] = 0, 1
    rare = np.zeros(shape, np.int64)
    rare[:1] = 1
    yield "two classes", mixed
    yield "a rare class", rare
    yield "all classes", draw.integers(0, classes, shape)
    yield "one class only", np.zeros(shape, np.int64)
    yield "the other class only", np.ones(shape, np.int64)


def _numbers(shape: Sequence[int], draw: Draw) -> Iterator[tuple[str, Array]]:
    yield "numbers between 0 and 1", draw.uniform(size=shape)
    yield "numbers about 0", draw.standard_normal(shape)
    yield "large numbers", 1000 * draw.standard_normal(shape)
    yield "counts", draw.poisson(3.0, shape).astype(np.float64)
    yield "signs", draw.choice([-1.0, 1.0], shape)
    yield "equal numbers", np.full(shape, 0.5)
    if len(shape) > 1 and shape[1] > 1:
        labels = draw.integers(0, 2, shape).astype(np.float64)
        labels[draw.uniform(size=shape) < 0.3] = np.nan
        labels.reshape(len(labels), shape[1], -1)[:, 0] = 1.0
        yield "targets that are partly missing", labels
        times = draw.uniform(size=shape)
        times[:, 1] = draw.integers(0, 2, times[:, 1].shape)
        yield "times with events", times


def outputs_like(outputs: Tensor) -> Iterator[Tensor]:
    """Yield outputs of several scales, shaped as the model's own, which come first."""
    draw = generator()
    yield outputs
    normal = torch.as_tensor(draw.standard_normal(outputs.shape)).to(outputs)
    yield from (normal, torch.zeros_like(outputs), 8 * normal, torch.sigmoid(normal), normal.exp())
    if outputs.dim() > 1:
        yield torch.softmax(normal, 1)


def max_records(numbers: int, limit: int) -> int:
    """Return how many records a loss is tried on that have so many numbers each."""
    return max(2, min(limit, _MOST_NUMBERS // max(1, numbers)))
