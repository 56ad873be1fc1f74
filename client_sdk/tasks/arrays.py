"""Classifiers on arrays: a small convolutional network on images, a last layer on given features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from client_sdk.data import DataError, Examples, LazyExamples, Records
from client_sdk.tasks.losses import ClassLossParameters
from client_sdk.tasks.task import Classification, InputUse

if TYPE_CHECKING:
    from torch import Tensor, nn

    from client_sdk.tasks.dataset import TaskDataset


class ImageParameters(ClassLossParameters):
    """Shape of an image and the public range of a pixel."""

    channels: int = Field(default=1, ge=1, le=64, description="1 for grey images, 3 for colours")
    height: int = Field(ge=4, le=4096, description="pixels of an image from top to bottom")
    width: int = Field(ge=4, le=4096, description="pixels of an image from left to right")
    classes: int = Field(ge=2, le=10_000, description="how many values the label has: 0, 1, …, classes − 1")
    low: float = Field(default=0.0, description="smallest value of a pixel; what is below is clipped")
    high: float = Field(default=255.0, description="largest value of a pixel; what is above is clipped")
    filters: int = Field(
        default=16, ge=1, le=1024, description="filters of the first convolution; the second has twice"
    )
    hidden: int = Field(default=32, ge=1, le=65_536, description="units of the hidden layer")

    @model_validator(mode="after")
    def _range(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        return self


class SmallCnn(Classification):
    """Two strided 3 × 3 convolutions and one hidden layer, tanh throughout, no normalisation across records."""

    name, kind = "cnn", ImageParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.gamma, self.class_weights = self.parameters.chosen(self.name, self.classes)

    def model(self) -> nn.Module:
        from torch import nn

        p = self.parameters
        # Stride 2 with padding 1 halves a side, rounded up; done twice.
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

    def inputs(self, data: Records) -> Tensor:
        import torch

        p = self.parameters
        examples = _examples(self.name, data)
        images = examples.inputs[:, None] if examples.inputs.ndim == 3 and p.channels == 1 else examples.inputs
        if images.shape[1:] != (p.channels, p.height, p.width):
            raise DataError(f"inputs: images of shape ({p.channels}, {p.height}, {p.width}) are expected")
        # Differences of unsigned integers would wrap around.
        pixels = images.astype(np.float32) if images.dtype.kind in "ui" else images
        scaled = (np.clip(pixels, p.low, p.high) - p.low) / (p.high - p.low)
        return torch.as_tensor(2 * scaled - 1).float()

    def targets(self, data: Records) -> Tensor:
        return _targets(self, data)

    def dataset(self, data: Records) -> TaskDataset:
        return _labelled(self, data)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        p = self.parameters
        return torch.as_tensor(generator.uniform(-1, 1, (count, p.channels, p.height, p.width))).float()

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        pixels = _examples(self.name, data).inputs
        outside = int(np.sum((pixels < self.parameters.low) | (pixels > self.parameters.high)))
        return (InputUse("pixels", pixels.size, missing=0, clipped=outside),)


class FeatureParameters(ClassLossParameters):
    """Size of a feature vector, and its public bound."""

    features: int = Field(ge=1, le=1_000_000, description="numbers per record")
    classes: int = Field(ge=2, le=10_000, description="how many values the label has: 0, 1, …, classes − 1")
    bound: float = Field(gt=0, description="a longer feature vector is scaled down to this L2 norm")


class LastLayer(Classification):
    """A linear classifier on features that a fixed, public network has made."""

    name, kind = "last-layer", FeatureParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.gamma, self.class_weights = self.parameters.chosen(self.name, self.classes)

    def model(self) -> nn.Module:
        return self.linear(self.parameters.features)

    def inputs(self, data: Records) -> Tensor:
        import torch

        examples = _examples(self.name, data)
        if examples.inputs.shape[1:] != (self.parameters.features,):
            raise DataError(f"inputs: {self.parameters.features} features per record are expected")
        features = examples.inputs.astype(np.float64)
        norms = _norms(features)
        bounded = features * (self.parameters.bound / np.maximum(norms, self.parameters.bound))
        return torch.as_tensor(bounded).float()

    def targets(self, data: Records) -> Tensor:
        return _targets(self, data)

    def dataset(self, data: Records) -> TaskDataset:
        return _labelled(self, data)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        directions = generator.standard_normal((count, self.parameters.features))
        lengths = self.parameters.bound * generator.uniform(size=(count, 1))
        return torch.as_tensor(lengths * directions / _norms(directions)).float()

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        norms = _norms(_examples(self.name, data).inputs.astype(np.float64))
        return (InputUse("feature vectors", len(norms), missing=0, clipped=int(np.sum(norms > self.parameters.bound))),)


def _labelled(task: SmallCnn | LastLayer, data: Records) -> TaskDataset:
    from client_sdk.tasks.dataset import TaskDataset

    return TaskDataset(task.inputs(data), _targets(task, data), data.patients)


def _targets(task: SmallCnn | LastLayer, data: Records) -> Tensor:
    if not isinstance(data, Examples | LazyExamples):
        raise _no_arrays(task.name)
    return task.integer_labels(data.labels)


def _norms(features: np.ndarray) -> np.ndarray:
    """(n, 1)."""
    with np.errstate(over="ignore"):  # a norm beyond the largest float scales its record to 0
        return np.linalg.norm(features, axis=1, keepdims=True)


def _examples(task: str, data: Records) -> Examples:
    if not isinstance(data, Examples):
        raise _no_arrays(task)
    wrong = int(np.sum(~np.isfinite(data.inputs).reshape(len(data), -1).all(axis=1)))
    if wrong:
        raise DataError(f"inputs: {wrong} of {len(data)} records hold NaN or an infinity")
    return data


def _no_arrays(task: str) -> DataError:
    return DataError(f"task {task} takes arrays (inputs, labels), not a table")
