"""Classifiers on arrays: a small convolutional network on images, a last layer on given features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from private_learning.records import DataError, Examples, Records
from private_learning.tasks.losses import ClassLossParameters
from private_learning.tasks.scaled import ClassifiedArrays, ImageShape, examples_of, labels_of
from private_learning.tasks.task import Classification, InputUse
from private_learning.tasks.weights import uniform, zeros
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from private_learning.tasks.dataset import TaskDataset


class ImageParameters(ImageShape, ClassLossParameters):
    """Parameters of the images and of the network."""

    classes: int = Field(ge=2, le=10_000, description="the label is 0, 1, …, classes − 1")
    filters: int = Field(
        default=16, ge=1, le=1024, description="filters of the first convolution. The second has twice as many"
    )
    hidden: int = Field(default=32, ge=1, le=65_536, description="units of the hidden layer")


class SmallCnn(ClassifiedArrays):
    """Two strided 3 × 3 convolutions and one hidden layer, tanh throughout, no normalisation across records."""

    name, kind = "cnn", ImageParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.gamma, self.class_weights = self.parameters.loss_settings(self.name, self.classes)
        self.shape, self.reach = self.parameters.shape, self.parameters.reach

    def model(self) -> nn.Module:
        from torch import nn

        p = self.parameters
        # Stride 2 with padding 1 halves a side, rounded up. This is done twice.
        flat = 2 * p.filters * -(-p.height // 4) * -(-p.width // 4)
        return nn.Sequential(
            nn.Conv2d(p.channels, p.filters, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(p.filters, 2 * p.filters, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(flat, p.hidden),
            nn.Tanh(),
            nn.Linear(p.hidden, self.outputs),
        )

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        p = self.parameters
        flat = 2 * p.filters * -(-p.height // 4) * -(-p.width // 4)
        filters = {"0": (p.filters, p.channels, 3, 3), "2": (2 * p.filters, p.filters, 3, 3)}
        return uniform(filters | {"5": (p.hidden, flat), "7": (self.outputs, p.hidden)}, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"height": 28, "width": 28, "classes": 2, "filters": 8}


class FeatureParameters(ClassLossParameters):
    """Size of a feature vector, and its public bound."""

    features: int = Field(ge=1, le=1_000_000, description="numbers per record")
    classes: int = Field(ge=2, le=10_000, description="the label is 0, 1, …, classes − 1")
    bound: float = Field(gt=0, description="a longer feature vector is scaled down to this L2 norm")


class LastLayer(Classification):
    """A linear classifier on features that a fixed, public network has made."""

    name, kind = "last-layer", FeatureParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.gamma, self.class_weights = self.parameters.loss_settings(self.name, self.classes)

    def model(self) -> nn.Module:
        return self.linear(self.parameters.features)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return zeros({"weight": (self.outputs, self.parameters.features), "bias": (self.outputs,)})

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"features": 512, "classes": 4, "bound": 1.0}

    def synthetic_records(self, count: int, seed: int = 0) -> Records:
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, self.classes, count)
        return Examples.of(draw.normal(size=(count, self.parameters.features)) + labels[:, None], labels)

    def inputs(self, data: Records) -> Tensor:
        import torch

        examples = examples_of(self.name, data)
        if examples.inputs.shape[1:] != (self.parameters.features,):
            raise DataError(f"inputs: {self.parameters.features} features per record are expected")
        features = examples.inputs.astype(np.float64)
        norms = _norms(features)
        bounded = features * (self.parameters.bound / np.maximum(norms, self.parameters.bound))
        return torch.as_tensor(bounded).float()

    def targets(self, data: Records) -> Tensor:
        return self.integer_labels(labels_of(self.name, data))

    def dataset(self, data: Records) -> TaskDataset:
        from private_learning.tasks.dataset import TaskDataset

        return TaskDataset(self.inputs(data), self.targets(data), data.patients)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        directions = generator.standard_normal((count, self.parameters.features))
        lengths = self.parameters.bound * generator.uniform(size=(count, 1))
        return torch.as_tensor(lengths * directions / _norms(directions)).float()

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        norms = _norms(examples_of(self.name, data).inputs.astype(np.float64))
        return (InputUse("feature vectors", len(norms), missing=0, clipped=int(np.sum(norms > self.parameters.bound))),)


def _norms(features: np.ndarray) -> np.ndarray:
    """Return (n, 1) norms."""
    with np.errstate(over="ignore"):  # a norm beyond the largest float scales its record to 0
        return np.linalg.norm(features, axis=1, keepdims=True)
