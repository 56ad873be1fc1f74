"""Features of a frozen backbone, computed once for each record where only a model's head is trained.

The frozen part is public and the same in every round. Training on its features is therefore training the whole model,
up to the rounding of a pass of another shape. Each record's features follow from the record alone, to the last bit.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from private_learning.errors import ConfigurationError
from private_learning.gradients import UnsupportedLayer
from private_learning.gradients.generated import Shapes, generator
from private_learning.gradients.generated import inputs_of as generated_inputs
from private_learning.gradients.inspection import refuse_cross_record, risky_layers
from private_learning.records import Records
from private_learning.tasks import Task, TaskDataset, TaskError
from private_learning.tasks.inputs import Inputs
from private_learning.tasks.parts import part_of
from private_learning.tasks.reading import dataset_of, inputs_of
from private_learning.tasks.task import new_model
from private_learning.training.generated import examples_of
from private_learning.training.per_record_results import each_alone
from study_protocol.study.training import HEAD

_COMPANIONS = 64
_CHUNK = 64 << 20
"""About so many bytes of records are in memory at once beside the features, where records are read on demand."""


class NoFeatures(Exception):
    """The model cannot be cut before its head. The text gives the reason."""


class HeadAlone(nn.Module):
    """A model's head, under its name in the whole model."""

    def __init__(self, head: nn.Module, name: str) -> None:
        super().__init__()
        self._path = name
        above, _, last = name.rpartition(".")
        holder: nn.Module = self
        for part in above.split(".") if above else ():
            holder.add_module(part, nn.Module())
            holder = holder.get_submodule(part)
        holder.add_module(last, head)

    def forward(self, features: Tensor) -> Tensor:
        return self.get_submodule(self._path)(features)


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """Features that the frozen part of a task's model makes of records.

    whole   the task, with a model of which the head is trained
    cache   digest of a record -> its features, for records that one process reads several times. None for no cache.
    """

    whole: Task
    device: str = "cpu"
    cache: dict[bytes, Tensor] | None = None
    _cut: list[tuple[nn.Module, nn.Module]] = field(default_factory=list[tuple[nn.Module, nn.Module]], repr=False)

    @classmethod
    def of(cls, task: Task, device: str = "cpu") -> Features | None:
        """Return the features of a study that trains the head of a model alone, or None for any other study."""
        part = part_of(task)
        if part is None or part.trainable != HEAD or part.head == "":
            return None
        return cls(task, device)

    @property
    def name(self) -> str:
        """Return the name of the head."""
        part = part_of(self.whole)
        return "" if part is None else part.head

    def task(self) -> Task:
        """Return the same task, whose inputs are features and whose model is the head."""
        derived, remembering = copy.copy(self.whole), replace(self, cache={})
        vars(derived)["model"] = _Head(self.whole, self.name)
        vars(derived)["inputs"] = _FeatureInputs(remembering)
        vars(derived)["dataset"] = _Dataset(remembering)
        return derived

    def require(self, dataset: TaskDataset) -> None:
        """Try the frozen part on generated records. Only shapes and types of the dataset are used.

        Raises:
            NoFeatures: the model uses its head otherwise than once, at its end, on each record.
            TaskError: the model refuses the study's parameters.
            ConfigurationError: records reach each other in the frozen part, as far as that is seen, or it takes none.
        """
        try:
            refuse_cross_record(risky_layers(self._model[0]))
        except UnsupportedLayer as error:
            raise ConfigurationError(f"the part that is not trained cannot be used: {error}") from error
        accepted, failed = 0, None
        for rows in self._generated(dataset):
            # Passes of one shape, with the first record in the first place: only its companions differ.
            try:
                among, separate = self._computed(rows), self._computed(rows[:1].expand_as(rows).contiguous())
            # A task's own words say what to correct.
            except (NoFeatures, TaskError):
                raise
            # A frozen model may raise any error for generated records.
            except Exception as error:  # noqa: BLE001
                failed = error
                continue
            accepted += 1
            if not bool(torch.isfinite(among).all()):
                failed = failed or ArithmeticError("NaN or an infinity: look at its weights")
                accepted -= 1
            elif not torch.equal(among[0], separate[0]):
                raise ConfigurationError(
                    "the part that is not trained gives one record other features beside other records: it mixes them, "
                    "and no patient could be protected alone"
                )
        if not accepted:
            raise ConfigurationError(
                f"the part that is not trained takes no generated record of shape {tuple(self._shape(dataset))} "
                f"({type(failed).__name__}: {failed})"
            )

    def _generated(self, dataset: TaskDataset) -> Iterator[Tensor]:
        """Yield (_COMPANIONS, ...) inputs of several kinds."""
        shapes = Shapes(self._shape(dataset), dataset.inputs.dtype, torch.Size(), dataset.targets.dtype)
        make = examples_of(self.whole, replace(dataset, grouped=False)).inputs
        if make is not None:
            yield make(_COMPANIONS, generator()).to(shapes.inputs_dtype)
        yield from generated_inputs(shapes, _COMPANIONS, self._model[0])

    def _shape(self, dataset: TaskDataset) -> torch.Size:
        """Return the shape of one row's inputs."""
        return dataset.inputs.shape[2 if dataset.grouped else 1 :]

    def of_dataset(self, dataset: TaskDataset) -> TaskDataset:
        """Return the same patients and targets with features for inputs, NaN for records that the frozen part fails on.

        `require`, not this method, finds a frozen part that mixes records or cannot be cut.
        """
        if not dataset.grouped:
            return replace(dataset, inputs=self.of_inputs(dataset.inputs), computed=True)
        chunks = [self._remembered(chunk.flatten(0, 1)) for chunk in in_chunks(dataset.inputs)]
        return replace(dataset, inputs=torch.cat(chunks).unflatten(0, dataset.inputs.shape[:2]), computed=True)

    def of_inputs(self, inputs: Inputs) -> Tensor:
        """Return (n, ...) float32 inputs of the head from those of the model, NaN for records that it fails on."""
        return torch.cat([self._remembered(chunk) for chunk in in_chunks(inputs)])

    def __reduce__(self) -> tuple[Any, ...]:
        # The model is made anew elsewhere: some programs cannot be sent.
        return Features, (self.whole, self.device, self.cache)

    def _remembered(self, inputs: Tensor) -> Tensor:
        cache = self.cache
        if cache is None:
            return each_alone(self._computed, inputs, self._model[0])
        digests = [hashlib.sha256(record.numpy().tobytes()).digest() for record in inputs.contiguous()]
        new = {digest: row for row, digest in enumerate(digests) if digest not in cache}
        if new:
            features = each_alone(self._computed, inputs[list(new.values())], self._model[0])
            cache.update(zip(new, features, strict=True))
        return torch.stack([cache[digest] for digest in digests])

    def _computed(self, inputs: Tensor) -> Tensor:
        """Run one pass through the whole model and return the input of the head."""
        model, head = self._model
        calls: list[tuple[tuple[Any, ...], Any]] = []
        handle = head.register_forward_hook(lambda _, args, output: calls.append((args, output)))
        try:
            with torch.no_grad():
                outputs = model(inputs.to(self.device))
        finally:
            handle.remove()
        if len(calls) != 1 or len(calls[0][0]) != 1 or not isinstance(calls[0][0][0], Tensor):
            raise NoFeatures("the model does not call its head once, with one tensor")
        (features,), output = calls[0]
        if output is not outputs:
            raise NoFeatures("the model continues after its head")
        if len(features) != len(inputs):
            raise NoFeatures("the head's first dimension is not that of the records")
        return features.detach().float().cpu()

    @property
    def _model(self) -> tuple[nn.Module, nn.Module]:
        """Return the whole model, made once, and its head."""
        if not self._cut:
            model = new_model(self.whole).eval().to(self.device)
            self._cut.append((model, model.get_submodule(self.name)))
        return self._cut[0]


def in_chunks(inputs: Inputs) -> Iterator[Tensor]:
    """Yield all records in their order, some at a time."""
    size = max(_COMPANIONS, _CHUNK // max(1, math.prod(inputs.shape[1:]) * inputs.dtype.itemsize))
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


@dataclass(frozen=True)
class _Head:
    """Makes the model of the head alone, with the first weights that it has in the whole model."""

    whole: Task
    name: str

    def __call__(self) -> nn.Module:
        return HeadAlone(new_model(self.whole).get_submodule(self.name), self.name)


@dataclass(frozen=True)
class _FeatureInputs:
    features: Features

    def __call__(self, data: Records) -> Tensor:
        return self.features.of_inputs(inputs_of(self.features.whole, data))


@dataclass(frozen=True)
class _Dataset:
    features: Features

    def __call__(self, data: Records) -> TaskDataset:
        return self.features.of_dataset(dataset_of(self.features.whole, data))


def reading(task: Task) -> Task:
    """Return the task that reads records as they are: the origin of a task of `Features.task`, or the task itself."""
    dataset = vars(task).get("dataset")
    return dataset.features.whole if isinstance(dataset, _Dataset) else task
