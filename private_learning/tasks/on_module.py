"""A linear model on features of a module that every hospital has: installed code, or a program in a local file.

Code never travels. A study names one of two: a module that a package here offers under the entry point group
`wardround.backbones`, with the digest of its weights, or the SHA-256 of a file with a program. A program is an ONNX
graph of standard operators, which can compute and cannot act (`private_learning.tasks.program`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.errors import ConfigurationError
from private_learning.records import DataError, Examples, LazyExamples, Records
from private_learning.tasks.losses import ClassLossParameters
from private_learning.tasks.scaled import range_warning
from private_learning.tasks.task import Classification, InputUse, TaskError, reason
from private_learning.tasks.weights import zeros
from study_protocol.study.training import PROGRAM_TASK
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from private_learning.tasks.dataset import TaskDataset

GROUP = "wardround.backbones"
ORIENTED_GRADIENTS = "oriented-gradients"
_SHAPE = re.compile(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){0,3}")


class ModuleParameters(ClassLossParameters):
    """Inputs and outputs of the module, and its name."""

    module: str | None = Field(
        default=None,
        description="oriented-gradients, or an installed module. Default: the program in the backbone's file",
    )
    state_sha256: str | None = Field(
        default=None, alias="state-sha256", description="digest of an installed module's weights, if it has any"
    )
    shape: str = Field(description="of one record, such as 1x28x28: channels, height and width")
    low: float = Field(default=0.0, description="smallest number of a record. Smaller ones are clipped")
    high: float = Field(default=255.0, description="largest number of a record. Larger ones are clipped")
    features: int = Field(ge=1, le=1_000_000, description="numbers that the module makes of a record")
    classes: int = Field(ge=2, le=10_000, description="the label is 0, 1, …, classes − 1")
    bound: float = Field(gt=0, description="a longer feature vector is scaled down to this L2 norm")

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        if _SHAPE.fullmatch(self.shape) is None:
            raise ValueError("shape is one to four numbers with an x between them, such as 1x28x28")
        if self.module is None and self.state_sha256 is not None:
            raise ValueError("state-sha256 belongs to an installed module: a program's file has its own digest")
        return self

    @property
    def sides(self) -> tuple[int, ...]:
        """Return the sides of one record."""
        return tuple(map(int, self.shape.split("x")))


class ModuleFeatures(Classification):
    """One linear layer, all weights 0 at the start, on features of a frozen module."""

    name, kind = PROGRAM_TASK, ModuleParameters
    head = "head"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.gamma, self.class_weights = self.parameters.loss_settings(self.name, self.classes)
        self._program: nn.Module | None = None

    def with_program(self, data: bytes | None) -> ModuleFeatures:
        """Return the same task with the bytes of a program, or None for an installed module.

        Raises:
            ConfigurationError: both, or neither. The file is no program, or one that is refused.
        """
        if (data is None) == (self.parameters.module is None):
            raise ConfigurationError(
                "task features takes its module from one place: the parameter module, or a program in a file whose "
                "SHA-256 is in training.backbone"
            )
        task = copy.copy(self)
        if data is not None:
            from private_learning.tasks.program import Program

            task._program = Program(data, self.parameters.sides)
        return task

    def model(self) -> nn.Module:
        from private_learning.tasks.frozen_module import OnFeatures, state_digest

        p = self.parameters
        if self._program is not None:
            return OnFeatures(self._program, p.features, p.bound, self.linear(p.features))
        if p.module is None:
            raise ConfigurationError("task features has no module: name one, or a program's file (training.backbone)")
        module = _installed(p.module)
        digest = state_digest(module)
        if digest != p.state_sha256:
            raise ConfigurationError(
                f"module {p.module!r} has other weights here than at the other hospitals: their SHA-256 is "
                f"{digest or 'none, for it has no weights'}, the study's state-sha256 is {p.state_sha256}"
            )
        return OnFeatures(module, p.features, p.bound, self.linear(p.features))

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        """Return the weights of the one layer that is trained, for every module."""
        return zeros({"head.weight": (self.outputs, self.parameters.features), "head.bias": (self.outputs,)})

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {
            "module": ORIENTED_GRADIENTS,
            "shape": "1x28x28",
            "features": 392,
            "classes": 2,
            "bound": 1.0,
        }

    def synthetic_records(self, count: int, seed: int = 0) -> Records:
        draw, p = np.random.default_rng(seed), self.parameters
        labels = draw.integers(0, self.classes, count)
        numbers = draw.uniform(p.low, p.high, (count, *p.sides))
        return Examples.of(np.where(labels.reshape(-1, *[1] * len(p.sides)) > 0, numbers, 0.0), labels)

    def inputs(self, data: Records) -> Tensor:
        import torch

        p, examples = self.parameters, self._examples(data)
        rows = examples.inputs
        if len(p.sides) == rows.ndim and p.sides[0] == 1:
            rows = rows[:, None]
        if rows.shape[1:] != p.sides:
            shape = "x".join(map(str, rows.shape[1:]))
            raise DataError(f"inputs: records of shape {p.shape} are expected, not {shape}")
        return torch.as_tensor(np.clip(rows.astype(np.float32), p.low, p.high))

    def dataset(self, data: Records) -> TaskDataset:
        from private_learning.tasks.dataset import TaskDataset

        return TaskDataset(self.inputs(data), self.targets(data), data.patients)

    def targets(self, data: Records) -> Tensor:
        if not isinstance(data, Examples | LazyExamples):
            raise DataError(f"task {self.name} takes arrays (inputs, labels), not a table")
        return self.integer_labels(data.labels)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        p = self.parameters
        return torch.as_tensor(generator.uniform(p.low, p.high, (count, *p.sides))).float()

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        numbers = self._examples(data).inputs
        outside = int(np.sum((numbers < self.parameters.low) | (numbers > self.parameters.high)))
        return (InputUse("numbers", numbers.size, missing=0, clipped=outside),)

    def warnings(self, data: Records) -> tuple[str, ...]:
        reach = self.parameters.low, self.parameters.high
        warning = range_warning(self._examples(data).inputs, reach, "numbers", "low and high")
        return () if warning is None else (warning,)

    def _examples(self, data: Records) -> Examples:
        if not isinstance(data, Examples):
            raise DataError(f"task {self.name} takes arrays (inputs, labels), not a table")
        wrong = int(np.sum(~np.isfinite(data.inputs).reshape(len(data), -1).all(axis=1)))
        if wrong:
            raise DataError(f"inputs: {wrong} of {len(data)} records hold NaN or an infinity")
        return data


def _installed(name: str) -> nn.Module:
    """Return the installed module of this name.

    Raises TaskError: no package offers it, two packages do, or its code fails.
    """
    from torch import nn

    if name == ORIENTED_GRADIENTS:
        from private_learning.tasks.oriented_gradients import OrientedGradients

        return OrientedGradients()
    points = list(entry_points(group=GROUP, name=name))
    if len(points) != 1:
        available = sorted({ORIENTED_GRADIENTS, *(point.name for point in entry_points(group=GROUP))})
        problem = (
            f"no package here offers it: there are {available}" if not points else "several packages here offer it"
        )
        raise TaskError(f"module {name!r}: {problem}")
    try:
        make: Callable[[], Any] = points[0].load()
        module = make()
    # Foreign code may raise any error, which a person has to look at.
    except Exception as error:
        raise TaskError(f"module {name!r} cannot be made: {reason(error)}") from error
    if not isinstance(module, nn.Module):
        raise TaskError(f"the entry point for module {name!r} did not return a torch module")
    return module
